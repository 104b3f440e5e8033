"""wgmma: which products it takes as they stand, how warpgroups share a tile, how operands lie in shared
memory.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": M is 64, N a multiple of 8 up to 256 (of integers
8, 24 or a multiple of 16), K 32 bytes; wgmma.sp takes 32 bytes of A's values and 64 of B. B is read from
shared memory, A from there or from registers. Operands lie in slabs of 128, 64 or 32 bytes of their
contiguous dimension, whose 16-byte chunks are swapped in the pattern that TMA writes, too.
16-bit operands may have either dimension contiguous, all others K alone: lanes bring those of A from the
other side to registers (`tilec.backends.cuda.analysis.products.turn_operands`).
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, TypeGuard

from tvm import sym

from tilec.backends.cuda.analysis.layouts.fragments import WARPS_OF_A_GROUP, accumulator_layout
from tilec.backends.cuda.analysis.layouts.tiles import alike, is_slice, static_extents, swizzled
from tilec.backends.cuda.analysis.products.mma import dtypes, extents, is_register_operand
from tilec.backends.cuda.analysis.products.turn_operands import (
    HELD,
    SHARED,
    Kind,
    is_read_across,
    turned,
)
from tilec.backends.cuda.nodes import WarpGemm, WarpgroupProduct, WarpTile
from tilec.ir.exprs import int_value
from tilec.ir.layout import Digit, Layout, Swizzle
from tilec.ir.nodes import Alloc, Gemm, SparseGemm, Unscaled, walk
from tilec.ir.nodes.barriers import WARP, WARPGROUP, Group
from tilec.ir.traits import buffers, written
from tilec.lowering.analysis.uses import addressed_in
from tilec.lowering.emission.storage import element_bytes
from tilec.targets import registers_of_a_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tvm.ir import Var

    from tilec.ir.nodes import Launch, Region, Stmt

ROWS, STEP_BYTES, WIDEST = 64, 32, 256
#: Rows after which the pattern of a slab repeats, and bytes of a chunk that it moves.
GROUP_ROWS, CHUNK = 8, 16
#: Bytes of a slab's rows, widest first.
SLABS = (128, 64, 32)

FLOATS = {"float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
INTEGERS = {"int8": "s8", "uint8": "u8"}
#: Registers that the assembler wants at launch beside the sums of one product, whatever setmaxnreg hands on:
#: of 158 it speaks for m64n256 (NVRTC 12.9 and 13).
_BESIDE_SUMS = 30


def instruction_types(types: tuple[str, str, str]) -> str | None:
    """The types of A, B and C in an instruction's name, PTX's order C, A, B; None where wgmma lacks them."""
    a, b, c = types
    if a in INTEGERS and b in INTEGERS:
        return f"s32.{INTEGERS[a]}.{INTEGERS[b]}" if c == "int32" else None
    if (a, b, c) == ("float32", "float32", "float32"):
        return "f32.tf32.tf32"
    sums = {"float32": "f32", "float16": "f16"}.get(c)
    if a not in FLOATS or b not in FLOATS or sums is None or (sums == "f16" and "bfloat16" in (a, b)):
        return None
    same = a == b or element_bytes(a) == element_bytes(b) == 1
    return f"{sums}.{FLOATS[a]}.{FLOATS[b]}" if same else None


def holds_product(columns: int, threads: int) -> bool:
    """Whether ``threads`` on a multiprocessor have the registers at launch that a product of so many columns
    wants, with sums of 32 bits."""
    return registers_of_product(columns) <= registers_of_a_thread(threads)


def registers_of_product(columns: int) -> int:
    """Registers that a product of so many columns wants, with sums of 32 bits."""
    return columns // 2 + _BESIDE_SUMS


class Chooser:
    """Which products of a launch wgmma carries out. ``against``: the pass config that keeps it from that."""

    def __init__(self, launch: Launch, against: object) -> None:
        self._against = against
        odd = (stmt for stmt in walk(launch.body) if isinstance(stmt, Group) and stmt.first % WARPGROUP)
        self._odd = {inner for group in odd for inner in walk(group.body)}
        allocs = [stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc)]
        self._asked = {stmt.buffer: stmt.asked.layout for stmt in allocs if stmt.asked is not None}
        self._addressed = addressed_in(launch.body)
        self._body = launch.body
        self._products = [stmt for stmt in walk(launch.body) if isinstance(stmt, Unscaled)]

    def product(self, gemm: Unscaled, warps: int) -> tuple[WarpTile, str] | str:
        """As `group_tile`, with what of the launch keeps a product from wgmma."""
        return self._obstacle(gemm) or group_tile(self.turned(gemm)[1], warps)

    def takes(self, stmt: Stmt, warps: int) -> TypeGuard[Gemm]:
        """Whether wgmma carries out a statement, a product of dense operands."""
        return isinstance(stmt, Gemm) and not isinstance(self.product(stmt, warps), str)

    def takes_in(self, stmt: Stmt, group: Group) -> TypeGuard[Gemm]:
        """As `takes`, for the warps of a group."""
        return self.takes(stmt, group.count // WARP)

    def turned(self, gemm: Kind, scopes: tuple[str, ...] = (SHARED, HELD)) -> tuple[list[Stmt], Kind]:
        """As `tilec.backends.cuda.analysis.products.turn_operands.turned`: lanes read the first operand of
        products whose sums have no others and become nobody's operand in registers, as they lie in another
        order then."""
        sums = gemm.c.buffer
        alike = [other for other in self._products if other.c.buffer.same_as(sums)]
        dense = isinstance(gemm, Gemm) and sums not in self._handed_on
        free = dense and all(map(is_read_across, alike))
        return turned(gemm, scopes, free and _is_of_slabs(gemm.a))

    @cached_property
    def _handed_on(self) -> set[Var]:
        """What statements that write operands in registers name beside them."""
        held = {stmt.a.buffer for stmt in self._products if stmt.a.buffer.scope() == HELD}
        return {name for stmt in walk(self._body) if held & set(written(stmt)) for name in buffers(stmt)}

    def _obstacle(self, gemm: Unscaled) -> str | None:
        if self._against is not None:
            return f"the pass config {self._against} is set"
        if gemm in self._odd:
            return f"its group of threads does not begin with a warpgroup of {WARPGROUP}"
        if not is_slice(gemm.c):
            return "its result is no equal slice of a fragment"
        for tile in (gemm.a.buffer, gemm.b.buffer):
            if tile in self._addressed:
                return f"foreign code gets the address of {tile.name}"
            layout = self._asked.get(tile)
            if layout is not None and tile.scope() == "shared.dyn" and not _is_slab(tile, layout):
                return f"T.annotate_layout gives {tile.name} another order than wgmma reads"
        return None


def _is_of_slabs(region: Region) -> bool:
    """Whether lanes find an operand in slabs."""
    return region.buffer.scope() == SHARED and is_operand(region, True)


def _is_slab(tile: Var, layout: Layout) -> bool:
    return slab_bytes(tile) != 0 and alike(layout, slabs(tile))


def group_tile(gemm: Unscaled, warps: int) -> tuple[WarpTile, str] | str:
    """How ``warps`` warps, from a warpgroup's first one on, compute a product, and the types of the
    instruction; or the reason why wgmma cannot. Steps of a sparse product are those of its values."""
    types, sizes = dtypes(gemm), extents(gemm)
    spelled = instruction_types(types)
    if spelled is None:
        return f"wgmma has no product of {types[0]} and {types[1]} into {types[2]}"
    if sizes is None:
        return "its extents are run-time values"
    if warps % WARPS_OF_A_GROUP:
        return f"{warps} warps are no whole warpgroups"
    rows, columns, depth = sizes
    shared = _shares(rows, columns, warps // WARPS_OF_A_GROUP, types[2], gemm)
    if shared is None:
        groups = warps // WARPS_OF_A_GROUP
        return f"{groups} warpgroups cannot share {rows} x {columns} sums, {ROWS} rows by 8 columns"
    reason = next(_obstacles(gemm, depth, types), None)
    if reason is not None:
        return reason
    down, across, width = shared
    tile = WarpTile(
        f"m{ROWS}n{width}k{_spread(gemm) * STEP_BYTES // element_bytes(types[0])}",
        (WARPS_OF_A_GROUP * down, across),
        (rows // ROWS // down, columns // across // 8),
        depth * element_bytes(types[0]) // STEP_BYTES,
    )
    return tile, spelled


def _spread(gemm: Unscaled) -> int:
    """Elements of B along K for each element of A."""
    return 2 if isinstance(gemm, SparseGemm) else 1


def _shares(rows: int, columns: int, groups: int, dtype: str, gemm: Unscaled) -> tuple[int, int, int] | None:
    """Rows and columns of warpgroups and the columns of an instruction: as many rows of warpgroups as there
    are rows for, as B is then read by all of them at once."""
    for down in range(groups, 0, -1):
        across = groups // down
        if groups % down or rows % (ROWS * down) or columns % across:
            continue
        width = _width(columns // across, dtype, (groups + 1) * WARPGROUP)
        if width is not None and (across == 1 or _is_cut(gemm, columns // across)):
            return down, across, width
    return None


def _width(columns: int, dtype: str, threads: int) -> int | None:
    """The columns of one instruction among those of a warpgroup: as many as can be where ``threads`` share a
    multiprocessor."""
    for count in range(1, columns // 8 + 1):
        width = columns // count
        if columns % count or width > WIDEST or width % 8 or not holds_product(width, threads):
            continue
        if dtype != "int32" or width in (8, 24) or width % 16 == 0:
            return width
    return None


def _is_cut(gemm: Unscaled, columns: int) -> bool:
    """Whether B may be taken in parts of so many columns: of whole slabs, or equal parts of one."""
    taken, slab = columns * element_bytes(str(gemm.b.buffer.dtype)), slab_bytes(gemm.b.buffer)
    return gemm.trans_b or (slab != 0 and (taken % slab == 0 or slab % taken == 0))


def _obstacles(gemm: Unscaled, depth: int, types: tuple[str, str, str]) -> Iterator[str]:
    size, spread = element_bytes(types[0]), _spread(gemm)
    by_lanes = gemm.a if isinstance(gemm, Gemm) and is_read_across(gemm) else None
    if depth * size % STEP_BYTES:
        yield f"K = {spread * depth} is no multiple of {spread * STEP_BYTES // size}"
    for name, region, across, step in (
        ("A", gemm.a, gemm.trans_a, STEP_BYTES),
        ("B", gemm.b, not gemm.trans_b, spread * STEP_BYTES),
    ):
        if name == "A" and is_register_operand(gemm, True):
            continue
        if across and element_bytes(str(region.buffer.dtype)) != 2 and region is not by_lanes:
            yield f"{name} of {region.buffer.dtype} is stored across K"
        in_memory = region.buffer.scope() == SHARED
        if not (is_operand(region, across, step) if in_memory else _is_stageable(region, across, step)):
            yield f"{region.buffer.name} is no tile, or part of one, that descriptors describe"
    if gemm.c.buffer.scope() == "local.fragment" and not _has_constant_place(gemm.c):
        yield f"which part of {gemm.c.buffer.name} it adds to is known at run time only"


def _has_constant_place(region: Region) -> bool:
    """Whether the registers of sums are known."""
    return all(int_value(start) is not None for start in region.start[-2:])


def is_operand(region: Region, across: bool, step: int = STEP_BYTES) -> bool:
    """Whether a region of a shared tile lies as descriptors say: slabs of whole groups of rows; of those
    that are not stored ``across`` K, whole steps of so many bytes, none of which goes over a slab's end."""
    shape = static_extents(region.buffer)
    if len(shape) < 2 or slab_bytes(region.buffer) == 0 or shape[-2] % GROUP_ROWS:
        return False
    if not across and slab_bytes(region.buffer) % step:
        return False
    size = element_bytes(str(region.buffer.dtype))
    width = (slab_bytes(region.buffer) if across else step) // size
    whole = int_value(region.extent[-1]) == shape[-1]
    units = (GROUP_ROWS, 1 if whole else width)
    if any(int_value(extent) != 1 for extent in region.extent[:-2]):
        return False
    if not all(_is_multiple(start, unit) for start, unit in zip(region.start[-2:], units, strict=True)):
        return False
    return across or whole or _is_multiple(region.extent[-1], width)


