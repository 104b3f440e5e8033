"""Matrix instructions of one warp: mma.sync, also with scales, ldmatrix, stmatrix, movmatrix.

Fragments as the PTX ISA draws them ("Matrix Fragments for mma"): lane l has g = l // 4 and t = l % 4. Word q
of A holds row g + 8 * (q % 2), word q of B column g, both 4 bytes of K from byte 4 * t of the 16-byte half
q // 2 (A) or q (B). Sums: c0, c1 in row g, columns 2t and 2t + 1; c2, c3 in row g + 8.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from tilec.emulate.group import WARP, Group
from tilec.emulate.instructions.registry import Instruction, as_bits, instruction, unknown
from tilec.emulate.state.clocks import Hazard
from tilec.errors import EvalError
from tilec.ir.interp.sparse import expanded

_LANES = np.arange(WARP)
_ROW, _PAIR = _LANES // 4, _LANES % 4

#: Operand types to NumPy's.
OPERANDS: dict[str, np.dtype] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
}


def widened(values: np.ndarray, kind: str) -> np.ndarray:
    """Operands as what products are formed in: float32, or int32. TF32 drops the lower 13 bits."""
    if kind == "tf32":
        return np.asarray((values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32))
    return values.astype(np.int32 if kind in ("s8", "u8") else np.float32)


@instruction("mma.sync.aligned", outputs=lambda each: 2 if each.parts[6] == "f16" else 4, mixes=True)
def mma(g: Group, m: Any, parts: tuple[str, ...], *operands: Any) -> tuple[Any, ...]:
    """D = A x B + C for m16n8kK; K from the name."""
    shape, kinds = parts[3], [part for part in parts[6:] if part not in ("satfinite",)]
    if not shape.startswith("m16n8k") or parts[4:6] != ("row", "col") or len(kinds) != 4:
        raise unknown(parts)
    g.whole_warps(m, "mma.sync")
    result, a_kind, b_kind, _ = kinds
    depth = int(shape[6:])
    words = depth * OPERANDS[a_kind].itemsize // 16
    a = _operand(g, operands[: 2 * words], a_kind, 2)
    b = _operand(g, operands[2 * words : 3 * words], b_kind, 1)
    sums = operands[3 * words :]
    if result == "f16":
        return _half_sums(g, a, b, sums)
    dtype = "int32" if result == "s32" else "float32"
    c = _accumulator([as_bits(each, dtype, g.count).reshape(-1, WARP) for each in sums])
    made = multiplied(a, b) + c
    made = made.astype(np.int32 if dtype == "int32" else np.float32, copy=False)
    return _scattered(made)


@instruction(
    "mma.sync.aligned.m16n8k4.row.col.f64",
    "mma.sync.aligned.m8n8k4.row.col.f64",
    outputs=lambda each: 4 if each.parts[3] == "m16n8k4" else 2,
    mixes=True,
)
def double_mma(g: Group, m: Any, parts: tuple[str, ...], *operands: Any) -> tuple[Any, ...]:
    """D = A x B + C in float64: A has row g (and g + 8), column t, B column g, row t, the sums as others."""
    if parts[6:] != ("f64",) * 4:
        raise unknown(parts)
    g.whole_warps(m, "mma.sync")
    values = [as_bits(each, "float64", g.count).reshape(-1, WARP) for each in operands]
    halves = len(values) // 3
    a = np.concatenate([each.reshape(-1, 8, 4) for each in values[:halves]], axis=1)
    b, made = values[halves].reshape(-1, 8, 4), _accumulator(values[halves + 1 :])
    for k in range(4):
        made = made + a[:, :, None, k] * b[:, None, :, k]
    return _scattered(made)


#: Kinds of products with scales -> scales of a row -> the first bytes that hold them in a word (PTX ISA,
#: "Block Scaling for mma.sync").
_SCALE_BYTES = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}
_SCALE_TYPES = {"ue8m0": ml_dtypes.float8_e8m0fnu, "ue4m3": ml_dtypes.float8_e4m3fn}
_SCALED_KINDS = {
    ("m16n8k32", "kind::mxf8f6f4", "scale_vec::1X", "ue8m0"): ("e4m3", "e5m2"),
    ("m16n8k64", "kind::mxf4", "scale_vec::2X", "ue8m0"): ("e2m1",),
    ("m16n8k64", "kind::mxf4nvf4", "scale_vec::2X", "ue8m0"): ("e2m1",),
    ("m16n8k64", "kind::mxf4nvf4", "scale_vec::4X", "ue4m3"): ("e2m1",),
}


@instruction(
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale",
    outputs=4,
    mixes=True,
)
def scaled_mma(g: Group, m: Any, parts: tuple[str, ...], *operands: Any) -> tuple[Any, ...]:
    """D = (A x scales) x (B x scales) + C. Of each four lanes two hold the scales of rows g and g + 8 of A,
    by thread-id-a the first or the last two, and lane thread-id-b those of column g of B."""
    shape, kind, vector = parts[3], parts[6], parts[8]
    result, a_kind, b_kind, sums_kind, scales = parts[9:]
    known = _SCALED_KINDS.get((shape, kind, vector, scales), ())
    if (result, sums_kind) != ("f32", "f32") or a_kind not in known or b_kind not in known:
        raise unknown(parts)
    g.whole_warps(m, "mma.sync")
    a, b = _operand(g, operands[:4], a_kind, 2), _operand(g, operands[4:6], b_kind, 1)
    a_words, a_byte, a_thread, b_words, b_byte, b_thread = operands[10:]
    count = int(vector[len("scale_vec::") : -1])
    rows = 4 * (np.arange(16) % 8) + 2 * _selector(a_thread, range(2)) + np.arange(16) // 8
    columns = 4 * np.arange(8) + _selector(b_thread, range(4))
    a = a * _scales(g, a_words, rows, _selector(a_byte, _SCALE_BYTES[count]), count, scales, a.shape[-1])
    b = b * _scales(g, b_words, columns, _selector(b_byte, _SCALE_BYTES[count]), count, scales, b.shape[-1])
    c = _accumulator([as_bits(each, "float32", g.count).reshape(-1, WARP) for each in operands[6:10]])
    return _scattered((multiplied(a, b) + c).astype(np.float32, copy=False))


def _selector(value: Any, allowed: Any) -> int:
    if int(value) not in allowed:
        raise Hazard(f"mma with block_scale: selector {value} is none of {', '.join(map(str, allowed))}")
    return int(value)


def _scales(
    g: Group, words: Any, lanes: np.ndarray, first: int, count: int, kind: str, depth: int
) -> np.ndarray:
    """(warps, rows, K): ``count`` bytes from ``first`` on of the words of ``lanes``, each for its part of
    K."""
    held = as_bits(words, "uint32", g.count).reshape(-1, WARP)[:, lanes]
    octets = np.ascontiguousarray(held).view(np.uint8).reshape(*held.shape, 4)[..., first : first + count]
    values = np.ascontiguousarray(octets).view(_SCALE_TYPES[kind]).astype(np.float32)
    return np.repeat(values, depth // count, axis=-1)


#: Shape and bytes of an element of A -> how many sparsity selectors mma.sp has.
_SELECTORS = {("m16n8k16", 2): 4, ("m16n8k32", 2): 2, ("m16n8k64", 1): 1}


def multiplied(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The products of the rows of A with those of B. Floats are summed in float64, so that an element is the
    same bits wherever its rows lie: NumPy adds float32 up in an order of its own."""
    turned = np.swapaxes(b, -1, -2)
    if a.dtype != np.float32:
        return np.asarray(np.matmul(a, turned))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.matmul(a.astype(np.float64), turned.astype(np.float64)), np.float32)


