"""Operating systems that libraries are built for: how hosts, compilers and files spell them, and whose
drivers they have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class System:
    """``spelling`` is the middle of a host's name, in front of a version where ``versions`` has any; those
    are of what a library needs at least, the first one the ``default``, and ``versioned`` says of what.
    ``zig`` and ``llvm`` are triples over ``arch`` and ``version``. ``library`` and ``archive`` are names of
    files over ``name``, ``loaded`` what programs look for at run time over ``name`` and ``abi``; ``beside``
    is what a linker takes in place of a library, where that is another file; ``libraries`` are what a program
    with the archive is linked with. ``lacks`` are the families whose devices have no driver there."""

    name: str
    title: str
    spelling: str
    versions: tuple[str, ...]
    zig: str
    llvm: str
    library: str
    loaded: str
    archive: str
    beside: str
    versioned: str
    libraries: tuple[str, ...]
    lacks: frozenset[str]

    @property
    def default(self) -> str:
        """The oldest version, which hosts without one stand for; empty where there are none."""
        return self.versions[0] if self.versions else ""

    @property
    def example(self) -> str:
        """What follows the architecture in a host."""
        return f"{self.spelling}.{self.default}" if self.versions else self.spelling


#: glibc: from the first one with aarch64 and clocks without librt on, to what linkers may know in years.
LINUX = System(
    name="linux",
    title="Linux",
    spelling="linux-gnu",
    versions=tuple(f"2.{minor}" for minor in range(17, 61)),
    zig="{arch}-linux-gnu.{version}",
    llvm="{arch}-unknown-linux-gnu",
    library="lib{name}.so",
    loaded="lib{name}.so.{abi}",
    archive="lib{name}.a",
    beside="",
    versioned="a glibc",
    libraries=("pthread", "dl", "m"),
    lacks=frozenset({"metal"}),
)
#: The oldest macOS that zig's headers and stubs are complete for, and on.
MACOS = System(
    name="macos",
    title="macOS",
    spelling="macos",
    versions=tuple(map(str, range(12, 41))),
    zig="{arch}-macos.{version}.0",
    llvm="{arch}-apple-macosx{version}.0.0",
    library="lib{name}.dylib",
    loaded="@rpath/lib{name}.dylib",
    archive="lib{name}.a",
    beside="",
    versioned="a version",
    libraries=(),
    lacks=frozenset({"cuda", "hip"}),
)
WINDOWS = System(
    name="windows",
    title="Windows",
    spelling="windows",
    versions=(),
    zig="{arch}-windows-gnu",
    llvm="{arch}-w64-windows-gnu",
    library="{name}.dll",
    loaded="{name}.dll",
    archive="lib{name}.a",
    beside="{name}.lib",
    versioned="",
    libraries=(),
    lacks=frozenset({"hip", "metal"}),
)
SYSTEMS = (LINUX, MACOS, WINDOWS)
