"""A walk over the statements of TIR, for those who write text of them: code generators, and the emulator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from tvm import tirx


class StatementWriter(ABC):
    """Writes statements in order: for each kind of them the method that `_KINDS` names."""

    def stmt(self, stmt: Any) -> None:
        """Writes one statement, whose kind is told by its class."""
        name = _KINDS.get(type(stmt))
        if name is None:
            raise self._refused(stmt)
        getattr(self, name)(stmt)

    @abstractmethod
    def _refused(self, stmt: Any) -> Exception:
        """What is raised for a statement of another kind."""

    @abstractmethod
    def _axis(self, node: Any, extent: Any) -> None:
        """Threads or blocks count from 0 to ``extent`` along an axis of the launch."""

    @abstractmethod
    def _bind(self, stmt: Any) -> None:
        """A name of a value."""

    @abstractmethod
    def _store(self, stmt: Any) -> None:
        """An element gets a value."""

    @abstractmethod
    def _evaluate(self, stmt: Any) -> None:
        """A call for what it does."""

    @abstractmethod
    def _allocate(self, stmt: Any) -> None:
        """An array begins to live."""

    @abstractmethod
    def _declare(self, stmt: Any) -> None:
        """An array lies where a pointer says."""

    @abstractmethod
    def _branch(self, stmt: Any) -> None:
        """One of two sides."""

    @abstractmethod
    def _for(self, stmt: Any) -> None:
        """A loop that counts."""

    @abstractmethod
    def _while(self, stmt: Any) -> None:
        """A loop with a condition."""

    def _sequence(self, stmt: Any) -> None:
        """Statements, one after another."""
        for part in stmt.seq:
            self.stmt(part)

    def _attribute(self, stmt: Any) -> None:
        """An axis of the launch around a statement; other attributes say nothing here."""
        if stmt.attr_key == "thread_extent":
            self._axis(stmt.node, stmt.value)
        self.stmt(stmt.body)


_KINDS = {
    tirx.SeqStmt: "_sequence",
    tirx.AttrStmt: "_attribute",
    tirx.Bind: "_bind",
    tirx.BufferStore: "_store",
    tirx.Evaluate: "_evaluate",
    tirx.AllocBuffer: "_allocate",
    tirx.DeclBuffer: "_declare",
    tirx.IfThenElse: "_branch",
    tirx.For: "_for",
    tirx.While: "_while",
}
