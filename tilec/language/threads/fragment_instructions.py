"""Instructions of tensor cores on what each thread holds: ptx_mma, ptx_mma_sp, ptx_ldmatrix, mma_fill,
mma_store.

Fragments are thread-local arrays (`T.alloc_local`) in the layouts of the PTX ISA ("Matrix Fragments for
mma"); all 32 lanes of a warp come to such a statement together.
"""

from __future__ import annotations

import math
from typing import Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.ir.nodes import threads as ir
from tilec.language.control.loops import serial
from tilec.language.threads.indices import get_lane_idx
from tilec.language.threads.lanes import of_each_thread
from tilec.language.threads.launches import current_launch
from tilec.language.tiles.memory.buffers import Buffer, Element, Handle
from tilec.language.tiles.memory.element_pointers import ElementPointer
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.operands import cast_value, expression, wrap
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value, resolve

#: The short names of dtypes that `ptx_mma` takes.
_SHORT = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "tf32": "float32", "int8": "int8",
    "uint8": "uint8", "int32": "int32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
    "float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
}  # fmt: skip


def ptx_mma(
    dtype: Any,
    shape: str,
    A_layout: str,
    B_layout: str,
    A_dtype: str,
    B_dtype: str,
    C_dtype: str,
    multiplicand_a: Any,
    a_index: Any,
    multiplicand_b: Any,
    b_index: Any,
    accumulator: Any,
    c_index: Any,
    saturate: Any = False,
    operator: Any = None,
) -> None:
    """``C += A @ B`` by one mma.sync of ``shape`` ("m16n8k16"), A in rows and B in columns: a lane's parts
    lie in the thread-local arrays from the indices on. ``multiplicand_a`` and the others are arrays or their
    ``.data``. Raises `SourceValueError` for shapes, layouts and dtypes without such an instruction."""
    from tilec.ir.analysis.threads.fragments import PRODUCTS

    construct = "T.ptx_mma"
    _check_form(construct, (A_layout, B_layout), saturate, operator)
    a = _local(multiplicand_a, a_index, construct)
    b = _local(multiplicand_b, b_index, construct)
    c = _local(accumulator, c_index, construct)
    named = (A_dtype, B_dtype, C_dtype)
    if not _is_one_of(PRODUCTS, shape, named, (a, b, c)):
        raise _unknown_product(
            construct, shape, named, (a, b, c),
            why="mma.sync has no such form, or the arrays are of other dtypes",
            remedy="use m16n8k16 for 16-bit, m16n8k32 for 8-bit types and m16n8k8 for float32",
        )  # fmt: skip
    stmt = ir.LaneMma(shape, c.buffer.var, c.indices, _read(a), _read(b), _lane(construct), loc=loc())
    of_each_thread(construct).emit(stmt, construct)


def ptx_mma_sp(
    dtype: Any,
    shape: str,
    A_layout: str,
    B_layout: str,
    A_dtype: str,
    B_dtype: str,
    C_dtype: str,
    multiplicand_a: Any,
    a_index: Any,
    multiplicand_b: Any,
    b_index: Any,
    accumulator: Any,
    c_index: Any,
    metadata: Any,
    meta_index: Any,
    sparse_selector: Any,
    saturate: Any = False,
) -> None:
    """`ptx_mma` by one mma.sp: ``multiplicand_a`` holds two values of each four along K, ``metadata`` a word
    (int32 or uint32) of their places, four bits for four columns, two for each value, the first one in front.
    ``sparse_selector``, known while building: which lanes of each four hold the places, 0 to 3 for m16n8k16,
    0 or 1 for m16n8k32, 0 for m16n8k64. Raises `SourceValueError` for what has no such instruction."""
    from tilec.ir.analysis.threads.fragments import PLACES, SPARSE_PRODUCTS, selectors

    construct = "T.ptx_mma_sp"
    _check_form(construct, (A_layout, B_layout), saturate, None)
    a = _local(multiplicand_a, a_index, construct)
    b = _local(multiplicand_b, b_index, construct)
    c = _local(accumulator, c_index, construct)
    e = _local(metadata, meta_index, construct)
    named = (A_dtype, B_dtype, C_dtype)
    if not _is_one_of(SPARSE_PRODUCTS, shape, named, (a, b, c)):
        raise _unknown_product(
            construct, shape, named, (a, b, c),
            why="it is not offered, or the arrays are of other dtypes",
            remedy="use m16n8k16 or m16n8k32 for 16-bit and m16n8k64 for 8-bit types, with sums of 32 bits",
        )  # fmt: skip
    selector, held = int(_constant(sparse_selector)), str(e.buffer.dtype)
    if selector not in range(selectors(shape)) or held not in PLACES:
        raise source_error(
            SourceValueError,
            f"{construct} {shape} with selector {selector} and places in {held}",
            construct=construct,
            why=f"selectors are below {selectors(shape)}, and a lane's places a word of 32 bits",
            remedy="give such a selector and an array of uint32",
        )
    operands = _read(a), _read(b), _lane(construct), _read(e)
    stmt = ir.LaneSparseMma(shape, c.buffer.var, c.indices, *operands, selector, loc=loc())
    of_each_thread(construct).emit(stmt, construct)


