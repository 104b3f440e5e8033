"""The CUDA compilers: NVRTC from PyPI, loaded into this process, or an nvcc named by TILEC_NVCC.

The default is NVRTC 12.9, the last of CUDA 12: its cubins load on every driver since 12.0 (the first with
cuLibrary), while those of NVRTC 13 shut out all drivers before 13.0. An installed NVRTC 13 serves where 12 is
missing, and for targets that 12 does not know. PTX needs a driver as new as the compiler, whichever it is.
docs/performance/builds.md has both measured.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Protocol

from tilec.codegen.apart import Died, apart
from tilec.disk import compilers_folders, full_disk, full_disks_said, says_full
from tilec.errors import CompileError, EnvironmentError_, InputError
from tilec.ir.nvcc_flags import device_flags
from tilec.settings import read_settings

_ERROR_LINES = 30
_REMEDY = "pip install 'tilec[cuda]', or set TILEC_NVCC to an nvcc"
#: By major version, preferred first: the folder of the wheel's package, the library.
_NVRTC_PLACES = {
    "12": ("nvidia.cuda_nvrtc", "lib/libnvrtc.so.12"),
    "13": ("nvidia", "cu13/lib/libnvrtc.so.13"),
}
#: The package that brings each.
_WHEELS = {"12": "nvidia-cuda-nvrtc-cu12", "13": "nvidia-cuda-nvrtc"}
#: Float32 division and square root by the approximate instructions, which are off by at most 2 ulp over the
#: full range (PTX ISA, div.full and sqrt.approx); exact ones call a subroutine.
_OPTIONS = ("-std=c++17", "--prec-div=false", "--prec-sqrt=false", "--ptxas-options=-v")
#: NVRTC keeps what it made in the driver's cache on disk, where there is a driver; a hit comes without the
#: assembler's report; tilec has a cache of its own. 12.9 and later were seen to know the option.
_WITHOUT_CACHE, _FIRST_WITH_CACHE = "--no-cache", (12, 9)
_INVALID_OPTION = 5  # NVRTC_ERROR_INVALID_OPTION
_CAPABILITY = re.compile(r"_(\d+)")


@dataclass(frozen=True)
class Compiled:
    """``code`` is a cubin, or PTX that ends with a NUL; ``log`` holds the assembler's report on a cubin."""

    code: bytes
    log: str


class CudaCompiler(Protocol):
    """What makes machine code of CUDA C++."""

    @property
    def kind(self) -> str:
        """The tool: "nvrtc" or "nvcc"."""

    @property
    def version(self) -> tuple[int, int]:
        """(major, minor) of its CUDA toolkit."""

    def compile(self, source: str, arch: str, flags: Sequence[str] = ()) -> Compiled:
        """A cubin for ``sm_<n>``, PTX for ``compute_<n>``. ``flags`` are the author's; those that say nothing
        of device code mean nothing (`tilec.ir.nvcc_flags`). CompileError with the compiler's words."""


def describe(compiler: CudaCompiler) -> str:
    """Name and version: "nvrtc 12.9"."""
    return f"{compiler.kind} {compiler.version[0]}.{compiler.version[1]}"


def find_compiler(arch: str | None = None) -> CudaCompiler:
    """The nvcc in TILEC_NVCC if it is set, else an installed NVRTC that knows ``arch`` ("sm_90a"), of the
    version in TILEC_NVRTC if that is set. EnvironmentError_ when there is none."""
    chosen = read_settings()
    if chosen.nvcc:
        return _nvcc(chosen.nvcc)
    return _nvrtc(chosen.nvrtc) if arch is None else _nvrtc_for(arch, chosen.nvrtc)


# ---- NVRTC ----


