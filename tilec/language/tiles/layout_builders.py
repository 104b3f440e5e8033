"""Layouts by name: swizzles of shared tiles, fragments of small matrices, copies in all threads."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from tilec.errors import SourceValueError
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.layouts.layout import Fragment, Layout, WithCopies
from tilec.language.values.scalars import dtype as make_dtype

#: Bytes of a vector: what swizzles move as one.
_VECTOR = 16
#: Bytes of a row that a swizzle permutes -> rows that share a permutation.
_SWIZZLES = {128: 1, 64: 2, 32: 4}


class SwizzleMode(IntEnum):
    """How rows of a shared tile are permuted, numbered as in descriptors of wgmma (PTX ISA, "Matrix
    Descriptor Format", layout types)."""

    NONE = 0
    SWIZZLE_128B = 1
    SWIZZLE_64B = 2
    SWIZZLE_32B = 3

    def is_none(self) -> bool:
        """Whether rows stay as they are."""
        return self is SwizzleMode.NONE

    def is_swizzle_32b(self) -> bool:
        """Whether vectors are permuted within 32 bytes."""
        return self is SwizzleMode.SWIZZLE_32B

    def is_swizzle_64b(self) -> bool:
        """Whether vectors are permuted within 64 bytes."""
        return self is SwizzleMode.SWIZZLE_64B

    def is_swizzle_128b(self) -> bool:
        """Whether vectors are permuted within 128 bytes."""
        return self is SwizzleMode.SWIZZLE_128B

    def swizzle_byte_size(self) -> int:
        """Bytes of a row within which vectors are permuted; 1 without a permutation."""
        return 1 if self.is_none() else 256 >> self.value

    def swizzle_atom_size(self) -> int:
        """Vectors of 16 bytes that are permuted among each other; 1 without a permutation."""
        return max(1, self.swizzle_byte_size() // _VECTOR)


def make_swizzled_layout(buffer: Any, k_major: bool = True, allow_pad: bool = True) -> Layout:
    """A layout of a shared tile in which columns of 16-byte vectors meet no bank twice, where rows allow."""
    row = _row_bytes(buffer)
    width = next((width for width in _SWIZZLES if row % width == 0), None)
    return make_linear_layout(buffer) if width is None else _swizzled(buffer, width)


def make_wgmma_swizzled_layout(buffer: Any, continuity: int | None = None, k_major: bool = True) -> Layout:
    """As `make_swizzled_layout`; ``continuity`` are the neighbouring elements of a row that wgmma reads."""
    return make_swizzled_layout(buffer, k_major)


def make_volta_swizzled_layout(buffer: Any, is_a: bool = True, k_inner: bool = True) -> Layout:
    """As `make_swizzled_layout`: targets that take Volta's own do not exist here."""
    return make_swizzled_layout(buffer)


def make_full_bank_swizzled_layout(buffer: Any) -> Layout:
    """Vectors of 128 bytes permuted by the row. `SourceValueError` for rows of other lengths."""
    return _swizzled(buffer, 128)


def make_half_bank_swizzled_layout(buffer: Any) -> Layout:
    """Vectors of 64 bytes permuted by pairs of rows. `SourceValueError` for rows of other lengths."""
    return _swizzled(buffer, 64)


def make_quarter_bank_swizzled_layout(buffer: Any) -> Layout:
    """Vectors of 32 bytes permuted by fours of rows. `SourceValueError` for rows of other lengths."""
    return _swizzled(buffer, 32)


def make_linear_layout(buffer: Any) -> Layout:
    """Row-major order."""
    return Layout(_shape(buffer))


def make_gemm_fragment_8x8() -> Fragment:
    """An 8x8 matrix over a warp: a lane holds two neighbours of a row."""
    return Fragment((8, 8), lambda i, j: (i * 4 + j // 2, j % 2))


def make_gemm_fragment_8x8_transposed() -> Fragment:
    """An 8x8 matrix over a warp: a lane holds two neighbours of a column."""
    return Fragment((8, 8), lambda i, j: (j * 4 + i // 2, i % 2))


def make_fully_replicated_layout_fragment(buffer: Any, threads: int) -> Fragment:
    """Every one of ``threads`` threads holds all elements."""
    linear = make_linear_layout(buffer)
    return Fragment(
        linear.shape,
        forward_thread_fn=WithCopies(lambda *indices: indices[-1]),
        replicate=threads,
        forward_index_fn=lambda *indices: linear.map_forward_index(indices),
    )


def get_swizzle_layout(
    row: Any, column: Any, row_size: int, dtype: Any, swizzle_bytes: int | None = None
) -> Any:
    """Where element (``row``, ``column``) of a tile with rows of ``row_size`` elements lies, swizzled."""
    kind = make_dtype(dtype)
    row_bytes = row_size * kind.bits // 8
    width = swizzle_bytes or next((width for width in _SWIZZLES if row_bytes % width == 0), None)
    if width is None:
        return row, column
    return row, _permuted(row, column, width, _VECTOR * 8 // kind.bits)


def make_mma_swizzle_layout(shared_buf: Any, is_smooth: bool = False) -> Layout:
    """The layout by `get_swizzle_layout`; ``is_smooth`` keeps row-major order."""
    *_, columns = _shape(shared_buf)
    if is_smooth:
        return Layout(_shape(shared_buf), lambda *indices: indices)

    def forward(*indices: Any) -> tuple[Any, ...]:
        *outer, row, column = indices
        return (*outer, *get_swizzle_layout(row, column, columns, shared_buf.dtype))

    return Layout(_shape(shared_buf), forward)


def _refused(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> None:
        raise unsupported(f"tilec.layout.{name}", remedy="leave the layout out: the compiler finds one")

    call.__name__, call.__doc__ = name, "Not offered: for hardware that is no target."
    return call


make_tcgen05mma_swizzled_layout = _refused("make_tcgen05mma_swizzled_layout")


def make_cutlass_metadata_layout(
    buffer: Any, mma_dtype: Any = "float16", arch: Any = None, **extra_args: Any
) -> Layout:
    """The order of the places of a sparse operand, which is that of rows here: `tilec.utils.sparse.compress`
    makes them so, and ``T.gemm_sp`` reads them so. The order of CUTLASS's own compressors is another one."""
    return make_linear_layout(buffer)


def _shape(buffer: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in buffer.shape)


def _row_bytes(buffer: Any) -> int:
    return _shape(buffer)[-1] * int(buffer.dtype.bits) // 8


def _swizzled(buffer: Any, width: int) -> Layout:
    """Vectors within ``width`` bytes of a row, permuted by the row's number."""
    shape, row = _shape(buffer), _row_bytes(buffer)
    if len(shape) < 2 or row % width:
        raise source_error(
            SourceValueError,
            f"{buffer.name} has rows of {row} bytes, no multiple of {width}",
            construct="tilec.layout",
            remedy="use make_swizzled_layout, which takes the width that fits",
        )
    vector = _VECTOR * 8 // int(buffer.dtype.bits)

    def forward(*indices: Any) -> tuple[Any, ...]:
        *outer, line, column = indices
        return (*outer, line, _permuted(line, column, width, vector))

    return Layout(shape, forward)


def _permuted(row: Any, column: Any, width: int, vector: int) -> Any:
    """The column with the number of its vector, within ``width`` bytes, combined with that of the row."""
    count = width // _VECTOR
    chunk, rest = column // vector, column % vector
    turned = (chunk % count) ^ (row // _SWIZZLES[width] % count)
    return (chunk // count * count + turned) * vector + rest
