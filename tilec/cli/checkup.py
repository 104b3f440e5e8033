"""What this machine can build and run: a finding for each thing that tilec uses."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from tilec.backends.base import Backend, backends
from tilec.cache import Store, installed_version
from tilec.cli.printing.output import size_text
from tilec.codegen.linkers import SharedLibrary
from tilec.codegen.toolchain import Toolchain, find_toolchain
from tilec.errors import EnvironmentError_, TilecError
from tilec.portable.loader import LaunchError
from tilec.settings import read_settings
from tilec.systems import LINUX, WINDOWS
from tilec.targets import ARCHS, parse_host

OK, ABSENT, MISSING = "ok", "absent", "missing"
BUILD, RUN, FOREIGN, BESIDE = "build", "run", "run for other hosts", "beside"


@dataclass(frozen=True)
class Finding:
    """``section`` is one of the four above, ``state`` `OK`, `ABSENT` (something that tilec does without) or
    `MISSING` (nothing can be built or run here); ``remedy`` is what to do, empty where nothing is."""

    section: str
    what: str
    state: str
    detail: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """Its fields."""
        return asdict(self)


def findings() -> Iterator[Finding]:
    """All of them, section by section."""
    yield _tried(BUILD, "C compiler", _compiles, MISSING)
    yield _tried(BUILD, "libraries for other hosts", _links_for_others, ABSENT)
    for backend in backends():
        yield _tried(BUILD, f"{backend.title} code", backend.compiler, _weight(backend))
    yield _tried(BUILD, "cache", _cache, MISSING)
    for backend in backends():
        yield _devices(backend)
    yield from _other_hosts()
    yield _disassembler()
    yield _package("torch", "operators of torch, and times beside it", "pip install torch")
    yield _package("jax_tvm_ffi", "functions of JAX", "pip install jax-tvm-ffi")
    yield _package("kernels", "loading what `tilec build --hub` writes", "pip install kernels")


def _weight(backend: Backend) -> str:
    """Without code for CPUs nothing runs on this machine at all."""
    return MISSING if backend.on_host else ABSENT


def _tried(section: str, what: str, attempt: Callable[[], str], otherwise: str) -> Finding:
    """``attempt`` says what there is, or raises what is in its way."""
    try:
        return Finding(section, what, OK, attempt())
    except TilecError as error:
        why = f" ({error.why})" if error.why else ""
        return Finding(section, what, otherwise, f"{error.what}{why}", error.remedy or "")


# ---- building ----


def _compiles() -> str:
    """Name and version of the C compiler, once it has made a library of one function."""
    tools = find_toolchain()
    with tempfile.TemporaryDirectory(prefix="tilec-doctor-") as name:
        folder = Path(name)
        (folder / "one.c").write_text("int one(void);\nint one(void) { return 1; }\n")
        made = tools.compile(folder / "one.c", folder)
        tools.link_shared([made], SharedLibrary(folder / "libone.so", "libone.so", ("one",)))
    return _named(tools)


def _named(tools: Toolchain) -> str:
    version = tools.version()
    return f"zig {version}" if tools.kind == "zig" else version


def _links_for_others() -> str:
    own = find_toolchain().host
    others = [f"{arch}-{LINUX.spelling}" for arch in ARCHS if arch != own.arch]
    others += [f"{own.arch}-{WINDOWS.spelling}", f"{own.arch}-macos"]
    for other in others:
        find_toolchain(parse_host(other))
    return f"{', '.join(others)}, all linked by zig"


def _cache() -> str:
    """Where it is, what it holds and the room that is left, once something has been written there."""
    settings = read_settings()
    if not settings.cache:
        return "not used: TILEC_CACHE says so"
    folder = settings.cache_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder) as probe:
            probe.write(b"x" * 4096)
            probe.flush()
    except OSError as error:
        raise _unwritable(folder, error) from error
    held, free = Store(folder).info(), shutil.disk_usage(folder).free
    return f"{folder}: {held.entries} entries, {size_text(held.size)}; {size_text(free)} are free there"


def _unwritable(folder: Path, error: OSError) -> TilecError:
    return EnvironmentError_(
        f"{folder} cannot be written",
        why=error.strerror or str(error),
        remedy="set TILEC_CACHE_DIR to a folder that can be, or TILEC_CACHE=0",
    )


# ---- running ----


def _devices(backend: Backend) -> Finding:
    what = f"{backend.title} code"
    try:
        found = backend.devices()
    except (TilecError, LaunchError) as error:
        return Finding(RUN, what, _weight(backend), str(error), backend.without_devices)
    if not found:
        return Finding(RUN, what, _weight(backend), f"no {backend.word} here", backend.without_devices)
    return Finding(RUN, what, OK, "; ".join(found))


def _other_hosts() -> Iterator[Finding]:
    """The programs that run libraries of other processors and systems on Linux."""
    own = platform.machine()
    for arch in ARCHS:
        if arch != own:
            yield _program(f"qemu-{arch}", f"{arch} Linux", "apt-get install qemu-user")
    yield _program("wine", "Windows", "apt-get install wine64")


def _program(name: str, what: str, remedy: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(FOREIGN, what, ABSENT, f"{name} is not on PATH", remedy)
    return Finding(FOREIGN, what, OK, path)


# ---- beside ----


def _disassembler() -> Finding:
    from tilec.inprocess.sass import disassembler

    return _tried(BESIDE, "SASS of CUDA code", lambda: str(disassembler()), ABSENT)


def _package(name: str, what: str, remedy: str) -> Finding:
    if find_spec(name) is None:
        return Finding(BESIDE, what, ABSENT, f"{name} is not installed", remedy)
    return Finding(BESIDE, what, OK, f"{name} {installed_version(name)}")


def settings_in_use() -> dict[str, str]:
    """The variables of the environment that tilec reads, as they are set."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith("TILEC_")}