def _is_stageable(region: Region, across: bool, step: int) -> bool:
    """Whether a copy of a region in shared memory is an operand."""
    rows, columns = (int_value(extent) or 0 for extent in region.extent[-2:])
    row = SLABS[-1] if across else step
    return rows % GROUP_ROWS == 0 and columns * element_bytes(str(region.buffer.dtype)) % row == 0


def _is_multiple(start: object, unit: int) -> bool:
    known = int_value(start)
    if known is not None:
        return known % unit == 0
    found = sym.Analyzer().modular_set(start)
    return bool(found.coeff % unit == 0 and found.base % unit == 0)


def slab_bytes(tile: Var) -> int:
    """Bytes of a row of one slab of an operand: the widest that divide its rows; 0 where none does."""
    size = static_extents(tile)[-1] * element_bytes(str(tile.dtype))
    return next((slab for slab in SLABS if size % slab == 0), 0)


def sums_layout(gemm: WarpGemm, slices: tuple[int, int] = (1, 1)) -> Layout:
    """Where a product leaves its sums, of ``slices`` in one fragment: in the order of the rows that its lanes
    read."""
    by_lanes = isinstance(gemm, WarpgroupProduct) and is_read_across(gemm)
    size = element_bytes(str(gemm.a.buffer.dtype)) if by_lanes else 0
    return accumulator_layout(gemm.tile, slices, size)