class Nvrtc:
    """libnvrtc in this process; safe to use from several threads."""

    kind = "nvrtc"

    def __init__(self, path: Path) -> None:
        try:
            # NVRTC opens its builtins by their name alone, and 13 does not look beside itself.
            for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins))
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise EnvironmentError_(
                f"{path} cannot be loaded", why=str(error), remedy=f"reinstall it: {_REMEDY}"
            ) from error
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "")
        self.version = (major.value, minor.value)

    def knows(self, arch: str) -> bool:
        """Whether it compiles for "sm_<n>" or "compute_<n>"."""
        return _CAPABILITY.findall(arch) in [[str(known)] for known in self._capabilities]

    @cached_property
    def _capabilities(self) -> list[int]:
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "")
        known = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(known), "")
        return list(known)

    def compile(self, source: str, arch: str, flags: Sequence[str] = ()) -> Compiled:
        """As `CudaCompiler.compile`."""
        chosen = list(device_flags(flags).kept)
        if self.version >= _FIRST_WITH_CACHE and _WITHOUT_CACHE not in chosen:
            chosen.append(_WITHOUT_CACHE)
        given = (f"--gpu-architecture={arch}", *_own_options(chosen), *chosen)
        try:
            return apart(partial(self._compiled, source, arch, given, flags))
        except Died as problem:
            raise CompileError(
                f"{describe(self)} crashed",
                why=f"it was ended by {problem} while it compiled for {arch}: a defect of that compiler",
                remedy=_another(self),
            ) from problem

    def _compiled(self, source: str, arch: str, given: Sequence[str], flags: Sequence[str]) -> Compiled:
        """By the options ``given``, of which ``flags`` are the author's."""
        program = ctypes.c_void_p()
        library = self._library
        self._check(
            library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None),
            "",
        )
        try:
            options = [option.encode() for option in given]
            array = (ctypes.c_char_p * len(options))(*options)
            status = library.nvrtcCompileProgram(program, len(options), array)
            log = self._text(program, "ProgramLog").decode(errors="replace").rstrip("\0")
            if status == _INVALID_OPTION:
                raise _refused_flags("NVRTC", log, flags)
            self._check(status, log)
            return Compiled(self._text(program, "CUBIN" if arch.startswith("sm_") else "PTX"), log)
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(self._library[f"nvrtcGet{what}Size"](program, ctypes.byref(size)), "")
        text = ctypes.create_string_buffer(size.value)
        self._check(self._library[f"nvrtcGet{what}"](program, text), "")
        return text.raw

    def _check(self, status: int, log: str) -> None:
        if status == 0:
            return
        name = self._library.nvrtcGetErrorString(status).decode()
        raise _refused("NVRTC", log or name)


def _another(compiler: CudaCompiler) -> str:
    """What to try where a version of NVRTC crashes."""
    for major, wheel in _WHEELS.items():
        if int(major) != compiler.version[0]:
            return f"pip install {wheel} and set TILEC_NVRTC={major}, or set TILEC_NVCC to an nvcc"
    return "set TILEC_NVCC to an nvcc"


@lru_cache(maxsize=4)
def _nvrtc(major: str | None = None) -> Nvrtc:
    for path in _nvrtc_paths(major):
        if path.exists():
            return Nvrtc(path)
    if major is None:
        raise EnvironmentError_("no CUDA compiler: NVRTC is not installed", remedy=_REMEDY)
    raise EnvironmentError_(
        f"no CUDA compiler: TILEC_NVRTC asks for NVRTC {major}, which is not installed",
        remedy=f"pip install {_WHEELS[major]}, or unset TILEC_NVRTC",
    )


def _nvrtc_for(arch: str, major: str | None) -> Nvrtc:
    first = _nvrtc(major)
    if first.knows(arch):
        return first
    others = (_nvrtc(known) for known in _NVRTC_PLACES if major is None and _is_installed(known))
    found = next((other for other in others if other.knows(arch)), None)
    if found is not None:
        return found
    newest = list(_WHEELS.values())[-1]
    raise EnvironmentError_(
        f"no CUDA compiler for {arch}: {describe(first)} does not know it",
        remedy=f"pip install {newest}" + (", and unset TILEC_NVRTC" if major else ""),
    )


