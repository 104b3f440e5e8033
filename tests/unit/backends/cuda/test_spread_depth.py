"""Parts of K that pass through the workspace: which launches they make, and of what none are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.backends.cuda.matmul.nodes import MatmulRoles
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.errors import UnsupportedError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Alloc, Kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[4] / "examples" / "kernels"
SM90A, SM80 = parse_target("sm_90a"), parse_target("sm_80")
DIMS = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
CONFIG = {"bM": 128, "bN": 128, "bK": 64, "num_stages": 4, "threads": 256, "spread_k": 6}


def product(dims: dict[str, Guard] | None = None, **config: object) -> Kernel:
    """A product whose K is shared by all multiprocessors."""
    args = {"dtype": "float16"}
    return elaborate(
        load_entry("gemm.py:linear", KERNELS),
        name="product",
        dims=dims or DIMS,
        args=args,
        config={**CONFIG, **config},
    )


@pytest.mark.parametrize(
    "change",
    [{}, {"swap": True, "bM": 96}, {"swap": True, "bM": 96, "cluster": (2, 1)}, {"bN": 192}],
    ids=str,
)
def test_parts_have_the_roles_of_whole_products(change) -> None:
    multiplies, adds = lower(product(**change), SM90A).launches
    roles = roles_of(multiplies, MatmulRoles)
    assert (roles.roles.pingpong, roles.order.split, adds.strategy) == (False, 1, None)
    assert adds.schedule.pdl
    assert roles.order.cluster == (2 if "cluster" in change else 1)


@pytest.mark.parametrize(("cluster", "parts"), [((1, 1), 14), ((2, 1), 11), ((1, 2), 11)], ids=str)
def test_pairs_are_whole(cluster, parts) -> None:
    """Of three by three tiles a pair along the columns has one more in each row: 12 share 132."""
    dims = {"M": Guard(eq=257), "N": Guard(eq=384), "K": Guard(eq=65536)}
    multiplies, _ = lower(product(dims=dims, cluster=cluster), SM90A, until="spread_depth").launches
    assert int(multiplies.grid[-1]) == parts


def test_sums_of_all_parts_are_in_the_workspace() -> None:
    (sums,) = (stmt.buffer for stmt in lower(product(), SM90A).body if isinstance(stmt, Alloc))
    assert (str(sums.dtype), len(sums.shape)) == ("float32", 3)


def test_sums_that_leave_every_trip_are_parted_too() -> None:
    multiplies, _ = lower(product(promote_k=64), SM90A).launches
    assert roles_of(multiplies, MatmulRoles)


def test_k_is_shared_in_one_way() -> None:
    with pytest.raises(UnsupportedError, match="spread_k: K is shared in one way"):
        lower(product(split_k=2), SM90A)


def test_other_targets_keep_one_launch() -> None:
    assert len(lower(product(), SM80).launches) == 1
