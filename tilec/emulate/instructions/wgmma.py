"""wgmma: products of a warpgroup that read shared memory by descriptors and run in the background.

Addresses follow the PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions: Shared Memory Matrix Layout":
a descriptor has the start, the leading and the stride byte offset in units of 16 bytes and the swizzle. An
operand is read in chunks of 16 bytes along its contiguous dimension; the pattern moves chunks by the bits of
their own addresses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tilec.emulate.group import WARP, Group
from tilec.emulate.instructions.mbarriers import pass_together
from tilec.emulate.instructions.mma import OPERANDS, fragment_places, multiplied, widened, with_zeros
from tilec.emulate.instructions.registry import Instruction, as_bits, instruction, unknown
from tilec.emulate.instructions.tma import swizzled
from tilec.emulate.state.clocks import Hazard
from tilec.emulate.state.memory import SHARED_BASE
from tilec.emulate.state.numbers import TYPES
from tilec.emulate.state.registers import Registers
from tilec.errors import UnsupportedError

_GROUP, _ROWS, _CHUNK, _STEP = 128, 64, 16, 32
#: Registers of an A operand.
_WORDS = 4
#: Bytes of an element -> sparsity selectors that wgmma.sp has.
_SELECTORS = {2: 2, 1: 1}
_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
#: Bits 62 and 63 of a descriptor.
_PATTERNS = {0: 0, 1: 128, 2: 64, 3: 32}


@dataclass(frozen=True)
class Descriptor:
    """An operand in shared memory: ``start`` address, offsets in bytes, swizzle in bytes."""

    start: int
    leading: int
    stride: int
    swizzle: int

    @staticmethod
    def of(bits: int) -> Descriptor:
        """The fields of a descriptor."""
        if bits >> 49 & 7:
            raise UnsupportedError("the emulator has no base offset in matrix descriptors")
        start, leading, stride = ((bits >> at & 0x3FFF) * _CHUNK for at in (0, 16, 32))
        return Descriptor(start, leading, stride, _PATTERNS[bits >> 62])


@lru_cache(maxsize=4096)
def chunk_addresses(
    found: Descriptor, rows: int, is_across: bool, size: int, step: int = _STEP
) -> np.ndarray:
    """The addresses of the 16-byte chunks of an operand of ``rows`` rows and ``step`` bytes of K: (rows, K in
    chunks), or with ``is_across`` (contiguous along the rows) (K, rows / elements of a chunk)."""
    width = found.swizzle or _CHUNK
    if is_across:
        each = _CHUNK // size
        k = np.arange(step // size)[:, None]
        chunk = np.arange(rows // each)[None, :]
        per = width // _CHUNK
        if found.swizzle:
            plain = (
                chunk // per * found.leading + chunk % per * _CHUNK + k // 8 * found.stride + k % 8 * width
            )
        else:
            plain = chunk * found.stride + k // 8 * found.leading + k % 8 * _CHUNK
    else:
        if found.swizzle and found.start % width + step > width:
            raise Hazard(f"wgmma reads {step} bytes along K that go over the end of rows of {width}")
        row, part = np.arange(rows)[:, None], np.arange(step // _CHUNK)[None, :]
        plain = row // 8 * found.stride + row % 8 * width
        plain = plain + (part * _CHUNK if found.swizzle else part * found.leading)
    return swizzled(found.start + plain, found.swizzle)


class _Form(NamedTuple):
    """What an instruction's name says: columns and K of its product, types of sums and operands."""

    columns: int
    depth: int
    result: str
    a: str
    b: str

    @staticmethod
    def of(parts: tuple[str, ...]) -> _Form:
        """That of a name."""
        place, found = next((at, match) for at, part in enumerate(parts) if (match := _SHAPE.fullmatch(part)))
        return _Form(int(found.group(1)), int(found.group(2)), *parts[place + 1 : place + 4])


def _sums(each: Instruction) -> int:
    form = _Form.of(each.parts)
    return form.columns // 2 if form.result in ("f32", "s32") else form.columns // 4


