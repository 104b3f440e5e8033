"""Every environment variable of the toolchain, read here and nowhere else.

The variables that a built library reads at run time (TILEC_CPU, TILEC_NUM_THREADS, TILEC_FORCE_VARIANT,
TILEC_LOG) belong to the C runtime and are documented in its header; `read_library_settings` has those that
decide between variants, for commands that say what the runtime would do.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from tilec.errors import EnvironmentError_, InputError, Place
from tilec.portable.cores import usable_cores

DEFAULT_CACHE_LIMIT = 4 << 30
#: Of a call: MAX_WORKERS of the C runtime.
_MOST_THREADS = 1024
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Settings:
    """What the environment says.

    ``cache_dir``: TILEC_CACHE_DIR, else TILELANG_CACHE_DIR, else ``$XDG_CACHE_HOME/tilec``, else
    ``~/.cache/tilec``. ``cache``: False when TILEC_CACHE or (inverted) TILELANG_DISABLE_CACHE says so.
    ``cc``: TILEC_CC, a C compiler command to use in place of ziglang.
    ``nvcc``: TILEC_NVCC, an nvcc command to use in place of NVRTC. ``nvrtc``: TILEC_NVRTC, the major version
    of the installed NVRTC to use, "12" or "13". ``hiprtc``: TILEC_HIPRTC, a hipRTC library to use in place of
    ziglang for AMD GPUs. ``jobs``: TILEC_JOBS, the number of compile processes (None:
    one per core). ``debug``: TILEC_DEBUG, tracebacks on errors. ``verify``: TILEC_VERIFY, the
    tile IR is verified after every pass, not after the last one alone.

    In process: ``target``: TILEC_TARGET, else TILELANG_DEFAULT_TARGET or TILELANG_TARGET, what `tilec.jit`
    compiles for. ``backend``: TILEC_EXECUTION_BACKEND, else TILELANG_EXECUTION_BACKEND. ``verbose``:
    TILEC_VERBOSE, else TILELANG_VERBOSE or TILELANG_PRINT_ON_COMPILATION, a line on stderr for every kernel
    that is compiled or loaded. ``temporary``: TILEC_TMP_DIR, else TILELANG_TMP_DIR, a folder for the
    libraries of kernels that no cache keeps (None: the system's).
    ``cache_limit``: TILEC_CACHE_LIMIT, the bytes that the cache keeps (0: any number). ``tuning_cache``:
    False when TILEC_TUNING_CACHE or (inverted) TILELANG_AUTO_TUNING_DISABLE_CACHE says so. Of `tuning_jobs`,
    ``tuning_count``: TILELANG_AUTO_TUNING_CPU_COUNTS; ``tuning_share``, of the cores:
    TILELANG_AUTO_TUNING_CPU_UTILITIES; ``tuning_most``: TILELANG_AUTO_TUNING_MAX_CPU_COUNT.
    """

    cache_dir: Path
    cache: bool = True
    cc: str | None = None
    nvcc: str | None = None
    nvrtc: str | None = None
    hiprtc: str | None = None
    jobs: int | None = None
    debug: bool = False
    verify: bool = False
    target: str = "auto"
    backend: str = "auto"
    verbose: bool = False
    cache_limit: int = DEFAULT_CACHE_LIMIT
    tuning_cache: bool = True
    tuning_count: int = -1
    tuning_share: float = 0.9
    tuning_most: int = -1
    temporary: Path | None = None

    @property
    def tuning_jobs(self) -> int:
        """Compile processes of a search. Asks the system for the cores of this process where nothing says."""
        if self.jobs:
            return self.jobs
        jobs = self.tuning_count
        if jobs <= 0:
            jobs = max(1, math.ceil(self.tuning_share * usable_cores()))
        return min(jobs, self.tuning_most) if self.tuning_most > 0 else jobs


@dataclass(frozen=True)
class LibrarySettings:
    """What a built library would take from the environment when it chooses variants. ``cpu``: TILEC_CPU, a
    target of a processor; ``forced``: the ids of TILEC_FORCE_VARIANT, up to what the runtime ignores;
    ``threads``: TILEC_NUM_THREADS, None where the runtime ignores it."""

    cpu: str | None = None
    forced: tuple[int, ...] = ()
    threads: int | None = None


def read_library_settings(env: Mapping[str, str] | None = None) -> LibrarySettings:
    """As the C runtime reads them (runtime_c/src/settings.c)."""
    env = os.environ if env is None else env
    listed = re.match(r"[0-9]*(,[0-9]+)*", env.get("TILEC_FORCE_VARIANT", ""))
    ids = listed.group().split(",") if listed and listed.group() else []
    forced = tuple(int(each) for each in ids if each)
    return LibrarySettings(env.get("TILEC_CPU") or None, forced, _threads(env.get("TILEC_NUM_THREADS", "")))


def _threads(text: str) -> int | None:
    count = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    return count if 1 <= count <= _MOST_THREADS else None


def read_settings(env: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process, or of ``env``. Raises InputError for a value that cannot be used."""
    env = os.environ if env is None else env
    return Settings(
        cache_dir=_cache_dir(env),
        cache=_flag(env, "TILEC_CACHE", True) and not _flag(env, "TILELANG_DISABLE_CACHE", False),
        cc=env.get("TILEC_CC") or None,
        nvcc=env.get("TILEC_NVCC") or None,
        nvrtc=_nvrtc(env),
        hiprtc=env.get("TILEC_HIPRTC") or None,
        jobs=_jobs(env),
        debug=_flag(env, "TILEC_DEBUG", False),
        verify=_flag(env, "TILEC_VERIFY", False),
        target=_first(env, "TILEC_TARGET", "TILELANG_DEFAULT_TARGET", "TILELANG_TARGET") or "auto",
        backend=_first(env, "TILEC_EXECUTION_BACKEND", "TILELANG_EXECUTION_BACKEND") or "auto",
        verbose=_flag(
            env, "TILEC_VERBOSE", _either(env, "TILELANG_VERBOSE", "TILELANG_PRINT_ON_COMPILATION")
        ),
        temporary=_folder(env, "TILEC_TMP_DIR", "TILELANG_TMP_DIR"),
        cache_limit=_bytes(env, "TILEC_CACHE_LIMIT", DEFAULT_CACHE_LIMIT),
        tuning_cache=_flag(
            env, "TILEC_TUNING_CACHE", not _flag(env, "TILELANG_AUTO_TUNING_DISABLE_CACHE", False)
        ),
        tuning_count=int(_number(env, "TILELANG_AUTO_TUNING_CPU_COUNTS", -1)),
        tuning_share=_number(env, "TILELANG_AUTO_TUNING_CPU_UTILITIES", 0.9),
        tuning_most=int(_number(env, "TILELANG_AUTO_TUNING_MAX_CPU_COUNT", -1)),
    )


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "").strip()
    try:
        return float(text) if text else default
    except ValueError as error:
        raise InputError(f'{name} is "{text}"', place=Place(key=name), remedy="set it to a number") from error


