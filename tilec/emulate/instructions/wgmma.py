"""wgmma: products of a warpgroup that read shared memory by descriptors and run in the background.

Addresses follow the PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions: Shared Memory Matrix Layout":
a descriptor has the start, the leading and the stride byte offset in units of 16 bytes and the swizzle. An
operand is read in chunks of 16 bytes along its contiguous dimension; the pattern moves chunks by the bits of
their own addresses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilec.emulate.group import Group
from tilec.emulate.instructions.mbarriers import pass_together
from tilec.emulate.instructions.mma import OPERANDS, fragment_places, multiplied, widened
from tilec.emulate.instructions.registry import Instruction, as_bits, instruction, unknown
from tilec.emulate.instructions.tma import swizzled
from tilec.emulate.state.clocks import Hazard
from tilec.emulate.state.memory import SHARED_BASE
from tilec.emulate.state.numbers import TYPES
from tilec.emulate.state.registers import Registers
from tilec.errors import UnsupportedError

_GROUP, _ROWS, _CHUNK, _STEP = 128, 64, 16, 32
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
def chunk_addresses(found: Descriptor, rows: int, is_across: bool, size: int) -> np.ndarray:
    """The addresses of the 16-byte chunks of an operand of ``rows`` rows and 32 bytes of K: (rows, 2), or
    with ``is_across`` (contiguous along the rows) (K, rows / elements of a chunk)."""
    width = found.swizzle or _CHUNK
    if is_across:
        each = _CHUNK // size
        k = np.arange(_STEP // size)[:, None]
        chunk = np.arange(rows // each)[None, :]
        per = width // _CHUNK
        if found.swizzle:
            plain = (
                chunk // per * found.leading + chunk % per * _CHUNK + k // 8 * found.stride + k % 8 * width
            )
        else:
            plain = chunk * found.stride + k // 8 * found.leading + k % 8 * _CHUNK
    else:
        row, half = np.arange(rows)[:, None], np.arange(2)[None, :]
        plain = row // 8 * found.stride + row % 8 * width
        plain = plain + (half * _CHUNK if found.swizzle else half * found.leading)
    return swizzled(found.start + plain, found.swizzle)


def _shape(parts: tuple[str, ...]) -> tuple[int, int]:
    """Columns and depth."""
    found = next(match for part in parts if (match := _SHAPE.fullmatch(part)))
    return int(found.group(1)), int(found.group(2))


def _sums(each: Instruction) -> int:
    columns, _ = _shape(each.parts)
    return columns // 2 if each.parts[5] in ("f32", "s32") else columns // 4


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
    columns, depth = _shape(parts)
    result, a_kind, b_kind = parts[5:8]
    if m is not None and not m.all():
        raise Hazard("wgmma is run by a part of the lanes")
    if result not in ("f32", "f16", "s32") or depth * OPERANDS[a_kind].itemsize != _STEP:
        raise unknown(parts)
    if not g.state.get("fenced"):
        raise Hazard("there is no wgmma.fence before the first product", remedy="put one in front of it")
    runs = [(sums, *_run(indices)) for sums, indices in target]
    sums = runs[0][0]
    call = _Product(g, columns, a_kind, b_kind, result)
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
    for registers, index in kept if has_registers else ():
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
    columns: int
    a_kind: str
    b_kind: str
    result: str

    def split(self, operands: tuple[Any, ...]) -> tuple[bool, list[Any]]:
        """Whether A is in registers, and the operands behind the descriptor of B."""
        plain = 7 if self._is_wide else 3 if self.result == "s32" else 5
        has_registers = len(operands) != plain
        return has_registers, list(operands[5:] if has_registers else operands[2:])

    @property
    def _is_wide(self) -> bool:
        return OPERANDS[self.a_kind].itemsize == 2

    def run(self, start: int, operands: tuple[Any, ...], has_registers: bool, rest: list[Any]) -> np.ndarray:
        """The products of the warpgroup whose lanes begin at ``start``, by register: (columns / 2, 128)."""
        warp = int(self.g.lane_warps[start])
        if (warp - self.g.block.first_warp) % 4 or self.g.count < start + _GROUP:
            raise Hazard(
                "wgmma is run by warps that are no warpgroup", remedy="four warps from a multiple of 4"
            )
        signs = [int(each) for each in rest[1:3]] or [1, 1]
        across = [int(each) for each in rest[3:]] if self._is_wide else []
        b = self._shared(operands[4 if has_registers else 1], start, self.columns, bool(across[-1:] == [1]),
                         self.b_kind)  # fmt: skip
        if has_registers:
            a = self._registers(operands[:4], start)
        else:
            a = self._shared(operands[0], start, _ROWS, bool(across[:1] == [1]), self.a_kind)
        made = multiplied(a, b) * (signs[0] * (signs[1] if len(signs) > 1 else 1))
        row, column = fragment_places(self.columns)
        return np.asarray(made[row, column])

    def _shared(self, bits: Any, start: int, rows: int, is_across: bool, kind: str) -> np.ndarray:
        """(rows, K) of an operand that a descriptor describes."""
        found = Descriptor.of(self._agreed(bits, start))
        dtype = OPERANDS[kind]
        addresses = chunk_addresses(found, rows, is_across, dtype.itemsize)
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
        dtype = OPERANDS[self.a_kind]
        each = 4 // dtype.itemsize
        raw = np.stack(
            [as_bits(word, "uint32", self.g.count)[start : start + _GROUP] for word in words], axis=1
        )
        values = (
            np.ascontiguousarray(raw).view(dtype).reshape(4, 8, 4, 2, 2, each)
        )  # warp, row, pair, half, low
        made = np.ascontiguousarray(values.transpose(0, 4, 1, 3, 2, 5)).reshape(_ROWS, -1)
        return widened(made, self.a_kind)


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
