"""Layout objects: where the elements of a tile lie, and which thread holds which. They never change results.

Numbers stay numbers: `map_forward_index` of integers gives integers, of expressions expressions. Sizes follow
from looking at every element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceAssertionError, SourceValueError
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import wrap
from tilec.language.values.value import Value, is_number, resolve
from tilec.spelling import counted

if TYPE_CHECKING:
    import numpy as np


class Layout:
    """``T.Layout(shape, forward_fn)``: ``forward_fn(*indices)`` gives one or more physical indices of an
    element; without it elements lie in row-major order. Extents of tiles are build-time integers; those of a
    tensor may be runtime values, for which nothing lists its elements."""

    def __init__(self, shape: Any, forward_fn: Callable[..., Any] | None = None) -> None:
        self.shape = _extents(shape)
        self._forward = forward_fn or (lambda *indices: _row_major(indices, self.shape))

    def get_input_shape(self) -> list[int]:
        """The shape of the tile."""
        return list(self.shape)

    def get_output_shape(self) -> list[int]:
        """How many values each physical index takes, from 0 to the largest."""
        return [max(column) + 1 for column in zip(*self._table.values(), strict=True)]

    @property
    def index(self) -> list[Any]:
        """The physical indices as expressions over variables of the tile's indices."""
        return self.map_forward_index(_variables(len(self.shape)))

    def map_forward_index(self, indices: Sequence[Any]) -> list[Any]:
        """The physical indices of an element."""
        return _many(self._forward(*self._checked(indices)))

    def repeat(self, dim: int, factor: int) -> Layout:
        """``factor`` such tiles along axis ``dim``; a new first index says which of them."""
        axis, extent = dim % len(self.shape), self.shape[dim % len(self.shape)]
        shape = (*self.shape[:axis], extent * factor, *self.shape[axis + 1 :])

        def forward(*indices: Any) -> tuple[Any, ...]:
            inner = (*indices[:axis], indices[axis] % extent, *indices[axis + 1 :])
            return (indices[axis] // extent, *self.map_forward_index(inner))

        return Layout(shape, forward)

    def inverse(self) -> Layout:
        """From physical indices (integers) to the tile's. `SourceValueError` where elements share a place
        or a place is empty."""
        shape = self.get_output_shape()
        back = {place: indices for indices, place in self._table.items()}
        if len(back) != len(self._table) or len(back) != _product(shape):
            raise source_error(
                SourceValueError,
                f"a layout of {tuple(self.shape)} onto {tuple(shape)} has no inverse",
                construct="T.Layout",
                remedy="give each element a place of its own, and leave none empty",
            )

        def forward(*places: Any) -> tuple[int, ...]:
            return back[tuple(map(_integer, places))]

        return Layout(shape, forward)

    def is_equal(self, other: Any) -> bool:
        """Whether both put every element at the same place."""
        same_kind = isinstance(other, Layout) and isinstance(other, Fragment) == isinstance(self, Fragment)
        return same_kind and self.shape == other.shape and self._table == other._table

    @cached_property
    def _table(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """The place of every element."""
        return {
            indices: tuple(map(_integer, self.map_forward_index(indices))) for indices in _all(self.shape)
        }

    def places(self) -> np.ndarray:
        """The place of every element as one number: several indices in row-major order. `ValueError` for
        places below 0."""
        import numpy as np  # importing T loads no NumPy

        table = np.array([*self._table.values()], np.int64).reshape(*self.shape, -1)
        if table.min() < 0:
            raise ValueError("a place is negative")
        total = np.zeros(self.shape, np.int64)
        for axis, extent in enumerate(self.get_output_shape()):
            total = total * extent + table[..., axis]
        return total

    def _checked(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        given = tuple(indices)
        if len(given) == len(self.shape):
            return given
        raise source_error(
            SourceValueError,
            f"a layout of {counted(len(self.shape), 'axis', 'axes')} takes as many indices, got {len(given)}",
            construct="T.Layout",
            remedy=f"its shape is {self.shape}",
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape} -> {tuple(self.index)})"


class Fragment(Layout):
    """``T.Fragment(shape, forward_fn)``: ``forward_fn(*indices[, rep])`` gives the thread and the register of
    an element; or ``forward_thread_fn`` gives the thread and ``forward_index_fn`` the register. ``replicate``
    threads hold a copy of each element; ``rep`` numbers them."""

    def __init__(
        self,
        shape: Any,
        forward_fn: Callable[..., Any] | None = None,
        forward_thread_fn: Callable[..., Any] | None = None,
        replicate: int = 1,
        forward_index_fn: Callable[..., Any] | None = None,
    ) -> None:
        if (forward_fn is None) == (forward_thread_fn is None):
            raise source_error(
                SourceValueError,
                "T.Fragment takes forward_fn, or forward_thread_fn with forward_index_fn",
                construct="T.Fragment",
                remedy="give T.Fragment(shape, forward_fn=lambda i, j: (thread, register))",
            )
        self._both, self._thread_of, self._register_of = forward_fn, forward_thread_fn, forward_index_fn
        self.copies = int(replicate)
        super().__init__(shape, self._registers)

    def _registers(self, *indices: Any) -> Any:
        if self._both is not None:
            return _called(self._both, indices, 0)[1:]
        return 0 if self._register_of is None else self._register_of(*indices)

    @property
    def thread(self) -> Any:
        """The thread as an expression over variables of the tile's indices and, with copies, of theirs."""
        *indices, rep = _variables(len(self.shape) + 1)
        return self.map_forward_thread(indices, rep)

    def map_forward_thread(self, indices: Sequence[Any], rep: Any = 0) -> Any:
        """The thread that holds copy ``rep`` of an element."""
        given = self._checked(indices)
        if self._both is not None:
            return _called(self._both, given, rep)[0]
        assert self._thread_of is not None
        return _called(self._thread_of, given, rep)[0]

    def threads(self, rep: int) -> np.ndarray:
        """The thread that holds copy ``rep`` of every element."""
        import numpy as np  # importing T loads no NumPy

        found = [_integer(self.map_forward_thread(indices, rep)) for indices in _all(self.shape)]
        return np.array(found, np.int64).reshape(self.shape)

    def get_thread_size(self) -> int:
        """How many threads there are, from 0 to the last that holds something."""
        found = (
            _integer(self.map_forward_thread(indices, rep))
            for indices in _all(self.shape)
            for rep in range(self.copies)
        )
        return max(found) + 1

    def repeat(  # type: ignore[override]
        self, repeats: Sequence[int], repeat_on_thread: bool = False, lower_dim_first: bool = True
    ) -> Fragment:
        """``repeats[axis]`` such tiles along each axis, held by further threads or in further registers. The
        last axis counts fastest, or with ``lower_dim_first=False`` the first."""
        size = self.get_thread_size() if repeat_on_thread else self.get_output_shape()[0]
        shape = [extent * count for extent, count in zip(self.shape, repeats, strict=True)]
        order = range(len(shape))[:: -1 if lower_dim_first else 1]

        def block(indices: Sequence[Any]) -> Any:
            number, stride = 0, 1
            for axis in order:
                number = indices[axis] // self.shape[axis] * stride + number
                stride *= repeats[axis]
            return number

        def inner(indices: Sequence[Any]) -> list[Any]:
            return [index % extent for index, extent in zip(indices, self.shape, strict=True)]

        def thread(*indices: Any) -> Any:
            *own, rep = indices
            found = self.map_forward_thread(inner(own), rep)
            return found + block(own) * size if repeat_on_thread else found

        def register(*indices: Any) -> list[Any]:
            first, *others = self.map_forward_index(inner(indices))
            return [first if repeat_on_thread else first + block(indices) * size, *others]

        return Fragment(
            shape, forward_thread_fn=WithCopies(thread), replicate=self.copies, forward_index_fn=register
        )

    def replicate(self, replicate: int) -> Fragment:
        """``replicate`` times as many threads, which hold copies."""
        size, copies = self.get_thread_size(), self.copies

        def thread(*indices: Any) -> Any:
            *own, rep = indices
            return self.map_forward_thread(own, rep % copies) + rep // copies * size

        return Fragment(
            self.shape,
            forward_thread_fn=WithCopies(thread),
            replicate=copies * replicate,
            forward_index_fn=lambda *indices: self.map_forward_index(indices),
        )

    def condense_rep_var(self) -> Fragment:
        """The same without copies that all lie in one thread."""
        holders = {
            indices: {_integer(self.map_forward_thread(indices, rep)) for rep in range(self.copies)}
            for indices in _all(self.shape)
        }
        if self.copies == 1 or any(len(threads) > 1 for threads in holders.values()):
            return self
        return Fragment(
            self.shape,
            forward_thread_fn=lambda *indices: self.map_forward_thread(indices, 0),
            forward_index_fn=lambda *indices: self.map_forward_index(indices),
        )

    def is_equal(self, other: Any) -> bool:
        """Whether both put every copy of every element into the same register of the same thread."""
        if not super().is_equal(other) or self.copies != other.copies:
            return False
        return all(
            _integer(self.map_forward_thread(indices, rep))
            == _integer(other.map_forward_thread(indices, rep))
            for indices in _all(self.shape)
            for rep in range(self.copies)
        )


def check_layout(buffer: Any, layout: Any) -> None:
    """Raises `SourceAssertionError` for a fragment's layout that is none of a fragment, `SourceValueError`
    for what is no layout."""
    if buffer.scope() == "local.fragment" and isinstance(layout, Layout) and not isinstance(layout, Fragment):
        raise source_error(
            SourceAssertionError,
            f"{buffer.name} is a fragment, its layout a T.Layout",
            construct="T.annotate_layout",
            remedy="give a T.Fragment, which says the thread too",
        )
    if not (isinstance(layout, Layout) or callable(layout)):
        raise source_error(
            SourceValueError,
            f"the layout of {buffer.name} is {layout!r}",
            construct="T.annotate_layout",
            remedy="give a T.Layout, a T.Fragment or a function of the indices",
        )


# ---- parts ----


class WithCopies:
    """A function of the indices and the copy's number."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *indices: Any) -> Any:
        """The function's value."""
        return self.function(*indices)


def _called(function: Callable[..., Any], indices: Sequence[Any], rep: Any) -> list[Any]:
    """The results of a function that takes the number of the copy, or does not."""
    if isinstance(function, WithCopies) or _takes(function) > len(indices):
        return _many(function(*indices, rep))
    return _many(function(*indices))


def _takes(function: Callable[..., Any]) -> int:
    code = getattr(function, "__code__", None)
    return 0 if code is None else int(code.co_argcount)


def _many(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _extents(shape: Any) -> tuple[Any, ...]:
    entries = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(_extent(entry) for entry in entries)


def _extent(entry: Any) -> Any:
    known = _known(entry)
    return entry if known is None else known


def _integer(value: Any) -> int:
    known = _known(value)
    if known is not None:
        return known
    raise source_error(
        SourceValueError,
        f"{resolve(value)!r} in a layout is not known while building",
        construct="T.Layout",
        remedy="compute places from the indices and Python integers",
    )


def _known(value: Any) -> int | None:
    value = resolve(value)
    known = sessions.constant(value.expr) if isinstance(value, Value) else value
    return int(known) if isinstance(known, (int, float)) and is_number(known) else None


def _all(shape: Sequence[Any]) -> itertools.product[tuple[int, ...]]:
    return itertools.product(*(range(_integer(extent)) for extent in shape))


def _row_major(indices: Sequence[Any], shape: Sequence[int]) -> Any:
    place = indices[0]
    for index, extent in zip(indices[1:], shape[1:], strict=True):
        place = place * extent + index
    return place


def _product(extents: Sequence[int]) -> int:
    total = 1
    for extent in extents:
        total *= extent
    return total


def _variables(count: int) -> list[Any]:
    from tvm import tirx

    return [wrap(Value(tirx.Var(f"_{'ijklmnpq'[axis % 8]}", "int32"))) for axis in range(count)]