def _either(env: Mapping[str, str], *names: str) -> bool:
    """Whether one of some variables says yes."""
    return any(_flag(env, name, False) for name in names)


def _folder(env: Mapping[str, str], *names: str) -> Path | None:
    chosen = _first(env, *names)
    return Path(chosen).expanduser().absolute() if chosen else None


def _first(env: Mapping[str, str], *names: str) -> str:
    """The first of some variables that is set and not empty."""
    return next((env[name].strip() for name in names if env.get(name, "").strip()), "")


def _bytes(env: Mapping[str, str], name: str, default: int) -> int:
    """A number of bytes, with K, M or G behind it for their binary multiples."""
    text = env.get(name, "").strip().upper()
    if not text:
        return default
    digits, factor = (text[:-1], _UNITS[text[-1]]) if text[-1] in _UNITS else (text, 1)
    if digits.isdecimal():
        return int(digits) * factor
    raise InputError(f'{name} is "{text}"', place=Place(key=name), remedy="write bytes, or 512M, or 4G")


def _cache_dir(env: Mapping[str, str]) -> Path:
    """An absolute folder, not necessarily there yet."""
    chosen = env.get("TILEC_CACHE_DIR") or env.get("TILELANG_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    caches = _users_caches(env)
    if caches is not None:
        return caches / "tilec"
    raise EnvironmentError_(
        "there is no folder for the compile cache",
        why="HOME is not set, and this user has no home",
        remedy="set TILEC_CACHE_DIR, XDG_CACHE_HOME or HOME to a folder that can be written to",
    )


def stand_in_for_home(env: MutableMapping[str, str] = os.environ) -> None:
    """Names the compile cache as the folder of caches where this user has no home: TVM asks for one when it
    is imported, in this process and in those that it starts."""
    chosen = _folder(env, "TILEC_CACHE_DIR", "TILELANG_CACHE_DIR")
    if chosen is not None and _users_caches(env) is None:
        env["XDG_CACHE_HOME"] = str(chosen)


def _users_caches(env: Mapping[str, str]) -> Path | None:
    """The folder with the caches of this user; None without a home."""
    chosen = env.get("XDG_CACHE_HOME")
    try:
        return Path(chosen) if chosen else Path.home() / ".cache"
    except RuntimeError:
        return None


def zig_cache(env: Mapping[str, str] | None = None) -> Path:
    """The folder where zig keeps what it has compiled, as zig finds it; without a home, in tilec's own, which
    raises EnvironmentError_ where there is none."""
    env = os.environ if env is None else env
    chosen = env.get("ZIG_GLOBAL_CACHE_DIR")
    return Path(chosen) if chosen else (_users_caches(env) or _cache_dir(env)) / "zig"


def _flag(env: Mapping[str, str], name: str, default: bool) -> bool:
    """A yes-or-no variable; unset or empty means the default."""
    text = env.get(name, "").strip().lower()
    if not text:
        return default
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise InputError(f'{name} is "{text}"', place=Place(key=name), remedy="set it to 1 or 0, or unset it")


def _nvrtc(env: Mapping[str, str]) -> str | None:
    """TILEC_NVRTC as a major version."""
    text = env.get("TILEC_NVRTC", "").strip()
    if text in ("", "12", "13"):
        return text or None
    raise InputError(
        f'TILEC_NVRTC is "{text}"', place=Place(key="TILEC_NVRTC"), remedy="set it to 12 or 13, or unset it"
    )


def _jobs(env: Mapping[str, str]) -> int | None:
    """TILEC_JOBS as a positive number."""
    text = env.get("TILEC_JOBS", "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise InputError(
            f'TILEC_JOBS is "{text}"', place=Place(key="TILEC_JOBS"), remedy="set it to a number of processes"
        )
    return int(text)