def ptx_ldmatrix(
    dtype: Any,
    trans: Any,
    num: int,
    type: str,
    local_ptr: Any,
    local_offset: Any,
    smem_ptr: Any,
    smem_offset: Any = 0,
) -> None:
    """Loads ``num`` (1, 2 or 4) matrices of eight rows of 16 bytes from a shared tile into a thread-local
    array from ``local_offset`` on: lane 8 i + r gives row r of matrix i, by its first element ``smem_ptr``
    (``T.address_of(A[i, j])``, or a tile) and ``smem_offset`` elements further. ``trans`` turns matrices of
    16-bit elements round."""
    construct = "T.ptx_ldmatrix"
    to, turned = _local(local_ptr, local_offset, construct), _is_true(trans)
    row = _shared(smem_ptr, smem_offset, construct)
    if num not in (1, 2, 4) or type not in (".b16", "b16"):
        raise source_error(
            SourceValueError,
            f"{construct} of {num} matrices of {type}",
            construct=construct,
            remedy='load 1, 2 or 4 matrices of ".b16"',
        )
    kinds = {str(part.buffer.dtype) for part in (to, row)}
    bits = make_dtype(to.buffer.dtype).bits
    if len(kinds) > 1 or bits not in (8, 16, 32) or (turned and bits != 16):
        raise source_error(
            SourceValueError,
            f"{construct} of {', '.join(sorted(kinds))}{', turned round' if turned else ''}",
            construct=construct,
            why="it copies 4 bytes a lane, and turns 16-bit elements round alone",
            remedy="use arrays of one dtype, or read the elements themselves",
        )
    stmt = ir.LaneLoad(to.buffer.var, to.indices, _read(row), num, turned, _lane(construct), loc=loc())
    of_each_thread(construct).emit(stmt, construct)


def mma_fill(dtype: Any, local_size: int, local_ptr: Any, offset: Any = 0) -> None:
    """Zeros in ``local_size`` elements of a thread-local array."""
    buffer = _array(local_ptr, "T.mma_fill")
    loop = serial(int(local_size))
    element_of(buffer, loop.open() + offset).store(cast_value(0, buffer.dtype))
    loop.close()


def index_of_sum(lane: Any, element: Any) -> tuple[Any, Any]:
    """Row and column of a lane's sums of two m16n8 products side by side."""
    column = element // 4 * 8 + lane % 4 * 2 + element % 2
    return lane // 4 + 8 * (element % 4 // 2), column


def mma_store(
    dtype: Any, m: int, n: int, dst_ptr: Any, src_ptr: Any, src_offset: Any, dst_stride: Any
) -> None:
    """Stores the sums of a 16 x 16 product (two of m16n8) from a thread-local array: row i, column j to the
    element ``i * dst_stride + j`` behind ``dst_ptr`` (``T.address_of(C[i, j])``, or a tile)."""
    construct = "T.mma_store"
    if (int(m), int(n)) != (16, 16):
        raise unsupported(f"{construct} of {m} x {n}", remedy="store the elements themselves")
    buffer, lane = _array(src_ptr, construct), get_lane_idx()
    loop = serial(8)
    place = loop.open()
    row, column = index_of_sum(lane, place)
    target = _moved(_pointer(dst_ptr, construct), row * dst_stride + column)
    target.store(element_of(buffer, place + src_offset))
    loop.close()


# ---- operands ----


def _check_form(construct: str, layouts: tuple[str, str], saturate: Any, operator: Any) -> None:
    if layouts == ("row", "col") and operator is None and not _is_true(saturate):
        return
    raise unsupported(
        f"{construct} with layouts {layouts[0]} and {layouts[1]}, saturation or an operator",
        remedy='use "row" and "col", and leave saturate and operator out',
    )


