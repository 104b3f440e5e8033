"""Is what a call wrote right: samples of each output beside what they should be.

``checks`` of a point: per output the ``offsets`` (in elements from its start) and ``expected`` numbers, with
``rtol``, ``atol`` and ``max_mismatch``. Without ``expected``, the first candidate that passed everything else
is what the others have to agree with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilec.portable.nearness import near
from tilec.portable.runner.numbers import elements, is_float, size_of
from tilec.portable.runner.tensors import POISON, Tensor


def problem_of(outputs: Mapping[str, Tensor], checks: Mapping[str, Any]) -> str:
    """What is wrong with the outputs; empty where nothing is."""
    for name, check in checks.items():
        text = _difference(outputs[name], check)
        if text:
            return f"{name}: {text}"
    return ""


def sample(outputs: Mapping[str, Tensor], checks: Mapping[str, Any]) -> dict[str, list[float]]:
    """The elements that checks look at."""
    return {name: elements(outputs[name].read(), outputs[name].dtype, check["offsets"])
            for name, check in checks.items()}  # fmt: skip


def _difference(tensor: Tensor, check: Mapping[str, Any]) -> str:
    data, expected = tensor.read(), check.get("expected")
    if expected is None:
        return _unwritten(tensor, data)
    got = elements(data, tensor.dtype, check["offsets"])
    pairs = enumerate(zip(got, expected, strict=True))
    wrong = [at for at, pair in pairs if not near(*pair, check["rtol"], check["atol"])]
    if len(wrong) > check["max_mismatch"] * len(got):
        at = wrong[0]
        return (
            f"{len(wrong)} of {len(got)} sampled elements are wrong, the first at {check['offsets'][at]}: "
            f"got {got[at]:.9g}, expected {expected[at]:.9g}"
        )
    return "" if any(math.isnan(number) for number in expected) else _unwritten(tensor, data)


def _unwritten(tensor: Tensor, data: bytes | memoryview) -> str:
    """Whether elements of a contiguous tensor of floats still hold what was there before the call."""
    if not is_float(tensor.dtype) or not _is_contiguous(tensor.shape, tensor.stride()):
        return ""
    size, content = size_of(tensor.dtype), bytes(data)
    poison = bytes([POISON]) * size
    at = content.find(poison)
    while at >= 0 and at % size:
        at = content.find(poison, at + 1)
    return "" if at < 0 else f"the element at {at // size} was not written, or is no number"


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    product = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != product:
            return False
        product *= extent
    return True
