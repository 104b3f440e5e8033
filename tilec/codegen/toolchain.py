"""The C compiler and linker: zig from the ziglang package, or the command in TILEC_CC, or `cc`.

zig carries its own headers and stubs of every glibc, so it cross-compiles and sets a glibc floor; a system
compiler links against the glibc of this machine, which its libraries need, and builds for this machine only.

The same inputs give the same bytes: no build id, no debug information, no folder names, archives without
dates or owners.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from tilec.cache import digest, installed_version
from tilec.codegen.link_lines import LINKER, LinkLine, keep_line, known_line, says_none
from tilec.codegen.linkers import SharedLibrary, link_flags
from tilec.disk import compilers_folders, full_disk, says_full, seems_full
from tilec.errors import CompileError, EnvironmentError_, PackageError, TilecError
from tilec.settings import read_settings, zig_cache
from tilec.systems import LINUX
from tilec.targets import Host, native_host

#: -mcpu=baseline (zig) keeps the build machine's instructions out of plain C.
_C_FLAGS = (
    "-std=gnu11",
    "-ffp-contract=off",
    "-O2",
    "-g0",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffunction-sections",
    "-fdata-sections",
    "-Wall",
    "-Wextra",
)
_LINK_FLAGS = ("-shared", "-O2", "-g0", "-s")
#: A system compiler's start files would run code when the library is loaded; zig links none.
_SYSTEM_LINK_FLAGS = ("-nostartfiles",)
_ERROR_LINES = 20
#: What makes machine code beside the C compiler: names in the provenance, and distributions.
_PACKAGES = {"tilec": "tilec", "tvm": "apache-tvm"}


@dataclass(frozen=True)
class Toolchain:
    """A C compiler driver for one host. ``kind`` is "zig" or "cc"; ``driver`` and ``archiver`` are argument
    lists that the flags follow; ``host`` is what its libraries run on."""

    kind: str
    driver: tuple[str, ...]
    archiver: tuple[str, ...]
    host: Host

    def compile(
        self,
        source: Path,
        out_dir: Path,
        *,
        include: Sequence[Path] = (),
        flags: Sequence[str] = (),
    ) -> Path:
        """Compiles a C file to ``out_dir/<stem>.o``. Raises CompileError with the compiler's words."""
        out_dir.mkdir(parents=True, exist_ok=True)
        target = out_dir / f"{source.stem}.o"
        folders = [argument for folder in include for argument in ("-I", str(folder))]
        prefix = f"-ffile-prefix-map={source.parent}=."
        wanted = (*flags, "-c", str(source), "-o", str(target))
        _compile([*self.driver, *_C_FLAGS, prefix, *folders, *wanted], source)
        return target

    def llvm_text(self, source: Path, flags: Sequence[str] = ()) -> str:
        """The LLVM IR of a C file. Raises CompileError with the compiler's words."""
        target = source.with_suffix(".ll")
        wanted = ("-S", "-emit-llvm", str(source), "-o", str(target))
        _compile([*self.driver, *_C_FLAGS, *flags, *wanted], source)
        return target.read_text()

    def link_shared(self, objects: Sequence[Path], wanted: SharedLibrary) -> None:
        """Links a shared library; libraries of the system that nothing uses are not recorded as needed.
        Raises PackageError with the linker's words."""
        wanted.path.parent.mkdir(parents=True, exist_ok=True)
        command = [
            *self.driver,
            *_LINK_FLAGS,
            *(() if self.kind == "zig" else _SYSTEM_LINK_FLAGS),
            *("-o", str(wanted.path)),
            *map(str, (*objects, *wanted.needs)),
            *link_flags(self.host.system, wanted),
        ]
        if not (self._is_learnt(wanted) and self._link_seen(command, objects, wanted)):
            _run(command, f"linking {wanted.path.name} failed", PackageError)

    def _link_seen(self, command: Sequence[str], objects: Sequence[Path], wanted: SharedLibrary) -> bool:
        """Whether zig's linker alone, as its driver has been seen to call it, has made the library, or the
        driver while it is seen; why neither has, the driver says when it is asked again."""
        key, what = self._link_key, f"linking {wanted.path.name} failed"
        line = known_line(key)
        alone = () if line is None else (*self._zig, LINKER, *line.arguments(objects, wanted))
        if alone and _ran(alone, what).returncode == 0:
            return True
        if says_none(key):
            return False
        done = _ran([*command, "-v"], what)
        if done.returncode == 0:
            keep_line(key, LinkLine.said(done.stderr, objects, wanted))
        return done.returncode == 0

    def _is_learnt(self, wanted: SharedLibrary) -> bool:
        """Whether a library is linked as others are, by the linker that zig calls for ELF files."""
        return self.kind == "zig" and self.host.system == LINUX and not wanted.needs

    @property
    def _link_key(self) -> str:
        return digest(*self.driver, self.version(), *_LINK_FLAGS, str(zig_cache()))

    @property
    def _zig(self) -> tuple[str, ...]:
        """zig's command, without that of its compiler."""
        return self.driver[: self.driver.index("cc")]

    def archive(self, objects: Sequence[Path], output: Path) -> None:
        """Writes a static archive of ``objects`` without dates or owners."""
        output.parent.mkdir(parents=True, exist_ok=True)
        output.unlink(missing_ok=True)
        command = [*self.archiver, "rcsD", str(output), *map(str, objects)]
        _run(command, f"archiving {output.name} failed", PackageError)

    def version(self) -> str:
        """zig's version, or the line that names another compiler and its version."""
        if self.kind == "zig":
            return _zig_version(self._zig)
        lines = _run([*self.driver, "--version"], "the C compiler does not run", EnvironmentError_)
        return lines.splitlines()[0]

    def stamp(self) -> tuple[str, ...]:
        """What decides, beside the text and its flags, which object comes of a C file."""
        return (*self.driver, self.version(), *_C_FLAGS)


