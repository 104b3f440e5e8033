"""Rewrites of the loops that a thread runs by itself."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilec.ir.nodes import For, Parallel
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import overlapping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilec.ir.nodes import Kernel, Launch, Stmt


class OwnLoops(ScopedRewrite):
    """Rewrites the loops inside of a Parallel's iteration, and all loops of a launch whose threads are
    named. ``overlapping``: the tensors that others may share memory with; ``in_iteration``: whether one
    iteration runs what stands here."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.overlapping = overlapping(launch)
        self.in_iteration = False
        for var, extent in zip(launch.thread_vars, launch.threads, strict=False):
            self.facts.bind_range(var, 0, extent)

    def loop(self, loop: For) -> list[Stmt] | None:
        """What a loop becomes; None for itself over rewritten blocks."""
        raise NotImplementedError

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A loop of one thread as `loop` has it."""
        if isinstance(stmt, Parallel):
            with self._iteration():
                return super().stmt(stmt)
        is_own = self.in_iteration or bool(self.launch.thread_vars)
        made = self.loop(stmt) if is_own and isinstance(stmt, For) else None
        return super().stmt(stmt) if made is None else made

    @contextmanager
    def _iteration(self) -> Iterator[None]:
        before, self.in_iteration = self.in_iteration, True
        yield
        self.in_iteration = before
