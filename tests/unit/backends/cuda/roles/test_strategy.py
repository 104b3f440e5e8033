"""Which strategy takes a launch: the first of a tuple, once; what it says where none does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from told import no_roles

import tilec.backends.cuda
from tilec.backends.cuda.attention.nodes import AsyncProduct, BoxStore
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.cuda.launch import LoweredCudaLaunch
from tilec.backends.cuda.matmul.nodes import GatherLoad, WarpgroupGemm
from tilec.backends.cuda.packed_weights.nodes import PackedProduct
from tilec.backends.cuda.strategies import STRATEGIES
from tilec.backends.cuda.warp_roles.nodes import TileStore, TmaLoad
from tilec.backends.cuda.warp_roles.roads import roads
from tilec.backends.cuda.warp_roles.strategy import AssignRoles, Plan, Strategy, rewrite_roles, with_roles
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.nodes import Kernel, Stmt
from tilec.ir.text.parser import parse_kernel
from tilec.lowering.passes.base import rewrite_launches
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
KERNEL = """
kernel("two")
A = tensor(float16, (64, 64), ("64", "64"), access="in")
C = tensor(float32, (64, 64), ("64", "64"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    As = alloc(float16, (64, 64), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    copy(A[0:+64, 0:+64], As[0:+64, 0:+64])
    gemm(As[0:+64, 0:+64], As[0:+64, 0:+64], acc[0:+64, 0:+64], clear=True)
    copy(acc[0:+64, 0:+64], C[0:+64, 0:+64])
"""


@dataclass(frozen=True, eq=False)
class Toy(Stmt):
    """A statement of roles."""

    count: int = 0


class Other(Stmt):
    """That of another strategy."""


class Taking(Strategy):
    """Takes every launch with a plan, or gives a reason, or has nothing to say."""

    roles, passes = Toy, ()

    def __init__(self, name: str, answer: object = None) -> None:
        self.name, self.answer = name, answer

    def match(self, kernel, launch, target):
        if isinstance(self.answer, Unfit):
            raise self.answer
        return Plan(replace(launch, body=(Toy(),))) if self.answer else None

    def lower(self, kernel, launch, target, marks):
        return LoweredCudaLaunch(None, ("1",), launch.threads, notes=(self.name,))


def assigned(*strategies: Strategy) -> Kernel:
    return AssignRoles(strategies).apply(parse_kernel(KERNEL), SM90A)


def test_the_first_strategy_with_a_plan_takes_a_launch():
    first, second = Taking("first", True), Taking("second", True)
    (launch,) = assigned(Taking("silent"), Taking("against", Unfit("it is odd")), first, second).launches
    assert launch.strategy is first
    assert no_roles(launch) is None


def test_the_first_reason_is_told_where_none_takes_it():
    (launch,) = assigned(
        Taking("silent"), Taking("one", Unfit("it is odd")), Taking("two", Unfit("x"))
    ).launches
    assert launch.strategy is None
    assert no_roles(launch) == "it is odd"


def test_a_taken_launch_is_rewritten_by_its_own_strategy_alone():
    kernel = assigned(Taking("toy", True))
    (same,) = rewrite_launches(kernel, lambda launch: replace(launch, body=())).launches
    assert same is kernel.launches[0]

    def counted(launch, roles):
        return with_roles(launch, Toy(roles.count + 1))

    (other,) = rewrite_roles(kernel, Other, counted).launches
    (own,) = rewrite_roles(kernel, Toy, counted).launches
    assert (other.body[-1].count, own.body[-1].count) == (0, 1)


def test_emission_asks_the_strategy():
    assert lower_kernel(assigned(Taking("toy", True)), SM90A).launches[0].notes == ("toy",)


def test_each_strategy_is_one_folder_and_one_entry():
    folders = {path.parent.name for path in Path(tilec.backends.cuda.__file__).parent.glob("*/strategy.py")}
    assert {strategy.name for strategy in STRATEGIES} == folders - {"warp_roles"}


@pytest.mark.parametrize(
    "kind", [WarpgroupGemm, GatherLoad, AsyncProduct, BoxStore, PackedProduct, TmaLoad, TileStore]
)
def test_statements_of_strategies_have_roads(kind):
    assert roads.dispatch(kind) is not roads.dispatch(Stmt)
