"""Where a caller's arguments show each dim, so that the generic door and the Python loader need not be told.

Of ``A: T.Tensor((M, K))`` the dim M is the extent of axis 0. An extent ``M // 8`` shows M where every guard
demands a multiple of 8; scalars show a dim by name; a dim that every variant pins is a constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilec.package.model import KernelRecord
from tilec.package.text.c_sizes import parse
from tilec.sizes import Apply, Literal, Name, Node

SHAPE, STRIDE, SCALAR, CONSTANT = "shape", "stride", "scalar", "constant"


@dataclass(frozen=True)
class Bind:
    """``dim = (value - add) * div / mul`` of the value at ``axis`` of parameter number ``param``: an extent,
    a stride or a scalar. CONSTANT: ``add`` is the dim itself."""

    source: str
    param: int = 0
    axis: int = 0
    mul: int = 1
    add: int = 0
    div: int = 1

    @property
    def cost(self) -> int:
        """Preference between extents that show one dim: plain ones, then what has to be solved."""
        return 0 if (self.mul, self.add, self.div) == (1, 0, 1) else 1


def bind_dims(kernel: KernelRecord) -> tuple[tuple[Bind, ...], ...]:
    """Per dim of ``kernel`` every place that shows it, best first; none if the caller must give it."""
    return tuple(_bind_dim(kernel, dim.name) for dim in kernel.dims)


def hidden_dims(kernel: KernelRecord) -> list[str]:
    """Dims that no input shows: callers that leave outputs out name them."""
    shown = {
        dim.name
        for dim, binds in zip(kernel.dims, bind_dims(kernel), strict=True)
        if any(bind.source == CONSTANT or not kernel.params[bind.param].output for bind in binds)
    }
    return [dim.name for dim in kernel.dims if dim.name not in shown]


def _bind_dim(kernel: KernelRecord, dim: str) -> tuple[Bind, ...]:
    for index, param in enumerate(kernel.params):
        if not param.is_tensor and param.name == dim:
            return (Bind(SCALAR, index),)
    found = sorted(_candidates(kernel, dim), key=lambda bind: _rank(kernel, bind))
    return tuple(found) or _constant(kernel, dim)


def _rank(kernel: KernelRecord, bind: Bind) -> tuple[bool, bool, bool, int]:
    """Addresses last, since they may come without a shape; strides before them, since axes of one element may
    have any; outputs behind inputs, since callers may leave them out."""
    param = kernel.params[bind.param]
    return param.pointer, bind.source == STRIDE, param.output, bind.cost


def _constant(kernel: KernelRecord, dim: str) -> tuple[Bind, ...]:
    """A dim that no shape shows but that every variant pins to the same integer."""
    values = {variant.guard(dim).eq for variant in kernel.variants}
    value = values.pop() if len(values) == 1 else None
    return () if value is None else (Bind(CONSTANT, add=value),)


def _candidates(kernel: KernelRecord, dim: str) -> Iterator[Bind]:
    for index, param in enumerate(kernel.params):
        for source, texts in ((SHAPE, param.extents), (STRIDE, param.strides or ())):
            for axis, text in enumerate(texts):
                form = _linear(parse(text), dim)
                if form is not None and _divides(kernel, dim, form[2]):
                    yield Bind(source, index, axis, *form)


def _divides(kernel: KernelRecord, dim: str, div: int) -> bool:
    """Whether every variant demands a multiple of ``div``, so that a floor division loses nothing."""
    guards = [variant.guard(dim) for variant in kernel.variants]
    return all((guard.div if guard.eq is None else guard.eq) % div == 0 for guard in guards)


def _linear(node: Node, dim: str) -> tuple[int, int, int] | None:
    """(mul, add, div) if ``node`` is ``dim * mul / div + add``, else None."""
    if isinstance(node, Name):
        return (1, 0, 1) if node.name == dim else None
    if not isinstance(node, Apply) or len(node.parts) != 2:
        return None
    left, right = node.parts
    if isinstance(left, Literal) and node.op in ("+", "*"):
        left, right = right, left
    inner = _linear(left, dim) if isinstance(right, Literal) else None
    return None if inner is None else _apply(inner, node.op, right.value)  # type: ignore[union-attr]


def _apply(form: tuple[int, int, int], op: str, value: int) -> tuple[int, int, int] | None:
    mul, add, div = form
    if op == "+":
        return (mul, add + value, div)
    if op == "-":
        return (mul, add - value, div)
    if op == "*" and div == 1 and value > 0:
        return (mul * value, add * value, div)
    if op == "//" and form == (1, 0, 1) and value > 0:
        return (1, 0, value)
    return None
