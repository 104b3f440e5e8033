"""An element that the trips of a thread's loop update is a variable of the thread while the loop runs.

for k in range(64): s[i] = s[i] + A[i, k]
->
v = s[i]; for k in range(64): v = v + A[i, k]
s[i] = v

Each trip would wait for what the one in front has stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.trips.own_loops import OwnLoops
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.exprs import inlined, int_value, reads, same_all, transform, uses
from tilec.ir.nodes import Alloc, Block, For, If, Kernel, Launch, Stmt, Store, walk
from tilec.ir.traits import defined, expressions
from tilec.lowering.analysis.accesses import Access, accesses, values_of
from tilec.lowering.analysis.distinct import distinct
from tilec.lowering.analysis.uses import addressed_in
from tilec.lowering.emission.access import bounds_to_test
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

_MEMORY = ("global", "shared.dyn")
#: Of these a register holds one as memory does.
_TYPES = (*(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (16, 32, 64)), "bfloat16")
_ZERO, _ONE = tirx.const(0, "int32"), tirx.const(1, "int32")


class HoldElements(Pass):
    """In: loops inside of a Parallel's iteration, or of a thread. Out: an element of shared or global memory
    that such a loop reads and writes, at a place that is the same in all trips, is a variable in it."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with what its loops update in registers."""
        return rewrite_launches(kernel, lambda launch: _Hold(kernel, launch).run())


class _Hold(OwnLoops):
    """The loops of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self._names = values_of(walk(launch.body))

    def loop(self, loop: For) -> list[Stmt] | None:
        """A loop over variables, between what loads and what stores them."""
        held = self._held(loop)
        if not held:
            return None
        body = loop.body
        for each in held:
            body = each.inside(body)
        made = self.stmt(replace(loop, body=body))
        return [*(room for each in held for room in each.rooms()), *made, *(each.stored() for each in held)]

    def _held(self, loop: For) -> list[_Held]:
        """What a loop reads and writes at one place."""
        if not is_scalar_code(loop.body) or addressed_in(loop.body):
            return []
        written = dict.fromkeys(stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Store))
        found = [_element(loop, buffer) for buffer in written if self._may_hold(buffer)]
        always = {stmt.buffer for stmt in loop.body if isinstance(stmt, Store)} if self._runs(loop) else ()
        return [
            _Held.of(item, loop, is_stored=item.buffer in always)
            for item in found
            if item is not None and self._is_own(item) and self._is_alike(loop, item)
        ]

    def _may_hold(self, buffer: Var) -> bool:
        is_memory = buffer.scope() in _MEMORY and buffer not in self.overlapping
        return is_memory and str(buffer.dtype) in _TYPES

    def _runs(self, loop: For) -> bool:
        """Whether a loop is known to have a trip."""
        return int_value(loop.step) == 1 and self.facts.prove(loop.start < loop.stop) is True

    def _is_own(self, element: Access) -> bool:
        """Whether no other thread names an element, where threads run the loop; iterations of a T.Parallel
        that share one go one after the other."""
        if self.in_iteration:
            return True
        at = tuple(inlined(index, self._names) for index in element.indices)
        return distinct(at, self.launch.thread_vars, self.launch.threads)

    def _is_alike(self, loop: For, element: Access) -> bool:
        """Whether the loop sees no difference where an element lies outside of its buffer and reads as 0: it
        is known to lie inside, or nothing but what is stored there hangs on it."""
        if bounds_to_test(element.indices, element.buffer.shape, self.facts) == []:
            return True
        others = (stmt for stmt in walk(loop.body) if not _stores(stmt, element.buffer))
        return not any(reads(expr, {element.buffer}) for stmt in others for expr in expressions(stmt))


@dataclass(frozen=True, eq=False)
class _Held:
    """An element in a ``variable``; ``flag`` is 1 once it is stored, None where the loop stores it anyway."""

    element: Access
    loop: For
    variable: Var
    flag: Var | None

    @staticmethod
    def of(element: Access, loop: For, is_stored: bool) -> _Held:
        """An element with its variables."""
        name = str(element.buffer.name)
        variable = tirx.decl_buffer((1,), str(element.buffer.dtype), f"{name}_held", scope="local.var")
        flag = None if is_stored else tirx.decl_buffer((1,), "int32", f"{name}_stored", scope="local.var")
        return _Held(element, loop, variable, flag)

    def rooms(self) -> list[Stmt]:
        """The variables, with what is there in front of the loop."""
        found = tirx.BufferLoad(self.element.buffer, list(self.element.indices))
        flags = [] if self.flag is None else [Alloc(self.flag, init=_ZERO, loc=self.loop.loc)]
        return [Alloc(self.variable, init=found, loc=self.loop.loc), *flags]

    def inside(self, body: Block) -> Block:
        """The loop's body over the variables."""

        def read(node: Expr) -> Expr | None:
            return self._value() if _reads_itself(node, self.element.buffer) else None

        renamed = map_block(body, lambda expr: transform(expr, read))
        return rewrite_blocks(renamed, lambda block: [new for stmt in block for new in self._store(stmt)])

    def stored(self) -> Stmt:
        """The element as the loop leaves it."""
        back = Store(self.element.buffer, self.element.indices, self._value(), loc=self.loop.loc)
        if self.flag is None:
            return back
        return If(tirx.EQ(tirx.BufferLoad(self.flag, [_ZERO]), _ONE), (back,), loc=self.loop.loc)

    def _value(self) -> Expr:
        return tirx.BufferLoad(self.variable, [_ZERO])

    def _store(self, stmt: Stmt) -> list[Stmt]:
        if not _stores(stmt, self.element.buffer):
            return [stmt]
        assert isinstance(stmt, Store)
        own = replace(stmt, buffer=self.variable, indices=(_ZERO,))
        return [own] if self.flag is None else [own, Store(self.flag, (_ZERO,), _ONE, loc=stmt.loc)]


def _element(loop: For, buffer: Var) -> Access | None:
    """The one element of a buffer that a loop names, by names outside of it; None where it names others or
    does not read it."""
    values = values_of(walk(loop.body))
    named = [item for item in accesses(loop.body) if item.buffer.same_as(buffer)]
    first, *others = [tuple(inlined(index, values) for index in item.indices) for item in named]
    own = {loop.var, *(var for stmt in walk(loop.body) for var in defined(stmt))}
    changed = {stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Store)} | own
    moves = any(uses(index, own) or reads(index, changed) for index in first)
    is_read = any(not item.is_write for item in named)
    if moves or not is_read or not all(same_all(first, other) for other in others):
        return None
    return Access(buffer, first, is_write=True)


def _reads_itself(node: Expr, buffer: Var) -> bool:
    return isinstance(node, TensorLoad) and node.source.same_as(buffer)


def _stores(stmt: Stmt, buffer: Var) -> bool:
    return isinstance(stmt, Store) and stmt.buffer.same_as(buffer)
