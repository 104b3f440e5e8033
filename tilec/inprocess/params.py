"""The parameters of a compiled kernel as Python programs ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilec.language.values.scalars import dtype as make_dtype
from tilec.sizes import SizeError, evaluate_size

if TYPE_CHECKING:
    from tilec.inprocess.compilation.building import Card


@dataclass(frozen=True)
class KernelParam:
    """A tensor with its ``shape`` (integers, and texts where dims are runtime values), or a scalar with the
    shape []. ``dtype`` is the language's."""

    dtype: Any
    shape: Sequence[int | str]
    name: str = ""

    def is_scalar(self) -> bool:
        """Whether it is no tensor."""
        return len(self.shape) == 0

    def is_unsigned(self) -> bool:
        """Whether the elements are unsigned integers."""
        return str(self.dtype).startswith("uint")

    def is_float8(self) -> bool:
        """Whether the elements are 8-bit floats."""
        return str(self.dtype).startswith("float8")

    def is_float4(self) -> bool:
        """Whether the elements are 4-bit floats."""
        return str(self.dtype).startswith("float4")

    def is_boolean(self) -> bool:
        """Whether the elements are booleans."""
        return str(self.dtype) == "bool"

    def torch_dtype(self) -> Any:
        """The torch dtype of an element."""
        return self.dtype.as_torch()


def kernel_params(card: Card, metadata: Mapping[str, Any]) -> list[KernelParam]:
    """All parameters in the order of the Python function, outputs made by T.empty behind them."""
    from tilec.package.library.metadata import read_guards

    guards = read_guards(metadata["variants"][0])
    pinned = {name: guard.eq for name, guard in guards.items() if guard.eq is not None}
    found = {each["name"]: _param(each, pinned) for each in metadata["params"]}
    named = [name for name, _ in card.order]
    made = [name for name in card.returned if name not in named]
    return [found.get(name) or KernelParam(make_dtype("int32"), [], name) for name in (*named, *made)]


def _param(param: Mapping[str, Any], pinned: Mapping[str, int]) -> KernelParam:
    shape = [extent_for(text, pinned) for text in param["extents"]]
    return KernelParam(make_dtype(param["dtype"]), shape, param["name"])


def extent_for(extent: int | str, dims: Mapping[str, int]) -> int | str:
    """An extent with the values of ``dims``; as it is where it names a dim that is not among them."""
    try:
        return extent if isinstance(extent, int) else evaluate_size(extent, dims)
    except SizeError:
        return extent
