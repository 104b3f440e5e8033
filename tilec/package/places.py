"""Where the library of each host lies in a package: in ``lib`` where there is one host, else in a folder for
each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilec.package.model import PackageSpec
from tilec.targets import Host

ABI_VERSION = 1


@dataclass(frozen=True)
class Place:
    """The files of the library ``name`` for one host, by their paths in the package."""

    name: str
    host: Host
    folder: str

    @property
    def library(self) -> str:
        """The shared library."""
        return f"{self.folder}/{self.host.system.library.format(name=self.name)}"

    @property
    def linked(self) -> str:
        """What a linker takes for the shared library: itself, or an import library."""
        beside = self.host.system.beside.format(name=self.name)
        return f"{self.folder}/{beside}" if beside else self.library

    @property
    def archive(self) -> str:
        """The static library."""
        return f"{self.folder}/{self.host.system.archive.format(name=self.name)}"

    @property
    def loaded(self) -> str:
        """The name that programs which are linked with the library look for."""
        return loaded_name(self.name, self.host)

    @property
    def beside(self) -> tuple[str, ...]:
        """Files that are found in place of the library: by the dynamic linker of Linux its SONAME, by linkers
        of Windows the import library."""
        alias = (
            self.linked if self.linked != self.library else f"{self.folder}/{self.loaded.rpartition('/')[2]}"
        )
        return () if alias == self.library else (alias,)


def loaded_name(name: str, host: Host) -> str:
    """What programs that are linked with a library look for."""
    return host.system.loaded.format(name=name, abi=ABI_VERSION)


def places(specs: Sequence[PackageSpec]) -> tuple[Place, ...]:
    """Of the libraries of a package, which are one for each host."""
    alone = len(specs) == 1
    return tuple(Place(each.name, each.host, "lib" if alone else f"lib/{each.host.folder}") for each in specs)