def find_toolchain(host: Host | None = None) -> Toolchain:
    """The toolchain that builds for ``host`` (default: this machine). TILEC_CC wins, then ziglang, then `cc`;
    the host of one that is no zig names the glibc of this machine where that is newer.
    Raises EnvironmentError_ when there is none, or none that builds for ``host``."""
    host = host or native_host()
    chosen = tuple(shlex.split(read_settings().cc or ""))
    if chosen and _is_zig(chosen):
        return _zig_toolchain(chosen[:-1], host)
    if chosen:
        return _system_toolchain(chosen, host)
    zig = _find_zig()
    if zig is not None:
        return _zig_toolchain((str(zig),), host)
    return _system_toolchain(("cc",), host)


def zig_is_new_here() -> bool:
    """Whether zig will do the linking and has not run on this machine yet: it then compiles what it links
    with, which takes seconds, into a cache of its own."""
    try:
        kind = find_toolchain().kind
    except TilecError:  # whoever needs one says so
        return False
    return kind == "zig" and not (zig_cache() / "o").is_dir()


def tool_versions(host: Host | None = None) -> dict[str, str]:
    """Name and version of what decides the bytes of a library for ``host``: tilec, TVM, "zig" or "cc".
    Raises as `find_toolchain` does."""
    tools = find_toolchain(host)
    versions = {name: installed_version(package) for name, package in _PACKAGES.items()}
    return {**{name: known or "unknown" for name, known in versions.items()}, tools.kind: tools.version()}


def _find_zig() -> Path | None:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        return None
    zig = Path(next(iter(spec.submodule_search_locations))) / "zig"
    return zig if zig.exists() else None


@lru_cache(maxsize=8)
def _zig_version(command: tuple[str, ...]) -> str:
    """Of ziglang as installed; another zig is asked."""
    known = installed_version("ziglang") if command == (str(_find_zig()),) else None
    return known or _run([*command, "version"], "zig does not run", EnvironmentError_).strip()


def _is_zig(command: tuple[str, ...]) -> bool:
    """Whether a command is `zig cc` or `python -m ziglang cc`, which must be told the target."""
    return command[-1] == "cc" and (Path(command[0]).name == "zig" or "ziglang" in command)


def _zig_toolchain(zig: tuple[str, ...], host: Host) -> Toolchain:
    driver = (*zig, "cc", "-target", host.linker_triple, "-mcpu=baseline")
    return Toolchain("zig", driver, (*zig, "ar"), host)


def _system_toolchain(driver: tuple[str, ...], host: Host) -> Toolchain:
    remedy = "pip install ziglang, or set TILEC_CC to a C compiler"
    if shutil.which(driver[0]) is None:
        raise EnvironmentError_(f"no C compiler: {driver[0]!r} is not on PATH", remedy=remedy)
    if (host.arch, host.system) != (native_host().arch, native_host().system):
        raise EnvironmentError_(
            f"{driver[0]!r} builds for this machine, not for {host.triple}",
            why="only zig cross-compiles without further installation",
            remedy="pip install ziglang and leave TILEC_CC unset",
        )
    archiver = shutil.which("ar")
    if archiver is None:
        raise EnvironmentError_("no archiver: 'ar' is not on PATH", remedy=remedy)
    return Toolchain("cc", driver, (archiver,), Host(host.arch, _newer(host.version, _own_glibc())))


def _own_glibc() -> str:
    """The glibc of this machine: "2.36"."""
    return (os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0.0").removeprefix("glibc ")


def _newer(*versions: str) -> str:
    return max(versions, key=lambda version: tuple(map(int, version.split("."))))


def _compile(command: list[str], source: Path) -> None:
    _run(command, f"compiling {source.name} failed", CompileError)


def _written_folders(command: Sequence[str]) -> list[Path]:
    """Those of its output and of what it keeps meanwhile."""
    outputs = [Path(after).parent for flag, after in pairwise(command) if flag == "-o"]
    return [*outputs, *compilers_folders()]


def _ran(command: Sequence[str], what: str) -> subprocess.CompletedProcess[str]:
    """What has come of a command. Raises EnvironmentError_ where there is no such program."""
    try:
        env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(zig_cache())}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    except OSError as problem:
        raise EnvironmentError_(what, why=str(problem), remedy="reinstall the C compiler") from problem


def _run(command: list[str], what: str, error: type[TilecError]) -> str:
    """Runs ``command`` and returns its output; raises ``error`` with the last lines of it on failure."""
    done = _ran(command, what)
    if done.returncode != 0:
        lines, folders = (done.stderr or done.stdout).strip().splitlines(), _written_folders(command)
        said = says_full(done.stderr + done.stdout) if lines else seems_full(folders)
        if said:
            raise full_disk(what.removesuffix(" failed"), folders, said)
        why = "\n".join(lines[-_ERROR_LINES:]) or f"it said nothing; its status was {done.returncode}"
        raise error(what, why=why, remedy=f"the command was: {shlex.join(command)}")
    return done.stdout
