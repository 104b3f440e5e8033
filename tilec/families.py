"""Families of targets: the facts that every layer may ask of one, and the table of those there are.

One object stands for a family (`tilec.backends.cpu.backend`, `tilec.backends.cuda.backend`). It is told in
three steps, each in the lowest layer that asks for it: facts here, what a package holds of it in
`tilec.package.family`, and the way from tile IR to machine code in `tilec.backends.base`. ``import tilec``
provides the families that ship (`tilec.backends`); they are loaded at the first question.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

#: What stands for all families of GPUs in a manifest.
GPU = "gpu"

if TYPE_CHECKING:
    from tilec.errors import Place
    from tilec.portable.devices.base import Device
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

    @property
    def groups(self) -> tuple[str, ...]:
        """What stands for its targets in a manifest beside their names, the narrowest first."""
        return (self.name,) if self.on_host else (self.name, GPU)

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
        """Whether a library for ``host`` may hold code of a target: its devices have a driver there."""
        return self.name not in host.system.lacks

    def device_at(self, number: int) -> Device:
        """One of its devices, there or not, to verify and to measure on."""
        from tilec.portable.devices import open_device

        return open_device(self.device if self.on_host else f"{self.device}:{number}")


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


def class_names() -> dict[str, str]:
    """Where the class of each family is, "module:class" by the family's name, for `register_missing` in
    another process."""
    return {name: f"{type(one).__module__}:{type(one).__qualname__}" for name, one in _table().items()}


def register_missing(names: Mapping[str, str]) -> None:
    """Registers those of `class_names` of another process that this one has not."""
    for name, (module, _, kind) in ((name, where.partition(":")) for name, where in names.items()):
        if name not in _table():
            register(getattr(import_module(module), kind)())


def families() -> tuple[Family, ...]:
    """All families."""
    return tuple(_table().values())


def host_family() -> Family:
    """The family of this machine's cores."""
    return next(each for each in families() if each.on_host)


def family_at(device: str) -> Family:
    """The family of a device: "cpu", "cuda", "cuda:1". Raises ValueError for other texts."""
    return _found(device)[0]


def device_named(text: str) -> Device:
    """The device of a text, as `family_at`, there or not."""
    family, number = _found(text)
    return family.device_at(number)


def _found(text: str) -> tuple[Family, int]:
    """Family and number of a device."""
    from tilec.portable.devices import split_device

    known = {each.device: each for each in sorted(families(), key=lambda each: not each.on_host)}
    kind, number = split_device(text, list(known))
    return known[kind], number


def family_of(target: Target) -> Family:
    """The family of a target."""
    return _table()[target.family]


def _table() -> dict[str, Family]:
    while _SOURCES:
        _SOURCES.pop()()
    return _FAMILIES
