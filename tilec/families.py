"""Families of targets: the facts that every layer may ask of one, and the table of those there are.

One object stands for a family (`tilec.backends.cpu.backend`, `tilec.backends.cuda.backend`). It is told in
three steps, each in the lowest layer that asks for it: facts here, what a package holds of it in
`tilec.package.family`, and the way from tile IR to machine code in `tilec.backends.base`. ``import tilec``
provides the families that ship (`tilec.backends`); they are loaded at the first question.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilec.errors import Place
    from tilec.targets import Host, Target


class Family(ABC):
    """Facts of one family of targets.

    ``name`` is its key in ``[targets]``, what overrides call it, and `Target.family`; ``title`` names it in
    messages, ``word`` its devices; ``device`` is what frameworks call one of them. ``on_host``: its code runs
    on this machine's own cores, from its own memory."""

    name: str
    title: str
    word: str
    device: str
    on_host: bool = False
    example: str

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of its targets, without features."""

    @abstractmethod
    def parse(self, name: str, features: list[str], place: Place | None) -> Target:
        """The target of one of `names` with these features; InputError for a feature that it cannot have."""

    @abstractmethod
    def may_run(self, code: Target, device: Target) -> bool:
        """Whether the device that ``device`` describes runs ``code``; both are of this family."""

    def fits(self, target: Target, host: Host) -> bool:
        """Whether a library for ``host`` may hold code of a target."""
        return True


_FAMILIES: dict[str, Family] = {}
_SOURCES: list[Callable[[], None]] = []


def provide(source: Callable[[], None]) -> None:
    """Has ``source`` register families before the table is used."""
    _SOURCES.append(source)


def register(family: Family) -> None:
    """Adds a family. Families are told in the order in which they were added, those that ship first."""
    _table()[family.name] = family


def forget(family: Family) -> None:
    """Takes a family out again."""
    del _table()[family.name]


def families() -> tuple[Family, ...]:
    """All families."""
    return tuple(_table().values())


def family_at(device: int | None) -> Family:
    """The family of this machine's cores, where ``device`` is None; else of the devices beside it that
    command lines number."""
    return next(each for each in families() if each.on_host is (device is None))


def device_text(device: int | None) -> str:
    """A device as command lines name it: "cpu", "cuda:0"."""
    name = family_at(device).device
    return name if device is None else f"{name}:{device}"


def family_of(target: Target) -> Family:
    """The family of a target."""
    return _table()[target.family]


def _table() -> dict[str, Family]:
    while _SOURCES:
        _SOURCES.pop()()
    return _FAMILIES
