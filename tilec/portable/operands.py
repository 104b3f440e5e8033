"""What a kernel takes from callers that leave its outputs out: inputs, and the dims that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .loader import evaluate_size

#: Before the name of an output in `[kernel.backward]`: the gradient that comes in for it.
GRADIENT = "grad "


class Operands:
    """``inputs`` and ``outputs`` are the parameters as the metadata have them, ``names`` those of the inputs,
    ``hidden`` the dims that no input shows and callers name. Dims and sizes may be symbols of a tracer.
    ``metadata`` are the kernel's."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        params = metadata["params"]
        self.inputs = [param for param in params if not param["output"]]
        self.outputs = [param for param in params if param["output"]]
        self.names = [param["name"] for param in self.inputs]
        self._places = {
            at: self.names.index(param["name"]) for at, param in enumerate(params) if not param["output"]
        }
        self._binds = {dim["name"]: self._first(dim["binds"]) for dim in metadata["dims"]}
        self.hidden = [name for name, bind in self._binds.items() if bind is None]

    @property
    def tensors(self) -> list[str]:
        """The names of the inputs that are tensors."""
        return [param["name"] for param in self.inputs if param["kind"] == "tensor"]

    @property
    def mutates(self) -> bool:
        """Whether a tensor that callers give is written."""
        return bool(self.written)

    @property
    def written(self) -> list[int]:
        """The places among the inputs of tensors that are written."""
        return [
            place
            for place, param in enumerate(self.inputs)
            if param["kind"] == "tensor" and param["access"] != "in"
        ]

    def dims(self, values: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Every dim, of one value for each input; ``given`` has the hidden ones."""
        return {
            name: given[name] if bind is None else self._read(bind, values)
            for name, bind in self._binds.items()
        }

    def shapes(self, params: Sequence[Mapping[str, Any]], dims: Mapping[str, Any]) -> list[list[Any]]:
        """The extents of some parameters; none of a scalar."""
        return [[evaluate_size(text, dims) for text in param["extents"]] for param in params]

    def _first(self, binds: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """The first place of a dim that is an input or a constant."""
        return next(
            (each for each in binds if each["source"] == "constant" or each["param"] in self._places), None
        )

    def _read(self, bind: Mapping[str, Any], values: Sequence[Any]) -> Any:
        if bind["source"] == "constant":
            return bind["add"]
        value = values[self._places[bind["param"]]]
        if bind["source"] == "scalar":
            return value
        value = value.shape[bind["axis"]] if bind["source"] == "shape" else _stride(value, bind["axis"])
        return (value - bind["add"]) * bind["div"] // bind["mul"]


def _stride(value: Any, axis: int) -> Any:
    """In elements; arrays without strides are contiguous."""
    if hasattr(value, "stride"):
        return value.stride(axis)
    product = 1
    for extent in value.shape[axis + 1 :]:
        product *= extent
    return product
