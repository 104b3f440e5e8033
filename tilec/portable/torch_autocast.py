"""Operators inside of torch.autocast: floating tensors become of the types that a kernel reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

#: Between which autocast converts; it leaves float64 alone.
_CONVERTED = (torch.float16, torch.bfloat16, torch.float32)
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


class Autocast:
    """An operator where torch looks for its conversions. ``inputs`` are the kernel's parameters that callers
    give; tensors that it writes stay as they are."""

    def __init__(self, namespace: str, name: str, inputs: Sequence[Mapping[str, Any]]) -> None:
        self._namespace, self._name = namespace, name
        self._dtypes = [
            getattr(torch, param["dtype"]) if param["kind"] == "tensor" and param["access"] == "in" else None
            for param in inputs
        ]

    def __call__(self, *args: Any, **dims: Any) -> Any:
        """The operator on converted tensors."""
        pairs = zip(args, self._dtypes[: len(args)], strict=True)
        given = [_converted(value, dtype) for value, dtype in pairs]
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            return getattr(getattr(torch.ops, self._namespace), self._name)(*given, **dims)


def _converted(value: Any, dtype: torch.dtype | None) -> Any:
    is_meant = isinstance(value, torch.Tensor) and dtype in _CONVERTED and value.dtype in _CONVERTED
    return value.to(dtype) if is_meant else value