def _is_one_of(products: Any, shape: str, named: tuple[str, ...], arrays: tuple[Element, ...]) -> bool:
    """Whether there is such a product, and it is one of the dtypes of the arrays."""
    types = _dtypes(arrays)
    return types == tuple(_SHORT.get(name, name) for name in named) and (shape, types) in products


def _unknown_product(
    construct: str, shape: str, named: tuple[str, ...], arrays: tuple[Element, ...], why: str, remedy: str
) -> Exception:
    asked = ", ".join(_SHORT.get(name, name) for name in named)
    what = f"{construct} {shape} of {asked} on arrays of {', '.join(_dtypes(arrays))}"
    return source_error(SourceValueError, what, construct=construct, why=why, remedy=remedy)


def _dtypes(arrays: tuple[Element, ...]) -> tuple[str, ...]:
    return tuple(str(part.buffer.dtype) for part in arrays)


def _is_true(flag: Any) -> bool:
    return bool(_constant(flag))


def _constant(flag: Any) -> Any:
    """A flag or a number that is known while building."""
    found = resolve(flag)
    constant = sessions.constant(found.expr) if isinstance(found, Value) else found
    if constant is None:
        raise source_error(
            SourceTypeError,
            "a flag of an instruction is not known while building",
            remedy="give a constant, or a parameter of the factory",
        )
    return constant


def _lane(construct: str) -> Any:
    threads = math.prod(current_launch(construct).threads)
    if threads % ir.WARP:
        raise source_error(
            SourceValueError,
            f"{construct} in a block of {threads} threads",
            construct=construct,
            why="all 32 lanes of a warp take part",
            remedy=f"launch {-(-threads // ir.WARP) * ir.WARP} threads",
        )
    return cast_value(get_lane_idx(), make_dtype("int32")).expr


def _read(element: Element) -> Any:
    from tvm import tirx

    return tirx.BufferLoad(element.buffer.var, list(element.indices))


def _array(given: Any, construct: str) -> Buffer:
    """The buffer that an argument is, or whose ``.data`` it is."""
    found = resolve(given)
    if isinstance(found, Handle):
        return found.buffer
    if isinstance(found, Buffer):
        return found
    raise source_error(
        SourceTypeError,
        f"{construct} takes an array, not {found!r}",
        construct=construct,
        remedy="give the array of T.alloc_local, or its .data",
    )


def _local(given: Any, index: Any, construct: str) -> Element:
    """An element of a thread-local array by its number."""
    found = resolve(given)
    if isinstance(found, ElementPointer):
        element = _moved(found, index)
    else:
        element = element_of(_array(found, construct), index)
    if element.buffer.scope() == "local":
        return element
    raise source_error(
        SourceValueError,
        f"{construct} on {element.buffer.name} in {element.buffer.scope()} memory",
        construct=construct,
        why="a fragment is what a thread holds",
        remedy="use T.alloc_local",
    )


def _shared(given: Any, offset: Any, construct: str) -> Element:
    element = _moved(_pointer(given, construct), offset)
    if element.buffer.scope() == "shared.dyn":
        return element
    raise source_error(
        SourceValueError,
        f"{construct} from {element.buffer.name} in {element.buffer.scope()} memory",
        construct=construct,
        remedy="load from a tile of T.alloc_shared",
    )


def _pointer(given: Any, construct: str) -> ElementPointer:
    found = resolve(given)
    if isinstance(found, ElementPointer):
        return found
    if isinstance(found, Element):
        return ElementPointer(*found.place)
    buffer = _array(found, construct)
    return ElementPointer(buffer, tuple(wrap(0).expr for _ in buffer.shape))


def _moved(pointer: ElementPointer, distance: Any) -> Element:
    """The element so many further in row-major order."""
    if isinstance(distance, int) and distance == 0:
        return pointer.buffer.element(tuple(pointer.indices))
    linear = wrap(0)
    for index, extent in zip(pointer.indices, pointer.buffer.shape, strict=True):
        linear = linear * extent + Value(index)
    return element_of(pointer.buffer, linear + distance)


def element_of(buffer: Buffer, number: Any) -> Element:
    """An element by its number in row-major order."""
    indices: list[Any] = []
    left = wrap(number)
    for extent in reversed(buffer.shape[1:]):
        indices.insert(0, sessions.simplify((left % extent).expr))
        left = left // extent
    return buffer.element((sessions.simplify(expression(left, "an index")), *indices))


__all__ = ["mma_fill", "mma_store", "ptx_ldmatrix", "ptx_mma", "ptx_mma_sp"]
