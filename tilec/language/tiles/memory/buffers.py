"""Buffers as the author sees them: tensors and tiles with checked indexing, elements and slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceError, SourceIndexError, SourceRuntimeError, SourceTypeError
from tilec.ir import nodes as ir
from tilec.language.tiles.memory.indexing import Indexed, shown
from tilec.language.values.arithmetic import Arithmetic, no_array
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.operand_errors import lacking
from tilec.language.values.operands import expression, stored_value, warn_of_loss
from tilec.language.values.scalars import dtype, element_of
from tilec.language.values.value import Value, Vector, check_alive, is_number

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.language.values.kernel.builder import Frame

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


class Buffer(Indexed):
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

    def element(self, indices: tuple[Expr, ...]) -> Element:
        """One element."""
        return Element(self, indices)

    def region(self, starts: tuple[Expr, ...], extents: tuple[Any, ...], axes: tuple[int, ...]) -> Slice:
        """A slice."""
        return Slice(self, starts, extents, axes)

    def open_bounds(self, indices: tuple[Expr, ...]) -> Expr | None:
        """The condition under which an element exists; None where that is certain."""
        from tvm import tirx

        conds = [cond for index, extent in zip(indices, self.shape, strict=True)
                 for cond in (index >= expression(0), index < expression(extent))]  # fmt: skip
        unknown = [cond for cond in conds if sessions.prove(cond) is not True]
        return reduce(tirx.And, unknown) if unknown else None

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
        if isinstance(value, Value) and self._truncates(value):
            builder.warn_once(f"{what} truncates {value.dtype} to {self.buffer.dtype}")
        if builder.is_per_thread() and not self.buffer.scope().startswith("local") and self._is_read_by(expr):
            builder.run_per_thread()
        builder.emit(ir.Store(self.buffer.var, self.indices, expr, loc=loc()), what)

    def _truncates(self, value: Value) -> bool:
        """Whether a float may be none of the integers that the element holds."""
        to = self.buffer.dtype
        if not value.dtype.row.is_float or not to.row.is_integer:
            return False
        return not sessions.builder(self.buffer.name).whole_numbers.fit(value.expr, str(element_of(to)))

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


#: "store" and "vector" of slices, which `tilec.language.tiles.memory.slice_stores` makes of operations on
#: tiles.
SLICE_OPERATIONS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, eq=False)
class Slice(Indexed, Arithmetic):
    """``buffer[i:j, k, :]``: a box. ``extents`` are ints where known, else expressions. Operators compute
    with its elements as a vector. An index of it counts from its starts along ``axes``, those that were given
    a slice (None: all), in ``indexed``: the buffer, or that of vectors whose lanes ``buffer`` has."""

    buffer: Buffer
    starts: tuple[Expr, ...]
    extents: tuple[Any, ...]
    axes: tuple[int, ...] | None = None
    indexed: Buffer | None = None

    @property
    def name(self) -> str:
        """That of the buffer, as a slice of it."""
        return f"a slice of {self.buffer.name}"

    @property
    def called(self) -> str:
        """The name, which says what it is."""
        return self.name

    @property
    def shape(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The extents along the axes that were given a slice."""
        return tuple(self.extents[axis] for axis in self._own_axes)

    @property
    def _own_axes(self) -> tuple[int, ...]:
        return tuple(range(len(self.starts))) if self.axes is None else self.axes

    def element(self, indices: tuple[Expr, ...]) -> Any:
        """One element of the buffer."""
        return self._of.element(self._moved(indices))

    def region(self, starts: tuple[Expr, ...], extents: tuple[Any, ...], axes: tuple[int, ...]) -> Any:
        """A slice of the buffer. Raises SourceIndexError where it is known to end behind this one."""
        for axis, (start, extent, whole) in enumerate(zip(starts, extents, self.shape, strict=True)):
            beyond = sessions.constant(start + expression(extent) - expression(whole))
            if beyond is not None and beyond > 0:
                raise source_error(
                    SourceIndexError,
                    f"a slice along axis {axis} ends {beyond} behind {self.name}",
                    why=f"its shape is {shown(self.shape)}",
                    remedy=f"stay within the shape, or slice {self.buffer.name} itself",
                )
        boxed = [*self.extents[: len(self._of.shape)]]
        for axis, extent in zip(self._own_axes, extents, strict=True):
            boxed[axis] = extent
        own = tuple(self._own_axes[axis] for axis in axes)
        return self._of.region(self._moved(starts), tuple(boxed), own)

    @property
    def _of(self) -> Buffer:
        return self.buffer if self.indexed is None else self.indexed

    def _moved(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Indices along the slice's own axes as those of the buffer."""
        found = [*self.starts[: len(self._of.shape)]]
        for axis, index in zip(self._own_axes, indices, strict=True):
            found[axis] = found[axis] + index
        return tuple(found)

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

    def __bool__(self) -> bool:
        raise _no_truth(f"a slice of {self.buffer.name}", self.buffer.name, len(self.starts))


def extents_of(buffer: Buffer) -> tuple[Any, ...]:
    """A buffer's shape as extents: plain ints and expressions."""
    return tuple(sessions.known_or_expr(expression(entry)) for entry in buffer.shape)


def _row_major(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    strides: list[Any] = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides)