def _is_installed(major: str) -> bool:
    return any(path.exists() for path in _nvrtc_paths(major))


def _nvrtc_paths(major: str | None) -> list[Path]:
    places = [place for known, place in _NVRTC_PLACES.items() if major in (None, known)]
    return [Path(root, file) for package, file in places for root in _package_folders(package)]


def _package_folders(package: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return []
    return list(spec.submodule_search_locations or ()) if spec is not None else []


# ---- nvcc ----


@dataclass(frozen=True)
class Nvcc:
    """An nvcc command."""

    command: tuple[str, ...]
    version: tuple[int, int]
    kind: str = "nvcc"

    def compile(self, source: str, arch: str, flags: Sequence[str] = ()) -> Compiled:
        """As `CudaCompiler.compile`."""
        cubin = arch.startswith("sm_")
        room = full_disks_said("compiling for CUDA", Path(tempfile.gettempdir()))
        with room, tempfile.TemporaryDirectory() as folder:
            Path(folder, "kernel.cu").write_text(source, encoding="utf-8")
            chosen = device_flags(flags).kept
            own = _own_options(chosen)
            kind = ["--cubin", *own] if cubin else ["--ptx", *own[:-1]]
            command = [
                *self.command,
                f"--gpu-architecture={arch}",
                *kind,
                *chosen,
                "-o",
                "kernel.out",
                "kernel.cu",
            ]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            log = done.stdout + done.stderr
            if done.returncode != 0 and flags and "nvcc fatal" in log:
                raise _refused_flags("nvcc", log, flags)
            if done.returncode != 0 and says_full(log):
                raise full_disk("compiling for CUDA", compilers_folders(), says_full(log))
            if done.returncode != 0:
                raise _refused("nvcc", log)
            code = Path(folder, "kernel.out").read_bytes()
        return Compiled(code if cubin else code + b"\0", log)


@lru_cache(maxsize=1)
def _nvcc(text: str) -> Nvcc:
    command = tuple(shlex.split(text))
    if shutil.which(command[0]) is None:
        raise EnvironmentError_(
            f"no CUDA compiler: {command[0]!r} is not on PATH",
            remedy="set TILEC_NVCC to an nvcc, or unset it to use NVRTC",
        )
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release (\d+)\.(\d+)", said)
    if found is None:
        raise EnvironmentError_(
            f"TILEC_NVCC={text} is no nvcc", why="its --version names no release", remedy="set it to an nvcc"
        )
    return Nvcc(command, (int(found[1]), int(found[2])))


def _own_options(flags: Sequence[str]) -> tuple[str, ...]:
    """tilec's options, but for those that the author chooses otherwise."""
    chosen = {flag.partition("=")[0] for flag in flags} - {"--ptxas-options"}
    return tuple(option for option in _OPTIONS if option.partition("=")[0] not in chosen)


def _refused_flags(compiler: str, log: str, flags: Sequence[str]) -> InputError:
    return InputError(
        f"{compiler} does not take the compile flags {' '.join(flags)}",
        why="\n".join(log.strip().splitlines()[:_ERROR_LINES]),
        remedy="correct compile_flags, tl.device_compile_flags or T.annotate_compile_flags",
    )


def _refused(compiler: str, log: str) -> CompileError:
    """``why`` begins with the first error of the log: warnings stand in front of it."""
    lines = log.strip().splitlines()
    said = (at for at, line in enumerate(lines) if " error:" in line or line.startswith("ptxas fatal"))
    first = next(said, 0)
    return CompileError(
        f"{compiler} refused generated code",
        why="\n".join(lines[first : first + _ERROR_LINES]),
        remedy="`tilec explain --stage source` shows what was compiled; this is a defect of tilec",
    )
