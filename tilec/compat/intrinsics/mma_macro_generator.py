"""Products by hand: what threads load, multiply and store, tile by tile of mma.sync.

An emitter adds the statements of one warp's part to the kernel in which its methods are called. Fragments are
thread-local arrays: ``warp_rows * local_size_a`` elements of A, ``warp_cols * local_size_b`` of B and
``warp_rows * warp_cols * local_size_out`` sums, tile after tile as `tilec.intrinsics.mma_layout` says.
"""

from __future__ import annotations

from typing import Any

from tilec.errors import SourceValueError
from tilec.language.control.loops import serial, unroll
from tilec.language.threads.fragment_instructions import element_of, ptx_ldmatrix, ptx_mma
from tilec.language.threads.indices import get_thread_binding, linear_index
from tilec.language.tiles.memory.element_pointers import address_of
from tilec.language.values.kernel.places import source_error
from tilec.language.values.scalars import dtype as make_dtype
from tilec.packages import names_of_others

from .mma_layout import (
    ldmatrix_32x8_to_shared_16x16_layout,
    ldmatrix_trans_32x8_to_shared_16x16_layout,
    mma_load_a_32x4_to_shared_16x8_layout,
    mma_load_a_32x8_to_shared_16x16_layout,
    mma_load_a_32x16_to_shared_16x32_layout,
    mma_load_b_32x4_to_shared_16x8_layout,
    mma_load_b_32x8_to_shared_16x16_layout,
    mma_load_b_32x16_to_shared_16x32_layout,
    mma_store_32x8_to_shared_16x16_layout,
)

#: The short names that `ptx_mma` has for dtypes.
_SHORT = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "int8": "int8", "uint8": "uint8",
    "int32": "int32", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
}  # fmt: skip
#: What a lane holds of A and of B, by the bits of an element.
_HELD = {
    32: (mma_load_a_32x4_to_shared_16x8_layout, mma_load_b_32x4_to_shared_16x8_layout),
    16: (mma_load_a_32x8_to_shared_16x16_layout, mma_load_b_32x8_to_shared_16x16_layout),
    8: (mma_load_a_32x16_to_shared_16x32_layout, mma_load_b_32x16_to_shared_16x32_layout),
}


