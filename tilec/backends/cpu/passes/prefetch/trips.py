"""Loops whose trips ask for what later ones read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from tilec.ir.nodes import Block, For, Launch, Pipelined, walk
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True, eq=False)
class Trips(ABC):
    """A loop, and the names that stand for values."""

    loop: For | Pipelined
    names: dict[Var, Expr]

    @abstractmethod
    def asking(self) -> For | Pipelined:
        """The loop, whose fills ask ahead."""


class AskInTrips(LaunchPass):
    """A pass that makes loops ask ahead, each by its ``trips``."""

    trips: ClassVar[type[Trips]]

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops asking ahead."""
        names = values_of(walk(launch.body))

        def asking(block: Block) -> Block:
            return tuple(
                self.trips(stmt, names).asking() if isinstance(stmt, (For, Pipelined)) else stmt
                for stmt in block
            )

        return replace(launch, body=rewrite_blocks(launch.body, asking))