@instruction("mma.sp::ordered_metadata.sync.aligned", outputs=4, mixes=True)
def sparse_mma(g: Group, m: Any, parts: tuple[str, ...], *operands: Any) -> tuple[Any, ...]:
    """D = A x B + C for m16n8k16 and m16n8k32 of 16-bit and m16n8k64 of 8-bit types, A with two values in
    each group of four: its registers are those of a dense A of half the K."""
    shape, kinds = parts[4], parts[7:]
    if len(kinds) != 4 or (shape, OPERANDS[kinds[1]].itemsize) not in _SELECTORS:
        raise unknown(parts)
    g.whole_warps(m, "mma.sp")
    size = OPERANDS[kinds[1]].itemsize
    depth = int(shape[6:])
    count = depth * size // 16
    a_words, b_words = operands[:count], operands[count : 2 * count]
    *sums, words, selector = operands[2 * count :]
    if int(selector) not in range(_SELECTORS[shape, size]):
        raise Hazard(f"mma.sp: sparsity selector {selector} of {shape} is undefined")
    held = as_bits(words, "uint32", g.count).reshape(-1, WARP)
    values = _operand(g, a_words, kinds[1], 2)
    a = with_zeros(values, held, size, int(selector), depth, "mma.sp::ordered_metadata")
    b = _operand(g, b_words, kinds[2], 1)
    dtype = "int32" if kinds[0] == "s32" else "float32"
    c = _accumulator([as_bits(each, dtype, g.count).reshape(-1, WARP) for each in sums])
    made = multiplied(a, b) + c
    return _scattered(made.astype(dtype, copy=False))