@instruction("wgmma.mma_async.sync.aligned", outputs=_sums, in_place=True, keeps=True)
def mma_async(
    g: Group,
    m: Any,
    parts: tuple[str, ...],
    target: Sequence[tuple[Registers, list[Any]]],
    *operands: Any,
    kept: Sequence[tuple[Registers, Any]] = (),
) -> None:
    """D = A x B + D, or A x B, for each warpgroup."""
    form = _Form.of(parts)
    if form.depth * OPERANDS[form.a].itemsize != _STEP:
        raise unknown(parts)
    _multiply(g, m, parts, target, _Product(g, form), operands, kept)


@instruction("wgmma.mma_async.sp.sync.aligned", outputs=_sums, in_place=True, keeps=True)
def sparse_mma_async(
    g: Group,
    m: Any,
    parts: tuple[str, ...],
    target: Sequence[tuple[Registers, list[Any]]],
    *operands: Any,
    kept: Sequence[tuple[Registers, Any]] = (),
) -> None:
    """The same with two values of each group of four of A, whose places lanes hold as for mma.sp, those of
    the 16 rows that a warp has: of 16-bit types the two lanes of each four that the selector says (PTX ISA,
    "Sparse matrix storage" of wgmma.mma_async.sp)."""
    form = _Form.of(parts)
    size = OPERANDS[form.a].itemsize
    if form.depth * size != 2 * _STEP or size not in _SELECTORS:
        raise unknown(parts)
    call = _SparseProduct(g, form)
    words, selector = call.places(operands)
    if selector not in range(_SELECTORS[size]):
        raise Hazard(f"wgmma.sp: sparsity selector {selector} of {form.a} is undefined")
    call = replace(call, words=words, selector=selector)
    _multiply(g, m, parts, target, call, operands, kept)


