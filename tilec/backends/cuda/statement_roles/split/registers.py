"""The registers of producers and consumers: setmaxnreg hands on what a block got at its launch."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from tvm.ir import Var

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.nodes import ThreadLoop, WarpGemm
from tilec.backends.cuda.warp_roles.nodes import HANDED_ON, WARPGROUP, shared_out
from tilec.ir.nodes import Alloc, Block, Gemm, Launch, Parallel, SparseGemm, Stmt, walk
from tilec.ir.nodes.barriers import WARP, Group, SetRegisters
from tilec.ir.traits import buffers
from tilec.lowering.analysis.flow import overwrites
from tilec.lowering.analysis.uses import used_in
from tilec.lowering.emission.storage import element_bytes
from tilec.targets import MOST_REGISTERS, REGISTER_FILE

if TYPE_CHECKING:
    from tilec.backends.cuda.statement_roles.split.loads import Load

#: Registers of a producer and a consumer thread by the number of consumer warpgroups, few for the producer
#: first; none where each thread has as many as it can use without.
_HANDED_ON = {
    1: (),
    2: (HANDED_ON[2, 1], (56, 224), (88, 208), (120, 192)),
    3: (HANDED_ON[3, 1], (56, 152), (80, 144), (104, 136)),
}
#: The same where consumers lack registers and one thread alone loads, by TMA.
_LACKING = {2: (24, 240)}
MOST_GROUPS = max(_HANDED_ON)
#: Registers of a thread that gathers: those that it always needs, those of the place of a copy and of a value
#: that it computes.
_LEAST, _OF_A_COPY, _OF_A_VALUE = 40, 3, 2


def handed_on(groups: int, loads: Iterable[Load], body: Block = ()) -> tuple[int, int] | None:
    """Registers of a producer and a consumer thread, for ``groups`` warpgroups that consume ``body``; None
    where none are handed on. Threads that gather get few where consumers lack registers: they gather in turns
    then, where consumers would move sums to memory in every trip."""
    needed = max((_needed(load) for load in loads if load.no_box is not None), default=0)
    choices = _HANDED_ON[groups]
    lacking = bool(choices) and _held(body, groups * WARPGROUP) > choices[0][1] - _OTHERS
    if needed == 0 and groups in _LACKING and lacking:
        return _LACKING[groups]
    return next((pair for pair in choices if pair[0] >= needed or lacking), choices[-1] if choices else None)


def _needed(load: Load) -> int:
    """Registers of one of the threads of a warpgroup that carry out a load."""
    each = prod(static_extents(load.tile)) // WARPGROUP
    return _LEAST + (each // load.width * _OF_A_COPY if load.width else min(each, 16) * _OF_A_VALUE)


#: Registers that a thread needs beside fragments.
_OTHERS = 20


def entry_registers(launch: Launch) -> int:
    """Registers that each thread must have at launch: setmaxnreg waits for ever for more than the block got.
    0 where nothing is handed on."""
    total = sum(
        stmt.count * group.count
        for group in walk(launch.body)
        if isinstance(group, Group)
        for stmt in group.body
        if isinstance(stmt, SetRegisters)
    )
    x, y, z = launch.threads
    if not total:
        return 0
    return shared_out(total // WARPGROUP, x * y * z // WARPGROUP)


def blocks_at_entry(launch: Launch) -> int:
    """How many blocks of a launch a multiprocessor has the registers for that they have at entry; 0 where
    nothing is handed on."""
    each = entry_registers(launch)
    x, y, z = launch.threads
    return REGISTER_FILE // (each * x * y * z) if each else 0


def fits_registers(block: Block, group: Group) -> bool:
    """Whether a thread of ``group`` holds all fragments that a block names at once."""
    return _held(block, group.count) <= _given(group) - _OTHERS


def fits_beside(block: Block, group: Group, words: int) -> bool:
    """As `fits_registers`, beside so many other registers."""
    return _held(block, group.count) + words <= _given(group) - _OTHERS


def fits_twice(block: Block, group: Group, most: int) -> bool:
    """Whether a thread of ``group`` that has up to ``most`` registers holds all fragments that a block names
    where the block stands twice, with places of its own each time."""
    return _held(block, group.count) <= min(_given(group), most) - 2 * _OTHERS


def holds_live(block: Block, group: Group) -> bool:
    """Whether a thread of ``group`` holds the fragments of a block that are alive at a time."""
    return _live(block, group) <= _given(group) - _OTHERS


def registers_live(block: Block, group: Group) -> int:
    """Registers that a thread of ``group`` takes for the fragments of a block that are alive at a time, and
    for what else it needs."""
    return _live(block, group) + _OTHERS


def _live(block: Block, group: Group) -> int:
    """Registers of a thread for the fragments of a block that are alive at a time."""
    alive = [set[Var]() for _ in range(len(block) + 1)]
    for buffer in _fragments(block):
        first, last = _life(block, buffer, group)
        for place in range(first, last + 1):
            alive[place].add(buffer)
    return max(sum(words_of(buffer, group.count) for buffer in each) for each in alive)


def _given(group: Group) -> int:
    """Registers of a thread of a group."""
    given = [stmt.count for stmt in group.body if isinstance(stmt, SetRegisters)]
    return given[0] if given else MOST_REGISTERS


def _life(block: Block, buffer: Var, group: Group) -> tuple[int, int]:
    """The first and the last of the gaps behind statements in which a fragment holds something: all of them
    where others use it, or it is read before it is written."""
    users = [
        place for place, stmt in enumerate(block) if any(_uses(inner, buffer) for inner in walk((stmt,)))
    ]
    inside, everywhere = (sum(_uses(stmt, buffer) for stmt in walk(body)) for body in (block, group.body))
    if inside < everywhere or not _begins(block[users[0]], buffer):
        return 0, len(block)
    return users[0] + 1, users[-1]


def _uses(stmt: Stmt, buffer: Var) -> bool:
    return buffer in buffers(stmt) and not isinstance(stmt, Alloc)


def _begins(stmt: Stmt, buffer: Var) -> bool:
    """Whether a statement gives a fragment what it holds."""
    if isinstance(stmt, (Gemm, SparseGemm, WarpGemm)):
        return bool(stmt.clear and stmt.c.buffer.same_as(buffer))
    if isinstance(stmt, ThreadLoop):
        stmt = Parallel(stmt.vars, stmt.extents, stmt.body)
    return overwrites(stmt, buffer)


def registers_held(block: Block, threads: int) -> int:
    """Registers that a thread takes for all fragments that a block names, and for what else it needs."""
    return _held(block, threads) + _OTHERS


#: Schedulers of a multiprocessor, among which registers and warps are shared out, and how many of a thread's
#: registers come at a time.
_SCHEDULERS, _UNIT = 4, 8


def registers_of(blocks: int, threads: int) -> int:
    """Registers of a thread where a multiprocessor holds so many blocks of so many threads."""
    warps = -(-blocks * (threads // WARP) // _SCHEDULERS)
    return REGISTER_FILE // _SCHEDULERS // WARP // warps // _UNIT * _UNIT


def blocks_by_registers(block: Block, threads: int) -> int:
    """How many blocks of so many threads have the registers of a multiprocessor, each with those of all
    fragments that ``block`` names."""
    each = min(registers_held(block, threads), MOST_REGISTERS)
    return max(1, REGISTER_FILE // (each * threads))


def _held(block: Block, threads: int) -> int:
    """Registers of a thread for all fragments that a block names."""
    return sum(words_of(buffer, threads) for buffer in _fragments(block))


def _fragments(block: Block) -> set[Var]:
    return {buffer for buffer in used_in(block) if buffer.scope() == "local.fragment"}


def words_of(buffer: Var, threads: int) -> int:
    """Registers of a thread for a fragment; rows have a value for each of two rows in each lane."""
    shape = static_extents(buffer)
    return 2 if len(shape) == 1 else prod(shape) * element_bytes(str(buffer.dtype)) // 4 // threads
