"""Types of options that more than one command takes."""

from __future__ import annotations

from collections.abc import Mapping

import click


class Dims(click.ParamType):  # type: ignore[type-arg]
    """``M=17,N=64`` as a dict. ``least``: what each may be at least."""

    name = "M=17,N=64"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Mapping[str, int]:
        """The dims by name."""
        pairs = [part.partition("=") for part in str(value).split(",")]
        if not all(equals and number.removeprefix("-").isdecimal() for _, equals, number in pairs):
            self.fail(f"{value!r} is not of the form {self.name}", param, ctx)
        dims = {name.strip(): int(number) for name, _, number in pairs}
        if len(dims) < len(pairs):
            self.fail(f"{value!r} gives a dim twice", param, ctx)
        small = next((name for name, given in dims.items() if given < self._least), None)
        if small is not None:
            self.fail(f"{small} is {dims[small]}; it must be {self._least} or more", param, ctx)
        return dims


class Device(click.ParamType):  # type: ignore[type-arg]
    """``cpu``; ``cuda`` and ``cuda:0`` as the latter."""

    name = "DEVICE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The device as results name it."""
        from tilec.families import device_named

        try:
            return str(device_named(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)
