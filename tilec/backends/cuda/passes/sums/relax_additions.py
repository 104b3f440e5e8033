"""Additions whose order nobody in their launch can tell ask for none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.statement_roles.boxes.added_boxes import is_add
from tilec.ir.nodes import Atomic, Block, Launch, Stmt, children, walk, with_children
from tilec.ir.traits import buffers
from tilec.lowering.analysis.uses import addressed_in, overlapping
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Var


class RelaxAdditions(LaunchPass):
    """In: additions that release what their thread wrote before. Out: plain ones to tensors with which their
    launch does nothing else than add: nobody in it reads what would tell the order, and the end of a launch
    orders all. A fence for each element takes longer than all additions."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without orders that nobody can tell."""
        released = {stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Atomic) and _releases(stmt)}
        alone = {buffer for buffer in released if _is_added_alone(buffer, launch)}
        return replace(launch, body=_relaxed(launch.body, alone)) if alone else launch


def _releases(stmt: Atomic) -> bool:
    return is_add(stmt) and stmt.order != "relaxed" and stmt.buffer.scope() == "global"


def _is_added_alone(buffer: Var, launch: Launch) -> bool:
    """Whether a launch does nothing else with a tensor than add to it."""
    if buffer in overlapping(launch) | addressed_in(launch.body):
        return False
    touching = [stmt for stmt in walk(launch.body) if any(buffer.same_as(name) for name in buffers(stmt))]
    return all(is_add(stmt) for stmt in touching)


def _relaxed(block: Block, alone: set[Var]) -> Block:
    return tuple(_relaxed_stmt(stmt, alone) for stmt in block)


def _relaxed_stmt(stmt: Stmt, alone: set[Var]) -> Stmt:
    if isinstance(stmt, Atomic):
        return replace(stmt, order="relaxed") if stmt.buffer in alone and is_add(stmt) else stmt
    return with_children(stmt, [_relaxed(inner, alone) for inner in children(stmt)])