def with_zeros(
    values: np.ndarray, words: np.ndarray, size: int, selector: int, depth: int, name: str
) -> np.ndarray:
    """(warps, 16, depth) of the values (warps, 16, depth / 2), of ``size`` bytes, of an instruction with this
    ``name``, and the words of its lanes (warps, 32) that say where they are."""
    found = _narrow_rows(words) if size == 1 else _wide_rows(words, selector, depth // 16)
    return np.stack([_expanded(part, rows, name) for part, rows in zip(values, found, strict=True)])


def _wide_rows(words: np.ndarray, selector: int, lanes: int) -> np.ndarray:
    """(warps, 16, lanes) of 16 bits: so many ``lanes`` of each four, those of the selector, hold 16 columns
    each, rows g and g + 8 in the halves of a word."""
    chosen = words.reshape(-1, 8, 4)[:, :, lanes * selector : lanes * selector + lanes]
    return np.concatenate([chosen & 0xFFFF, chosen >> 16], axis=1).astype(np.uint16)


def _narrow_rows(words: np.ndarray) -> np.ndarray:
    """(warps, 16, 2) of 32 bits: of each four lanes 0 and 2 hold row g, 1 and 3 row g + 8."""
    chosen = words.reshape(-1, 8, 2, 2)
    return np.concatenate([chosen[..., 0], chosen[..., 1]], axis=1)


def _expanded(values: np.ndarray, rows: np.ndarray, name: str) -> np.ndarray:
    try:
        return expanded(values, rows)
    except EvalError as error:
        raise Hazard(f"{name}: {error.what}") from None


def _operand(g: Group, words: tuple[Any, ...], kind: str, halves: int) -> np.ndarray:
    """(warps, rows, K) of the words of A (``halves`` 2) or B (1)."""
    count = len(words) // halves
    raw = np.stack([as_bits(word, "uint32", g.count).reshape(-1, WARP) for word in words], axis=-1)
    raw, dtype = _unpacked(raw) if kind == "e2m1" else (raw, OPERANDS[kind])
    each = raw.dtype.itemsize // dtype.itemsize
    values = np.ascontiguousarray(raw).view(dtype).reshape(len(g.warps), WARP, count, halves, each)
    made = np.empty((len(g.warps), 8 * halves, count * 4 * each), dtype)
    split = made.reshape(len(g.warps), halves, 8, count, 4, each)
    split[:] = values.reshape(len(g.warps), 8, 4, count, halves, each).transpose(0, 4, 1, 3, 2, 5)
    return widened(made, kind)


def _unpacked(words: np.ndarray) -> tuple[np.ndarray, np.dtype]:
    """Words of eight 4-bit floats as ones of eight bytes, the low nibble of each byte first."""
    octets = words.view(np.uint8)
    halves = np.stack([octets & 15, octets >> 4], axis=-1)
    return halves.reshape(*words.shape[:-1], -1).view(np.uint64), np.dtype(ml_dtypes.float4_e2m1fn)


def _accumulator(sums: list[np.ndarray]) -> np.ndarray:
    """(warps, 16, 8) of the four sums of each lane, (warps, 8, 8) of two."""
    made = np.empty((len(sums[0]), 4 * len(sums), 8), sums[0].dtype)
    for q, part in enumerate(sums):
        made[:, _ROW + 8 * (q // 2), 2 * _PAIR + q % 2] = part
    return made


def _scattered(made: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(
        np.ascontiguousarray(made[:, _ROW + 8 * (q // 2), 2 * _PAIR + q % 2]).reshape(-1)
        for q in range(made.shape[1] // 4)
    )


def _half_sums(g: Group, a: np.ndarray, b: np.ndarray, sums: tuple[Any, ...]) -> tuple[Any, ...]:
    halves = [as_bits(each, "uint32", g.count).view(np.float16).reshape(-1, WARP, 2) for each in sums]
    c = _accumulator([halves[q // 2][:, :, q % 2].astype(np.float32) for q in range(4)])
    made = (multiplied(a, b) + c).astype(np.float16)
    parts = [part.reshape(-1, 1) for part in _scattered(made)]
    return tuple(
        np.ascontiguousarray(np.concatenate(parts[2 * q : 2 * q + 2], axis=1)).view(np.uint32)[:, 0]
        for q in range(2)
    )


# ---- 8 x 8 matrices of 16 bits ----


def _matrices(each: Instruction) -> int:
    return next(int(part[1:]) for part in each.parts if part in ("x1", "x2", "x4"))


@instruction("ldmatrix.sync.aligned.m8n8", outputs=_matrices, mixes=True)
def ldmatrix(g: Group, m: Any, parts: tuple[str, ...], address: Any) -> tuple[Any, ...]:
    """Lane 8 i + r gives the address of row r of matrix i; lane l gets elements 2 (l % 4) and the next of row
    l // 4, or of the column with .trans."""
    g.whole_warps(m, "ldmatrix")
    count = _matrices(Instruction(".".join(parts), ()))
    rows = _addresses(g, m, address, count)
    memory, offsets = g.block.window(rows.reshape(-1))
    warps = np.repeat(g.active_warps(m), 8 * count).astype(np.int32)
    raw = memory.read(offsets, 16, g.access(warps))
    tiles = raw.view(np.uint16).reshape(-1, count, 8, 8)
    if "trans" in parts:
        tiles = tiles.transpose(0, 1, 3, 2)
    words = np.ascontiguousarray(tiles).view(np.uint32)  # (warps, count, 8, 4)
    return tuple(_spread(g, m, words[:, i].reshape(-1, WARP)) for i in range(count))


@instruction("stmatrix.sync.aligned.m8n8")
def stmatrix(g: Group, m: Any, parts: tuple[str, ...], address: Any, *words: Any) -> None:
    """The reverse of ldmatrix."""
    g.whole_warps(m, "stmatrix")
    count = _matrices(Instruction(".".join(parts), ()))
    rows = _addresses(g, m, address, count)
    live = slice(None) if m is None else m
    tiles = np.stack(
        [np.ascontiguousarray(as_bits(word, "uint32", g.count)[live]).reshape(-1, 8, 4) for word in words],
        axis=1,
    )
    values = np.ascontiguousarray(tiles).view(np.uint16)  # (warps, count, 8, 8)
    if "trans" in parts:
        values = np.ascontiguousarray(values.transpose(0, 1, 3, 2))
    memory, offsets = g.block.window(rows.reshape(-1))
    warps = np.repeat(g.active_warps(m), 8 * count).astype(np.int32)
    memory.write(offsets, values.reshape(-1, 8).view(np.uint8), g.access(warps))


@instruction("movmatrix.sync.aligned.m8n8.trans", outputs=1, mixes=True)
def movmatrix(g: Group, m: Any, parts: tuple[str, ...], word: Any) -> tuple[Any, ...]:
    """The transpose of a matrix in registers."""
    g.whole_warps(m, "movmatrix")
    tiles = np.ascontiguousarray(as_bits(word, "uint32", g.count)).view(np.uint16).reshape(-1, 8, 8)
    return (np.ascontiguousarray(tiles.transpose(0, 2, 1)).view(np.uint32).reshape(-1),)


def _addresses(g: Group, m: Any, address: Any, count: int) -> np.ndarray:
    """The addresses that count: (warps, 8 per matrix)."""
    if not isinstance(address, np.ndarray):
        raise Hazard("all lanes give ldmatrix or stmatrix the same row")
    live = address if m is None else address[m]
    return live.reshape(-1, WARP)[:, : 8 * count]


def _spread(g: Group, m: Any, found: np.ndarray) -> np.ndarray:
    """Words of the warps that run, as a value of all lanes."""
    flat = np.ascontiguousarray(found).reshape(-1)
    if m is None:
        return flat
    made = np.zeros(g.count, flat.dtype)
    made[m] = flat
    return made


@cache
def fragment_places(columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each register and lane of a warpgroup's accumulator: (columns / 2, 128)."""
    thread = np.arange(128)
    register = np.arange(columns // 2)[:, None]
    row = thread // WARP * 16 + thread % WARP // 4 + 8 * (register // 2 % 2)
    column = register // 4 * 8 + thread % 4 * 2 + register % 2
    return row, column