def _multiply(
    g: Group,
    m: Any,
    parts: tuple[str, ...],
    target: Sequence[tuple[Registers, list[Any]]],
    call: _Product,
    operands: tuple[Any, ...],
    kept: Sequence[tuple[Registers, Any]],
) -> None:
    """Starts a product."""
    columns, result = call.form.columns, call.form.result
    if m is not None and not m.all():
        raise Hazard("wgmma is run by a part of the lanes")
    if result not in ("f32", "f16", "s32"):
        raise unknown(parts)
    if not g.state.get("fenced"):
        raise Hazard("there is no wgmma.fence before the first product", remedy="put one in front of it")
    runs = [(sums, *_run(indices)) for sums, indices in target]
    sums = runs[0][0]
    has_registers, rest = call.split(operands)
    adds = rest[0] if rest else True
    held = [each for run in runs if (each := _accumulator(g, *run, adds)) is not None]
    old = np.concatenate(held) if held else None
    made = np.empty((columns // 2, g.count), np.int32 if result == "s32" else np.float32)
    for start in range(0, g.count, _GROUP):
        made[:, start : start + _GROUP] = call.run(start, operands, has_registers, rest)
    is_packed = result == "f16" and sums.dtype != "float16"
    if old is not None:
        made += _unpacked(old) if is_packed else old
    number = g.state.get("wgmma", 0) + 1
    if result == "f16":
        made = _packed(made, sums) if is_packed else _halves(made)
    for registers, first, count in runs:
        registers.start(first, list(made[:count]), number)
        made = made[count:]
    for registers, index in kept if has_registers or call.between else ():
        registers.hold(int(index), number)


def _unpacked(words: np.ndarray) -> np.ndarray:
    """Sums of 16 bits, two a register: (registers, lanes) as (2 x registers, lanes)."""
    halves = np.ascontiguousarray(words).view(np.float16).reshape(*words.shape, 2)
    return np.asarray(halves.transpose(0, 2, 1).reshape(-1, words.shape[1]), np.float32)


def _packed(made: np.ndarray, sums: Registers) -> np.ndarray:
    """The opposite."""
    halves = _halves(made).reshape(-1, 2, made.shape[1]).transpose(0, 2, 1)
    return np.asarray(np.ascontiguousarray(halves).view(TYPES[sums.dtype])[..., 0])


def _halves(made: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return made.astype(np.float16)


def _run(indices: list[Any]) -> tuple[int, int]:
    first = int(indices[0])
    if any(int(index) != first + step for step, index in enumerate(indices)):
        raise UnsupportedError("the emulator has no wgmma into registers that do not lie in order")
    return first, len(indices)


def _accumulator(g: Group, sums: Registers, first: int, count: int, adds: Any) -> np.ndarray | None:
    """The sums before, where they are added to."""
    sums.check_fenced(first, count)
    if isinstance(adds, np.ndarray):
        by = adds.reshape(-1, _GROUP)
        if (by != by[:, :1]).any():
            raise Hazard("lanes of one warpgroup differ in whether wgmma adds to its sums")
        if not adds.any():
            return None
        rows = sums.sums(first, count)
        return np.where(adds.astype(np.bool_), rows, rows.dtype.type(0))
    return sums.sums(first, count) if adds else None


@dataclass(frozen=True)
class _Product:
    """One instruction of a group's warpgroups."""

    g: Group
    form: _Form

    #: Operands that stand between the descriptor of B and what says whether sums are kept.
    between: ClassVar[int] = 0

    def split(self, operands: tuple[Any, ...]) -> tuple[bool, list[Any]]:
        """Whether A is in registers, and the operands from what says whether sums are kept on."""
        plain = 7 if self._is_wide else 3 if self.form.result == "s32" else 5
        has_registers = len(operands) != plain + self.between
        return has_registers, list(operands[(_WORDS if has_registers else 1) + 1 + self.between :])

    @property
    def _is_wide(self) -> bool:
        return OPERANDS[self.form.a].itemsize == 2

    def run(self, start: int, operands: tuple[Any, ...], has_registers: bool, rest: list[Any]) -> np.ndarray:
        """The products of the warpgroup whose lanes begin at ``start``, by register: (columns / 2, 128)."""
        warp = int(self.g.lane_warps[start])
        if (warp - self.g.block.first_warp) % 4 or self.g.count < start + _GROUP:
            raise Hazard(
                "wgmma is run by warps that are no warpgroup", remedy="four warps from a multiple of 4"
            )
        signs = [int(each) for each in rest[1:3]] or [1, 1]
        across = [int(each) for each in rest[3:]] if self._is_wide else []
        depth = self.form.depth * OPERANDS[self.form.b].itemsize
        b = self._shared(operands[_WORDS if has_registers else 1], start, self.form.columns,
                         bool(across[-1:] == [1]), self.form.b, depth)  # fmt: skip
        if has_registers:
            a = self._registers(operands[:_WORDS], start)
        else:
            a = self._shared(operands[0], start, _ROWS, bool(across[:1] == [1]), self.form.a, _STEP)
        made = multiplied(self.first(a, start), b) * (signs[0] * (signs[1] if len(signs) > 1 else 1))
        row, column = fragment_places(self.form.columns)
        return np.asarray(made[row, column])

    def first(self, held: np.ndarray, start: int) -> np.ndarray:
        """The first operand (64, K) of what is ``held`` of it."""
        return held

    def _shared(self, bits: Any, start: int, rows: int, is_across: bool, kind: str, step: int) -> np.ndarray:
        """(rows, K) of an operand that a descriptor describes, ``step`` bytes along K."""
        found = Descriptor.of(self._agreed(bits, start))
        dtype = OPERANDS[kind]
        addresses = chunk_addresses(found, rows, is_across, dtype.itemsize, step)
        memory = self.g.block.shared
        offsets = addresses.reshape(-1) - SHARED_BASE
        warp = int(self.g.lane_warps[start])
        agent = self.g.block.cluster.agents.of(("wgmma", warp), f"wgmma of warps {warp} to {warp + 3}")
        self.g.clocks.ensure()
        moment = self.g.state.get("wgmma", 0) + 1
        access = self.g.access(np.full(len(offsets), warp, np.int32), agent=agent, moment=moment,
                               is_async_proxy=True)  # fmt: skip
        raw = memory.read(offsets, _CHUNK, access)
        values = widened(np.ascontiguousarray(raw).view(dtype), kind)
        values = values.reshape(addresses.shape[0], -1)
        return values.T if is_across else values

    def _agreed(self, bits: Any, start: int) -> int:
        if not isinstance(bits, np.ndarray):
            return int(bits) & 0xFFFFFFFFFFFFFFFF
        lanes = bits[start : start + _GROUP]
        if (lanes != lanes[0]).any():
            raise Hazard("lanes of one warpgroup give wgmma different descriptors")
        return int(lanes[0]) & 0xFFFFFFFFFFFFFFFF

    def _registers(self, words: tuple[Any, ...], start: int) -> np.ndarray:
        """(64, K) of A in registers: the fragments of mma.m16n8k16, one warp below the other."""
        dtype = OPERANDS[self.form.a]
        each = 4 // dtype.itemsize
        raw = np.stack(
            [as_bits(word, "uint32", self.g.count)[start : start + _GROUP] for word in words], axis=1
        )
        values = (
            np.ascontiguousarray(raw).view(dtype).reshape(4, 8, 4, 2, 2, each)
        )  # warp, row, pair, half, low
        made = np.ascontiguousarray(values.transpose(0, 4, 1, 3, 2, 5)).reshape(_ROWS, -1)
        return widened(made, self.form.a)


@dataclass(frozen=True)
class _SparseProduct(_Product):
    """One of a sparse operand. ``words`` of the lanes say where values are, with a ``selector``."""

    words: Any = 0
    selector: int = 0
    between: ClassVar[int] = 2

    def places(self, operands: tuple[Any, ...]) -> tuple[Any, int]:
        """The words and the selector among the operands."""
        _, rest = self.split(operands)
        words, selector = operands[len(operands) - len(rest) - self.between :][: self.between]
        return words, int(selector)

    def first(self, held: np.ndarray, start: int) -> np.ndarray:
        """With its zeros, warp by warp."""
        words = as_bits(self.words, "uint32", self.g.count)[start : start + _GROUP].reshape(-1, WARP)
        size = OPERANDS[self.form.a].itemsize
        values = held.reshape(len(words), -1, held.shape[-1])
        made = with_zeros(values, words, size, self.selector, self.form.depth, "wgmma.sp")
        return made.reshape(_ROWS, -1)


@instruction("wgmma.fence")
def fence(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """Registers written so far may be used by products."""
    g.state["fenced"] = True
    for registers in g.local:
        registers.fence()


@instruction("wgmma.commit_group")
def commit(g: Group, m: Any, parts: tuple[str, ...]) -> None:
    """Closes a group of products, which the warps of a warpgroup have issued together."""
    g.state["wgmma"] = g.state.get("wgmma", 0) + 1
    for start in range(0, g.count, _GROUP):
        pass_together(g, np.unique(g.lane_warps[start : start + _GROUP]))


@instruction("wgmma.wait_group")
def wait(g: Group, m: Any, parts: tuple[str, ...], pending: Any) -> None:
    """All but the last ``pending`` groups are done: their sums can be read, what they read overwritten."""
    done = g.state.get("wgmma", 0) - int(pending)
    if done <= 0:
        return
    for registers in g.local:
        registers.settle(done)
    for start in range(0, g.count, _GROUP):
        warp = int(g.lane_warps[start])
        agent = g.block.cluster.agents.of(("wgmma", warp), f"wgmma of warps {warp} to {warp + 3}")
        g.clocks.ensure()
        last = min(start + _GROUP, g.count)
        g.clocks.learn(np.unique(g.lane_warps[start:last]), agent, done)