def operand_in_memory(gemm: WarpGemm, tile: Var, across: bool) -> Layout:
    """Where a shared operand of a product lies, ``across`` its K: as descriptors say, or as ldmatrix likes
    it."""
    return slabs(tile) if isinstance(gemm, WarpgroupProduct) else swizzled(tile, across)


def slabs(tile: Var) -> Layout:
    """Slab after slab of columns, all rows of a slab one below the other; leading dimensions are versions."""
    return _slabs(static_extents(tile), element_bytes(str(tile.dtype)), slab_bytes(tile))


@lru_cache(maxsize=256)
def _slabs(shape: tuple[int, ...], size: int, slab: int) -> Layout:
    *lead, rows, columns = shape
    width, stride = slab // size, rows * columns
    digits: list[tuple[Digit, ...]] = []
    for extent in reversed(lead):
        digits.insert(0, (Digit(extent, stride),))
        stride *= extent
    digits += [(Digit(rows, width),), (Digit(width, 1), Digit(columns // width, rows * width))]
    return Layout(tuple(digits), Swizzle(width=slab // CHUNK, unit=CHUNK // size, row=SLABS[0] // size))


def wide_note(first: Region, seconds: Iterable[Region], columns: int) -> str:
    """What `explain` says of products of one first operand that are issued as one."""
    names = ", ".join(str(region.buffer.name) for region in seconds)
    return f"products of {first.buffer.name} with {names} are issued as one of {columns} columns"
