"""How linkers of each system are told what a shared library exports, what it is called and what it leaves
out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilec.systems import LINUX, MACOS, WINDOWS, System


@dataclass(frozen=True)
class SharedLibrary:
    """What is linked: ``path`` of the library, ``loaded`` the name that programs look for, ``exports`` its
    public symbols, ``needs`` other libraries as linkers take them, which are looked for in its own folder."""

    path: Path
    loaded: str
    exports: Sequence[str]
    needs: Sequence[Path] = ()

    @property
    def script(self) -> Path:
        """The file by which a linker of ELF files is told the exports."""
        return self.path.with_name("exports.map")


def link_flags(system: System, wanted: SharedLibrary) -> tuple[str, ...]:
    """The flags, behind the objects, that make a library of them; files that linkers read are written beside
    the library."""
    return _FLAGS[system.name](wanted)


def _elf(wanted: SharedLibrary) -> tuple[str, ...]:
    names = "".join(f"    {name};\n" for name in wanted.exports)
    wanted.script.write_text(f"{{\n  global:\n{names}  local: *;\n}};\n", encoding="utf-8")
    return (
        *(("-Wl,-rpath,$ORIGIN",) if wanted.needs else ()),
        "-Wl,-Bsymbolic",
        "-Wl,-z,nodelete",
        "-Wl,-z,noexecstack",
        "-Wl,-z,relro",
        "-Wl,-z,now",
        "-Wl,--gc-sections",
        "-Wl,--build-id=none",
        f"-Wl,-soname,{wanted.loaded}",
        f"-Wl,--version-script={wanted.script}",
        "-Wl,--as-needed",
        *("-lm", "-ldl", "-lpthread"),
    )


def _mach_o(wanted: SharedLibrary) -> tuple[str, ...]:
    """zig's linker exports what is not hidden, and has no list for it."""
    found = ("-Wl,-rpath,@loader_path",) if wanted.needs else ()
    return (*found, f"-Wl,-install_name,{wanted.loaded}", "-Wl,-dead_strip")


def _pe(wanted: SharedLibrary) -> tuple[str, ...]:
    names = wanted.path.with_name("exports.def")
    names.write_text("EXPORTS\n" + "".join(f"  {name}\n" for name in wanted.exports), encoding="utf-8")
    beside = wanted.path.with_suffix(".lib")
    return (str(names), f"-Wl,--out-implib,{beside}", "-Wl,--gc-sections")


_FLAGS: dict[str, Callable[[SharedLibrary], tuple[str, ...]]] = {
    LINUX.name: _elf,
    MACOS.name: _mach_o,
    WINDOWS.name: _pe,
}
