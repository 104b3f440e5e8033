"""Names that exist and are not offered, so that a module with an unused branch still imports."""

from __future__ import annotations

from typing import Any, NoReturn

from tilec.language.values.kernel.places import unsupported


class Refusal:
    """A name that raises `UnsupportedError` when it is called, entered, subscripted or asked for more.
    ``remedy``: what to do instead."""

    def __init__(self, name: str, remedy: str) -> None:
        self._name, self.remedy = name, remedy

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise unsupported(self._name, remedy=self.remedy)

    __call__ = __getitem__ = __enter__ = _refuse

    def __exit__(self, *_args: Any) -> None:
        """Never reached: entering raises."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self._name}, not supported>"


class RefusedImport(Refusal):
    """Such a name of a module: what a file says of it at its top level passes, attributes and subclasses."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return RefusedImport(f"{self._name}.{name}", self.remedy)

    def __mro_entries__(self, _bases: tuple[object, ...]) -> tuple[type, ...]:
        """Classes may derive from it; they are not used either."""
        return (object,)
