"""Fragments from registers to tensor memory and back, and the waits and meetings that this needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.backends.cuda.nodes import TensorCommit, TensorPut, TensorSums, TensorTile
from tilec.backends.cuda.statement_roles.tensor_memory.tensor_places import (
    BOTH,
    MEMORY,
    REGISTERS,
    ZERO,
    State,
)
from tilec.ir.nodes import Fill, Stmt, Store
from tilec.ir.nodes.barriers import SCOPE, Group, WaitPhase
from tilec.ir.nodes.threads import Sync

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.backends.cuda.statement_roles.tensor_memory.held_fragments import HeldFragments


def by_one_warp(*block: Stmt) -> Group:
    """Statements of the warp that issues products. Others do not wait for stages: the next ones could come
    before a late one has looked."""
    return Group(0, WARP, block)


class Moves:
    """Of what ``held`` says of a launch. ``memory`` has the address of its tensor memory, ``done`` is the
    barrier of its products, ``parity`` each thread's phase of that."""

    def __init__(self, held: HeldFragments) -> None:
        self._held = held
        self.done = tirx.decl_buffer((1,), "uint64", name="sums_done", scope=SCOPE)
        self.parity = tirx.decl_buffer((1,), "int32", name="sums_round", scope="local.var")
        self.memory = tirx.decl_buffer((1,), "uint32", name="tensor_memory", scope=SCOPE)

    def loaded(self, fragment: Var, state: State) -> list[Stmt]:
        """A fragment in registers."""
        place = state.places.get(fragment)
        if place == ZERO:
            state.places[fragment] = REGISTERS
            return [Fill(whole_tile(fragment), tirx.const(0, str(fragment.dtype)))]
        if place != MEMORY:
            return []
        made = self.settled(state) if fragment in state.busy else []
        state.places[fragment] = BOTH
        state.touched.add(fragment)
        return [*made, TensorSums(whole_tile(fragment), *self._where(fragment))]

    def put(self, fragment: Var, state: State) -> list[Stmt]:
        """A fragment in tensor memory."""
        made = self.loaded(fragment, state) if state.places.get(fragment) == ZERO else []
        if state.places.get(fragment) != REGISTERS:
            return made
        if fragment in state.busy:
            made += self.settled(state)
        state.places[fragment] = BOTH
        state.touched.add(fragment)
        return [*made, TensorPut(whole_tile(fragment), *self._where(fragment))]

    def _where(self, fragment: Var) -> tuple[TensorTile, Var, int]:
        return self._held.fragments[fragment], self.memory, self._held.columns[fragment]

    def settled(self, state: State) -> list[Stmt]:
        """A wait for all products so far. Threads meet between two of them: a late one has to find the
        phase."""
        if not state.busy:
            return []
        zero = tirx.const(0, "int32")
        round_ = tirx.BufferLoad(self.parity, [zero])
        made = self.met(state) if state.waited else []
        state.busy, state.waited = set(), True
        return [
            *made,
            by_one_warp(TensorCommit(self.done, zero, ())),
            WaitPhase(self.done, zero, round_),
            Store(self.parity, (zero,), tirx.bitwise_xor(round_, tirx.const(1, "int32"))),
        ]

    def met(self, state: State) -> list[Stmt]:
        """Threads meet, where they have done something in tensor memory or waited for it."""
        if not state.touched and not state.waited:
            return []
        state.touched, state.waited = set(), False
        return [Sync("threads")]

    def brought(self, state: State, places: dict[Var, str]) -> list[Stmt]:
        """Fragments where other ways have them that meet this one."""
        made: list[Stmt] = []
        for fragment, place in places.items():
            own = state.places.get(fragment, place)
            if own != place and place == MEMORY:
                made += self.put(fragment, state)
            elif own != place:
                made += self.loaded(fragment, state)
        return made