class TensorCoreIntrinEmitter:
    """One warp's part of C += A B, for ``block_row_warps`` x ``block_col_warps`` warps that take
    ``warp_row_tiles`` x ``warp_col_tiles`` elements of C each, and ``chunk`` of K.

    A is (M, K) in shared memory, or (K, M) if ``a_transposed``; B (K, N), or (N, K) if ``b_transposed``.
    ``reduce_k`` warps share K. Warps are numbered along M first, along N if ``is_m_first``; ``thread_var`` is
    the thread, else the one at hand. Raises `SourceValueError` for sizes that are no whole tiles."""

    M_DIM, N_DIM, WARP_SIZE = 16, 16, 32

    def __init__(
        self,
        a_dtype: Any = "float16",
        b_dtype: Any = "float16",
        accum_dtype: Any = "float16",
        a_transposed: bool = False,
        b_transposed: bool = False,
        block_row_warps: int = 2,
        block_col_warps: int = 2,
        warp_row_tiles: int = 16,
        warp_col_tiles: int = 16,
        chunk: int = 16,
        reduce_k: int = 1,
        num_elems_per_byte: int = 1,
        is_m_first: bool = False,
        thread_var: Any = None,
    ) -> None:
        self.a_dtype, self.b_dtype, self.accum_dtype = map(make_dtype, (a_dtype, b_dtype, accum_dtype))
        self.a_transposed, self.b_transposed = a_transposed, b_transposed
        self.block_row_warps, self.block_col_warps = block_row_warps, block_col_warps
        self.warp_row_tiles, self.warp_col_tiles = warp_row_tiles, warp_col_tiles
        self.chunk, self.reduce_k, self.is_m_first = chunk, reduce_k, is_m_first
        self.num_elems_per_byte, self.thread_var = num_elems_per_byte, thread_var
        self.micro_size_x = self.M_DIM
        self.micro_size_y = self.n_dim = 16 if warp_col_tiles % 16 == 0 else 8
        self.micro_size_k = self.k_dim = 256 // self.a_dtype.bits
        self._check()
        self.warp_rows = warp_row_tiles // self.micro_size_x
        self.warp_cols = warp_col_tiles // self.micro_size_y
        self.local_size_a = self.micro_size_x * self.micro_size_k // self.WARP_SIZE
        self.local_size_b = self.micro_size_y * self.micro_size_k // self.WARP_SIZE
        self.local_size_out = self.micro_size_x * self.micro_size_y // self.WARP_SIZE
        self.threads = self.WARP_SIZE * block_row_warps * block_col_warps * reduce_k
        self.mma_prefix = f"m16n8k{self.micro_size_k}"

    def _check(self) -> None:
        sizes = (
            ("warp_row_tiles", self.warp_row_tiles, 16),
            ("warp_col_tiles", self.warp_col_tiles, 8),
            ("chunk", self.chunk, self.micro_size_k),
        )
        for name, value, unit in sizes:
            if value < unit or value % unit:
                raise source_error(
                    SourceValueError,
                    f"{name} = {value} of TensorCoreIntrinEmitter is no multiple of {unit}",
                    construct="TensorCoreIntrinEmitter",
                    why=f"tiles are of 16 x {self.micro_size_y} sums and {self.micro_size_k} along K",
                    remedy=f"use a multiple of {unit}",
                )
        bits = self.a_dtype.bits
        if bits in _HELD and self.b_dtype.bits == bits and self.num_elems_per_byte == 1:
            return
        raise source_error(
            SourceValueError,
            f"TensorCoreIntrinEmitter of {self.a_dtype} and {self.b_dtype}, {self.num_elems_per_byte} a byte",
            construct="TensorCoreIntrinEmitter",
            remedy="use operands of one width: 8, 16 or 32 bits, one element each",
        )

    # ---- threads ----

    def get_thread_binding(self) -> Any:
        """The thread: the given one, or the first index."""
        if self.thread_var is not None:
            return self.thread_var
        return get_thread_binding(0) if self.reduce_k > 1 else linear_index("TensorCoreIntrinEmitter")

    def extract_thread_binding(self, thread_id: Any, is_m_first: bool | None = None) -> tuple[Any, Any, Any]:
        """Lane, warp along N and warp along M of a thread."""
        along_n_first = self.is_m_first if is_m_first is None else is_m_first
        warp, lane = thread_id // self.WARP_SIZE, thread_id % self.WARP_SIZE
        rows, columns = self.block_row_warps, self.block_col_warps
        if along_n_first:
            return lane, warp % columns, warp // columns % rows
        return lane, warp // rows % columns, warp % rows

    def get_store_index_map(self, inverse: bool = False) -> Any:
        """The function of lane and element that gives row and column of a tile's sums. Raises
        `SourceValueError` for the inverse."""
        if not inverse:
            return mma_store_32x8_to_shared_16x16_layout
        raise source_error(
            SourceValueError,
            "TensorCoreIntrinEmitter.get_store_index_map(inverse=True)",
            remedy="take the map itself, which has an element for each lane and local index",
        )

    # ---- operands ----

    def ldmatrix_a(self, A_local_buf: Any, A_shared_buf: Any, ki: Any, rk: Any = 0) -> None:
        """Loads this warp's rows of A, ``ki`` tiles along K into the chunk (of the ``rk``th warp of K)."""
        lane, _, warp_m = self.extract_thread_binding(self.get_thread_binding())
        along_k = self._along_k(ki, rk)
        loop = unroll(self.warp_rows)
        tile = loop.open()
        row = warp_m * self.warp_row_tiles + tile * self.micro_size_x
        target = (A_local_buf, tile * self.local_size_a, self.local_size_a)
        self._load(target, A_shared_buf, (row, along_k), lane, "A", self.a_transposed)
        loop.close()

    def ldmatrix_b(self, B_local_buf: Any, B_shared_buf: Any, ki: Any, rk: Any = 0) -> None:
        """Loads this warp's columns of B, as `ldmatrix_a`."""
        lane, warp_n, _ = self.extract_thread_binding(self.get_thread_binding())
        along_k = self._along_k(ki, rk)
        loop = unroll(self.warp_cols)
        tile = loop.open()
        column = warp_n * self.warp_col_tiles + tile * self.micro_size_y
        target = (B_local_buf, tile * self.local_size_b, self.local_size_b)
        self._load(target, B_shared_buf, (column, along_k), lane, "B", not self.b_transposed)
        loop.close()

    def _along_k(self, ki: Any, rk: Any) -> Any:
        return rk * self.chunk + ki * self.micro_size_k

    def _load(
        self,
        target: tuple[Any, Any, int],
        shared: Any,
        corner: tuple[Any, Any],
        lane: Any,
        matrix: str,
        turned: bool,
    ) -> None:
        """One tile from (row or column, K) on; ``turned``: stored with K first."""
        local, offset, count = target
        bits = self.a_dtype.bits
        if turned and bits != 16:
            return self._by_elements(target, shared, corner, lane, matrix)
        registers = count * bits // 32
        item, k = self._named_row(lane, matrix, turned)
        place = (corner[1] + k, corner[0] + item) if turned else (corner[0] + item, corner[1] + k)
        row = address_of(_at(shared, place))
        return ptx_ldmatrix(self.a_dtype, turned, registers, ".b16", local, offset, row, 0)

    def _named_row(self, lane: Any, matrix: str, turned: bool) -> tuple[Any, Any]:
        """The row that a lane names: its place along M or N, and along K."""
        straight = ldmatrix_32x8_to_shared_16x16_layout
        other = ldmatrix_trans_32x8_to_shared_16x16_layout
        if self.n_dim == 8 and matrix == "B":
            lane = lane % 16
        first, second = (straight if (matrix == "A") != turned else other)(lane, 0)
        scale = 128 // self.a_dtype.bits
        if turned:
            return second, first
        return first, second // 8 * scale

    def _by_elements(
        self, target: tuple[Any, Any, int], shared: Any, corner: tuple[Any, Any], lane: Any, matrix: str
    ) -> None:
        """What ldmatrix does not turn round: each lane reads its elements."""
        local, offset, count = target
        held = _HELD[self.a_dtype.bits][matrix == "B"]
        loop = unroll(count)
        element = loop.open()
        item, k = held(lane, element)
        _at(local, (offset + element,)).store(_at(shared, (corner[1] + k, corner[0] + item)))
        loop.close()

    # ---- products ----

    def mma(self, A_local_buf: Any, B_local_buf: Any, C_local_buf: Any, k_inner: Any = 0) -> None:
        """Multiplies the tiles at hand (of several those of ``k_inner``) and adds to the sums."""
        a_start = k_inner * self.warp_rows * self.local_size_a
        b_start = k_inner * self.warp_cols * self.local_size_b
        rows = unroll(self.warp_rows)
        i = rows.open()
        columns = unroll(self.warp_cols)
        j = columns.open()
        for half in range(self.n_dim // 8):
            self._multiply(
                (A_local_buf, a_start + i * self.local_size_a),
                (B_local_buf, b_start + j * self.local_size_b + half * self.local_size_b // 2),
                (C_local_buf, (i * self.warp_cols + j) * self.local_size_out + half * 4),
            )
        columns.close()
        rows.close()

    def _multiply(self, a: tuple[Any, Any], b: tuple[Any, Any], c: tuple[Any, Any]) -> None:
        left, right, sums = (_SHORT[kind] for kind in (self.a_dtype, self.b_dtype, self.accum_dtype))
        ptx_mma(self.accum_dtype, self.mma_prefix, "row", "col", left, right, sums, *a, *b, *c)

    def stmatrix(self, C_local_buf: Any, C_buf: Any, pid_m: Any = None, pid_n: Any = None) -> None:
        """Stores the sums: to a shared tile (rows, columns) or (row tiles, column tiles, 16, n), or, with
        ``pid_m`` and ``pid_n``, to this block's part of a tensor."""
        lane, warp_n, warp_m = self.extract_thread_binding(self.get_thread_binding())
        rows, columns, elements = unroll(self.warp_rows), unroll(self.warp_cols), serial(self.local_size_out)
        i, j, element = rows.open(), columns.open(), elements.open()
        row, column = mma_store_32x8_to_shared_16x16_layout(lane, element)
        down, across = warp_m * self.warp_rows + i, warp_n * self.warp_cols + j
        if pid_m is not None and pid_n is not None:
            down = down + pid_m * (self.block_row_warps * self.warp_rows)
            across = across + pid_n * (self.block_col_warps * self.warp_cols)
        place: tuple[Any, ...] = (down, across, row, column)
        if len(C_buf.shape) == 2:
            place = (down * self.micro_size_x + row, across * self.micro_size_y + column)
        held = (i * self.warp_cols + j) * self.local_size_out + element
        _at(C_buf, place).store(_at(C_local_buf, (held,)))
        for loop in (elements, columns, rows):
            loop.close()


def _at(buffer: Any, place: tuple[Any, ...]) -> Any:
    """An element; of a flat place in a buffer of several axes, that one in row-major order."""
    return buffer[place] if len(buffer.shape) == len(place) else element_of(buffer, place[0])


#: Emitters and layouts of other instructions.
__getattr__ = names_of_others(__name__)

__all__ = ["TensorCoreIntrinEmitter"]
