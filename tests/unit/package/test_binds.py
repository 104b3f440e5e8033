from __future__ import annotations

import pytest
from records import kernel, scalar, tensor, variant

from tilec.ir.guards import Guard
from tilec.package.bindings.binds import Bind, bind_dims
from tilec.package.model import ParamRecord


def binds(*params: ParamRecord, **guards: Guard) -> tuple[Bind, ...]:
    (found,) = bind_dims(kernel(params, ("K",), variant("v", **guards)))
    return found


@pytest.mark.parametrize(
    ("extent", "dim"),
    [("K", 10), ("2 * K", 10), ("K * 2 + 3", 10), ("3 + K", 10), ("K - 1", 10), ("(K + 1) * 4", 10)],
)
def test_linear_extents_are_solved(extent: str, dim: int) -> None:
    (bind,) = binds(tensor("A", "7", extent))
    value = eval(extent, {"K": dim})
    assert (bind.source, bind.axis) == ("shape", 1)
    assert (value - bind.add) * bind.div // bind.mul == dim


def test_plain_extents_come_first_and_strides_last() -> None:
    found = binds(tensor("A", "2 * K", strides=("K",)), tensor("B", "K"))
    assert [(bind.source, bind.param) for bind in found] == [("shape", 1), ("shape", 0), ("stride", 0)]


def test_a_scalar_of_the_same_name_wins() -> None:
    assert binds(tensor("A", "K"), scalar("K", "int32")) == (Bind("scalar", 1),)


def test_floor_division_needs_a_divisor_in_every_guard() -> None:
    packed = tensor("A", "K // 2")
    assert binds(packed) == ()
    assert binds(packed, K=Guard(div=4)) == (Bind("shape", div=2),)
    assert binds(packed, K=Guard(eq=6)) == (Bind("shape", div=2),)


def test_a_dim_in_no_shape_is_known_when_pinned() -> None:
    assert binds(tensor("A", "4"), K=Guard(eq=12)) == (Bind("constant", add=12),)
    assert binds(tensor("A", "min(K, 4)")) == ()
