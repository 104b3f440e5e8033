"""Buffers as the author sees them: tensors and tiles with checked indexing, elements and slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceError, SourceIndexError, SourceRuntimeError, SourceTypeError, SourceValueError
from tilec.ir import nodes as ir
from tilec.language.tiles.lane_stores import store_lanes
from tilec.language.values import session as sessions
from tilec.language.values.arithmetic import Arithmetic, no_array
from tilec.language.values.operand_errors import FOR_A_WHOLE, lacking, several
from tilec.language.values.operands import expression, operand, stored_value, warn_of_loss
from tilec.language.values.places import loc, source_error, unsupported
from tilec.language.values.scalars import dtype
from tilec.language.values.value import Value, Vector, are_several, check_alive, is_number, resolve

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.language.values.builder import Frame

_TURNED = "T.transpose on tiles, transpose_A and transpose_B of T.gemm, or A[j, i]"
_CAST = "T.copy to a tile of another dtype, or astype of elements"
#: What stands for attributes that arrays have.
_OF_ARRAYS = {
    "T": _TURNED, "mT": _TURNED, "transpose": _TURNED, "permute": _TURNED, "reshape": "T.reshape(A, shape)",
    "view": "T.view(A, shape, dtype)", "astype": _CAST, "to": _CAST, "sum": "T.reduce_sum",
    "max": "T.reduce_max", "min": "T.reduce_min", "size": "shape", "ndim": "len(A.shape)",
    "mean": "T.reduce_sum, and divide by the number of elements", "any": "T.any_of", "all": "T.all_of",
    "fill": "T.fill(A, value)", "fill_": "T.fill(A, value)", "zero_": "T.clear(A)", "clear": "T.clear(A)",
    "copy": "T.copy(A, B)", "copy_": "T.copy(B, A)", "clone": "T.copy to another tile",
    "load": "T.copy, or A[i, j]", "store": "T.copy, or A[i, j] = x", "item": "an element, A[0]",
    "numel": "shape", "dot": "T.gemm", "matmul": "T.gemm", "flatten": "T.reshape(A, shape)",
    "squeeze": "T.reshape(A, shape)", "unsqueeze": "T.reshape(A, shape)", "cumsum": "T.cumsum",
}  # fmt: skip
#: More blocks or trips than any index is asked about.
_FAR = 1 << 20


class Buffer:
    """A tensor parameter or an allocated tile. ``shape`` has ints, `Dim`s and expressions; ``var`` is TVM's
    buffer; ``frame`` the region that it lives in (None: the whole kernel)."""

    def __init__(
        self, var: Var, shape: tuple[Any, ...], *, strides: tuple[Any, ...] = (), frame: Frame | None = None
    ) -> None:
        self._var = var
        self.shape = shape
        self.is_strided = bool(strides)
        self.strides = strides or _row_major(shape)
        self.dtype = dtype(str(var.dtype))
        self.frame = frame
        self.safe_value: Expr | None = None

    @property
    def var(self) -> Var:
        """TVM's buffer. Raises `SourceRuntimeError` outside the region that the buffer lives in."""
        check_alive(self.frame, self.name)
        return self._var

    @property
    def memory(self) -> Var:
        """TVM's buffer of the memory that the elements lie in."""
        return self.var

    @property
    def name(self) -> str:
        """The buffer's name."""
        return str(self._var.name)

    def shape_params(self) -> ShapeParams:
        """The extents. Unpacked into names that hold sizes already, they have to be equal to those."""
        return ShapeParams(self.shape)

    def params(self) -> ShapeParams:
        """The extents and the dtype, as `shape_params`."""
        return ShapeParams((*self.shape, self.dtype))

    def __getattr__(self, name: str) -> Any:
        """Raises `UnsupportedError` for the low-level accesses that TVM's buffers have."""
        if name in ("access_ptr", "vload", "vstore", "offset_of"):
            raise unsupported(
                f"{name} of a buffer", remedy="index the buffer, or use T.access_ptr in a call of C code"
            )
        raise lacking("a buffer", name, _OF_ARRAYS)

    @property
    def data(self) -> Handle:
        """The memory, for an alias: ``T.Tensor(shape, dtype, buffer.data)``."""
        return Handle(self)

    def scope(self) -> str:
        """The memory it lives in, one of `tilec.ir.nodes.SCOPES`."""
        return str(self._var.scope())

    def scalars(self) -> Buffer:
        """The buffer that tile operations work on: itself, or the lanes of vectors."""
        return self

    def __getitem__(self, indices: Any) -> Any:
        items = self._items(indices)
        if any(isinstance(item, Vector) for item in items):
            return Vector(tuple(self[each] for each in _lane_indices(items)))
        if any(isinstance(item, slice) for item in items):
            return Slice(self, *self._box(items))
        return self.element(tuple(self._index(item, axis) for axis, item in enumerate(items)))

    def element(self, indices: tuple[Expr, ...]) -> Element:
        """One element."""
        return Element(self, indices)

    def open_bounds(self, indices: tuple[Expr, ...]) -> Expr | None:
        """The condition under which an element exists; None where that is certain."""
        from tvm import tirx

        conds = [cond for index, extent in zip(indices, self.shape, strict=True)
                 for cond in (index >= expression(0), index < expression(extent))]  # fmt: skip
        unknown = [cond for cond in conds if sessions.prove(cond) is not True]
        return reduce(tirx.And, unknown) if unknown else None

    def __setitem__(self, indices: Any, value: Any) -> None:
        target = self[indices]
        if isinstance(target, Vector):
            _store_lanes(target, value)
            return
        if isinstance(target, Slice):
            target.store(value)
            return
        if isinstance(value, (Buffer, Slice)):
            raise source_error(
                SourceTypeError, f"an element of {self.name} cannot hold a tile", remedy="use T.copy"
            )
        target.store(value)

    def __iter__(self) -> Iterator[Any]:
        raise source_error(
            SourceTypeError,
            f"buffer {self.name} cannot be iterated",
            remedy="loop with T.Parallel or T.serial",
        )

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"

    def __len__(self) -> int:
        raise source_error(
            SourceTypeError,
            f"len() does not take buffer {self.name}",
            remedy=f"use {self.name}.shape[0]",
        )

    def __bool__(self) -> bool:
        raise _no_truth(self.name, self.name, len(self.shape))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """What copy.copy, copy.deepcopy and pickle ask for; TVM's buffer would end the process."""
        raise source_error(
            SourceTypeError,
            f"Python cannot copy buffer {self.name}",
            why="it is a name of memory that exists when the kernel runs",
            remedy="allocate another tile and T.copy to it",
        )

    def described(self) -> str:
        """The buffer as errors list it."""
        return f"{self!r} in {self.scope()} memory"

    def _no_operand(self, other: Any = None) -> Any:
        raise source_error(
            SourceTypeError,
            f"buffer {self.name} is no operand",
            why="operators work on elements",
            remedy=f"compute {self.name}[i] for every i of a T.Parallel loop; T.gemm multiplies tiles",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _no_operand
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = _no_operand
    __rmatmul__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __and__ = __rand__ = _no_operand
    __or__ = __ror__ = __xor__ = __rxor__ = __lt__ = __le__ = __gt__ = __ge__ = _no_operand
    __neg__ = __pos__ = __abs__ = __invert__ = __divmod__ = __rdivmod__ = __round__ = _no_operand
    #: NumPy takes what it does not know for one number; with this it refuses.
    __array_ufunc__ = None

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        """NumPy's functions are for arrays; the shape they may have."""
        if function.__name__ == "shape":
            return self.shape
        raise no_array(function.__name__, f"buffer {self.name}", whole=True, instead=_OF_ARRAYS)

    def __eq__(self, other: object) -> bool:
        """Two names of one buffer are equal; a number is no answer about all of its elements."""
        return self._no_operand(other) if isinstance(other, Value) or is_number(other) else self is other

    __hash__ = object.__hash__

    def _items(self, indices: Any) -> tuple[Any, ...]:
        items = self._written_out(indices if isinstance(indices, tuple) else (indices,))
        if len(items) == len(self.shape):
            return items
        raise source_error(
            SourceIndexError,
            f"{self.name} has {len(self.shape)} axes, got {len(items)} indices",
            construct=self.name,
            why=f"its shape is {_shown(self.shape)}",
            remedy=_for_an_index(None)
            if any(item is None for item in items)
            else "give one index or slice per axis",
        )

    def _written_out(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        """Items with whole axes in the place of an ellipsis."""
        at = next((at for at, item in enumerate(items) if item is ...), None)
        if at is None:
            return items
        whole = (slice(None),) * (len(self.shape) - len(items) + 1)
        return (*items[:at], *whole, *items[at + 1 :])

    def _index(self, item: Any, axis: int) -> Expr:
        """One index as an expression: negative constants count from the end, constants must be in range."""
        given = expr = self._integer(item, axis)
        if _is_negative(expr, self.name):
            expr = sessions.simplify(expr + expression(self.shape[axis]))
        self._check_range(expr, axis, given)
        return expr

    def _integer(self, item: Any, axis: int) -> Expr:
        value = resolve(item)
        whole = isinstance(value, Value) or (is_number(value) and not isinstance(value, (bool, float)))
        expr = expression(value) if whole else None
        if expr is not None and str(expr.ty.dtype).lstrip("u").startswith("int"):
            return expr
        if are_several(value):
            raise several(f"index {axis} of {self.name} is {len(value)} indices, not one", self.name)
        raise source_error(
            SourceTypeError,
            f"index {axis} of {self.name} is {_typed(value)}, not an integer",
            construct=self.name,
            remedy=_for_an_index(value),
        )

    def _check_range(self, expr: Expr, axis: int, given: Expr) -> None:
        from tilec.ir.exprs import variables_of

        index, extent = sessions.constant(expr), _known(self.shape[axis])
        if index is None or variables_of([given]) or (index >= 0 and (extent is None or index < extent)):
            return
        raise source_error(
            SourceIndexError,
            f"index {sessions.simplify(given)} is out of range for axis {axis} of {self.name}",
            construct=self.name,
            why=f"its shape is {_shown(self.shape)}",
            remedy="stay within the shape; only indices known at run time alone may leave it",
        )

    def _box(self, items: tuple[Any, ...]) -> tuple[tuple[Expr, ...], tuple[Any, ...]]:
        spans = [self._span(item, axis) for axis, item in enumerate(items)]
        return tuple(start for start, _ in spans), tuple(extent for _, extent in spans)

    def _span(self, item: Any, axis: int) -> tuple[Expr, Any]:
        """Start and extent of one axis; a single index has extent 1."""
        if not isinstance(item, slice):
            return self._index(item, axis), 1
        if item.step not in (None, 1):
            raise source_error(
                SourceValueError,
                f"a slice of {self.name} has step {item.step!r}",
                remedy=f"index it in a T.Parallel loop: {self.name}[..., i * step]",
            )
        whole = self.shape[axis]
        start = expression(0) if item.start is None else self._index(item.start, axis)
        stop = self._stop(whole if item.stop is None else item.stop, axis)
        extent = known_or_expr(stop - start)
        if _most(extent, self.name) < 0:
            raise source_error(
                SourceValueError,
                f"a slice of {self.name} ends in front of where it begins",
                why=f"along axis {axis} it goes from {start} to {stop}",
                remedy="let it end behind its start; negative numbers count from the end of the axis",
            )
        return start, extent

    def _stop(self, item: Any, axis: int) -> Expr:
        expr = self._integer(item, axis)
        return expr + expression(self.shape[axis]) if _is_negative(expr, self.name) else expr


def _no_truth(what: str, name: str, axes: int) -> SourceError:
    """Whether ``what``, which has several elements or none, is true."""
    return source_error(
        SourceTypeError,
        f"{what} has no truth value",
        why="its elements have, which are known at run time",
        remedy=f"use an element, {name}[{', '.join('0' * axes)}], or `{name} is not None`",
    )


class ShapeParams(tuple[Any, ...]):
    """The sizes of a tensor, for ``M, K = A.shape_params()``."""

    __slots__ = ()


def _most(extent: Any, construct: str) -> int:
    """The largest value of an extent."""
    if isinstance(extent, int):
        return extent
    return int(sessions.current(construct).analyzer.const_int_bound(extent).max_value)


def _is_negative(expr: Expr, construct: str) -> bool:
    """Whether an index is negative however many blocks and trips there are: in a grid of one block ``bx * 32
    - 3`` is what it is in any other."""
    from tvm import tirx
    from tvm.ir import Range

    from tilec.ir.exprs import dtype_of, substitute, variables_of

    analyzer = sessions.current(construct).analyzer
    if analyzer.const_int_bound(expr).max_value >= 0:
        return False
    free: dict[Any, Expr] = {}
    for var in variables_of([expr]):
        low = max(analyzer.const_int_bound(var).min_value, -_FAR)
        free[var] = made = tirx.Var(var.name, dtype_of(var))
        analyzer.bind(made, Range.from_min_extent(low, _FAR))
    return bool(analyzer.const_int_bound(substitute(expr, free)).max_value < 0)


def _lane_indices(items: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """One tuple of indices per lane."""
    count = max(len(item.lanes) for item in items if isinstance(item, Vector))
    return [
        tuple(item.lanes[lane] if isinstance(item, Vector) else item for item in items)
        for lane in range(count)
    ]


def _store_lanes(target: Vector, value: Any) -> None:
    """A vector, or a scalar in every lane, to places one after the other."""
    value = operand(value)
    values = value.lanes if isinstance(value, Vector) else (value,) * len(target.lanes)
    if len(values) != len(target.lanes):
        raise source_error(
            SourceValueError,
            f"a vector of {len(values)} lanes is stored where {len(target.lanes)} fit",
            remedy="store as many lanes as the element has",
        )
    store_lanes(target.lanes, values)


@dataclass(frozen=True, eq=False)
class Handle:
    """The memory of a buffer, for an alias of another shape."""

    buffer: Buffer


class Element(Value):
    """``buffer[indices]``: its value when read, a place when stored to or copied.

    ``reference`` marks a mutable variable (T.alloc_var, T.Ref): assigning to its name stores. ``fresh`` is
    True while the next name that it is assigned to becomes its name."""

    __slots__ = ("buffer", "fresh", "indices", "reference")

    #: Whether it is one element of ``buffer``, neither a part of one nor several.
    is_plain = True

    def __init__(self, buffer: Buffer, indices: tuple[Expr, ...], *, reference: bool = False) -> None:
        self.buffer = buffer
        self.indices = indices
        self.reference = reference
        self.fresh = reference
        self.text = None
        self.frame = buffer.frame

    @property
    def expr(self) -> Expr:
        """A read of the element."""
        from tvm import tirx

        if sessions.builder(self.buffer.name).kernel is None:
            raise source_error(
                SourceRuntimeError,
                f"{self.buffer.name} is read outside a T.Kernel block",
                remedy="move the access under `with T.Kernel(...)`",
            )
        found = tirx.BufferLoad(self.buffer.var, list(self.indices))
        safe = self.buffer.safe_value
        guard = None if safe is None else self.buffer.open_bounds(self.indices)
        return found if guard is None else tirx.if_then_else(guard, found, safe)

    @property
    def place(self) -> tuple[Buffer, tuple[Expr, ...]]:
        """The buffer and the indices as the author gave them."""
        return self.buffer, self.indices

    def __getitem__(self, index: Any) -> Any:
        """A T.alloc_var as the one-element buffer that it is: ``v[0]``."""
        self._check_variable()
        return self.buffer[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check_variable()
        self.buffer[index] = value

    def _check_variable(self) -> None:
        if self.buffer.scope() != "local.var":
            raise source_error(
                SourceTypeError,
                f"{self!r} is an element and has no elements of its own",
                remedy=f"index {self.buffer.name} with all its axes at once",
            )

    def settled(self) -> Element:
        """The same place, no longer fresh: assigning it to a name reads it."""
        self.fresh = False
        return self

    def touch(self) -> None:
        """Says that the element, and what lies behind it, may be written here: it is stored to itself."""
        stmt = ir.Store(self.buffer.var, self.indices, self.expr, loc=loc())
        sessions.builder(self.buffer.name).emit(stmt, f"a write to {self.buffer.name}")

    def store(self, value: Any) -> None:
        """Write the element, with the implicit cast of stores."""
        what = f"a store to {self.buffer.name}"
        expr = stored_value(value, self.buffer.dtype, what)
        builder = sessions.builder(what)
        warn_of_loss(value, self.buffer.dtype, what)
        if isinstance(value, Value) and value.dtype.row.is_float and self.buffer.dtype.row.is_integer:
            builder.warn_once(f"{what} truncates {value.dtype} to {self.buffer.dtype}")
        if builder.is_per_thread() and not self.buffer.scope().startswith("local") and self._is_read_by(expr):
            builder.run_per_thread()
        builder.emit(ir.Store(self.buffer.var, self.indices, expr, loc=loc()), what)

    def _is_read_by(self, expr: Expr) -> bool:
        """Whether the value reads the very element."""
        from tvm_ffi import structural_equal

        from tilec.ir.exprs import loads

        reads = (load for load in loads(expr) if load.source.same_as(self.buffer.var))
        return any(all(map(structural_equal, load.indices, self.indices)) for load in reads)

    def __repr__(self) -> str:
        return f"{self.buffer.name}[{', '.join(map(str, self.indices))}]"

    def described(self) -> str:
        """The element's buffer as errors list it."""
        return self.buffer.described()


#: "store" and "vector" of slices, which `tilec.language.tiles.slice_stores` makes of operations on tiles.
SLICE_OPERATIONS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, eq=False)
class Slice(Arithmetic):
    """``buffer[i:j, k, :]``: a box. ``extents`` are ints where known, else expressions. Operators compute
    with its elements as a vector."""

    buffer: Buffer
    starts: tuple[Expr, ...]
    extents: tuple[Any, ...]

    def described(self) -> str:
        """The box and its buffer as errors list them."""
        spans = zip(self.starts, self.extents, strict=True)
        box = ", ".join(f"{start}:{start}+{extent}" for start, extent in spans)
        return f"{self.buffer.name}[{box}] of {self.buffer.described()}"

    def vector(self) -> Vector:
        """The elements, to compute with."""
        found: Vector = SLICE_OPERATIONS["vector"](self)
        return found

    def astype(self, to: Any) -> Any:
        """The elements, as a vector, cast to another dtype."""
        return self.vector().astype(to)

    def store(self, value: Any) -> None:
        """Adds the statements of ``buffer[i:j] = value``."""
        SLICE_OPERATIONS["store"](self, value)

    def __getitem__(self, indices: Any) -> Any:
        raise unsupported("indexing a slice", remedy=f"index {self.buffer.name} itself")

    def __setitem__(self, indices: Any, value: Any) -> None:
        self[indices]

    def __bool__(self) -> bool:
        raise _no_truth(f"a slice of {self.buffer.name}", self.buffer.name, len(self.starts))


def known_or_expr(expr: Expr) -> int | Expr:
    """An extent: the integer it always is, else the expression as it stands."""
    known = sessions.constant(expr)
    return expr if known is None else known


def extents_of(buffer: Buffer) -> tuple[Any, ...]:
    """A buffer's shape as extents: plain ints and expressions."""
    return tuple(known_or_expr(expression(entry)) for entry in buffer.shape)


def _for_an_index(value: Any) -> str:
    """What to write where ``value`` stands for an index and is none."""
    if isinstance(value, Value):
        return "cast it with T.cast(x, 'int32')"
    if isinstance(value, float):
        return FOR_A_WHOLE
    if isinstance(value, Enum):
        return "use its value, or let its class derive from enum.IntEnum"
    if value is None:
        return "T.reshape gives a buffer another shape; an index makes no axis"
    if isinstance(value, (Buffer, list)):
        return "index by elements in a T.Parallel loop: A[rows[i], j]"
    return "give an integer, a slice or `...`"


def _typed(value: Any) -> str:
    """A value with its dtype, where it has one."""
    return f"{value!r} of {value.dtype}" if isinstance(value, Value) else repr(value)


def _known(entry: Any) -> int | None:
    return int(entry) if isinstance(entry, int) else sessions.constant(expression(entry))


def _shown(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def _row_major(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    strides: list[Any] = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides)
