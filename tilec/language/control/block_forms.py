"""Branches and loops as context managers: ``T.If`` around ``T.Then`` and ``T.Else``, and ``T.While``."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from tilec.errors import SourceRuntimeError
from tilec.language.control.branches import Branch
from tilec.language.control.while_loops import enter
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.builder import Builder
from tilec.language.values.kernel.places import source_error
from tilec.language.values.value import resolve


class If:
    """``with T.If(cond):`` holds ``with T.Then():`` and perhaps ``with T.Else():``, and nothing else."""

    def __init__(self, cond: Any) -> None:
        self._cond = cond
        self.sides: list[str] = []

    def __enter__(self) -> None:
        builder = sessions.builder("T.If")
        self.branch = Branch(builder, resolve(self._cond))
        builder.open_ifs.append(self)

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        builder = sessions.builder("T.If")
        builder.open_ifs.pop()
        if kind is None and not self.sides:
            raise source_error(
                SourceRuntimeError,
                "T.If without T.Then",
                construct="T.If",
                remedy="put the statements under `with T.Then():` inside it",
            )
        if kind is None:
            self.branch.close()


class _Side:
    """One side of the innermost `If`. A side that is known not to run leaves no statements."""

    name, before = "", ""

    def __enter__(self) -> None:
        self._builder: Builder = sessions.builder(f"T.{self.name}")
        ifs = self._builder.open_ifs
        if not ifs or ifs[-1].sides != ([self.before] if self.before else []):
            place = "T.If" if not self.before else f"T.If, behind T.{self.before}"
            raise source_error(
                SourceRuntimeError,
                f"T.{self.name} stands in no T.If that waits for it",
                construct=f"T.{self.name}",
                remedy=f"put it into `with {place}`",
            )
        ifs[-1].sides.append(self.name)
        runs = ifs[-1].branch.then() if self.name == "Then" else ifs[-1].branch.orelse()
        self._dropped = None if runs else self._builder.push("if")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._dropped is not None and kind is None:
            self._builder.pop(self._dropped)


class Then(_Side):
    """The statements for a condition that holds."""

    name = "Then"


class Else(_Side):
    """The statements for one that does not."""

    name, before = "Else", "Then"


class While:
    """``with T.While(cond):`` repeats its statements; the condition is evaluated again each time."""

    def __init__(self, cond: Any) -> None:
        self._cond = resolve(cond)

    def __enter__(self) -> None:
        builder = self._builder = sessions.builder("T.While")
        self._loop = enter(builder, builder.push("while"), self._cond)
        self._dropped = builder.push("if") if self._loop is None else None

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            return
        if self._dropped is not None:
            self._builder.pop(self._dropped)
        if self._loop is not None:
            self._loop.close()
            self._loop.check_ends()
