"""Parts of K that pass through the workspace: which launches they make, and of what none are made."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilec.language as T
from tilec.backends.cuda.matmul.nodes import MatmulRoles
from tilec.backends.cuda.warp_roles.nodes import TileStore, TmaLoad
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.errors import UnsupportedError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Alloc, If, Kernel, walk
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[5] / "examples" / "kernels"
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


@pytest.mark.parametrize("change", [{}, {"swap": True, "bM": 96}], ids=str)
def test_rows_outside_are_neither_brought_nor_added(change) -> None:
    """Tiles of as many rows as there are, of which the workspace takes those."""
    multiplies, adds = lower(product(**change), SM90A).launches
    roles = roles_of(multiplies, MatmulRoles)
    tails = {
        str(stmt.map.buffer.name): stmt.tail for stmt in walk(roles.producer) if isinstance(stmt, TmaLoad)
    }
    assert {name for name, tail in tails.items() if tail is not None} == {"A"}
    (stored,) = (stmt for stmt in roles.consumer if isinstance(stmt, TileStore))
    assert isinstance(stored.body[0], If)
    assert sum(isinstance(stmt, If) for stmt in walk(adds.body)) >= 1


def twice(M, N, K, L, bM=128, bN=128, bK=64, num_stages=4, threads=256):
    """A product that is stored to outputs of different numbers of rows."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        W: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N), "float16"),
        D: T.Tensor((L, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=threads) as (bx, by):
            As, Ws = T.alloc_shared((bM, bK), "float16"), T.alloc_shared((bN, bK), "float16")
            acc = T.alloc_fragment((bM, bN), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=num_stages):
                T.copy(A[by * bM, ko * bK], As)
                T.copy(W[bx * bN, ko * bK], Ws)
                T.gemm(As, Ws, acc, transpose_B=True)
            for i, j in T.Parallel(bM, bN):
                C[by * bM + i, bx * bN + j] = acc[i, j]
                D[by * bM + i, bx * bN + j] = acc[i, j]

    return main


def test_rows_of_outputs_that_end_elsewhere_are_all_stored() -> None:
    """Those behind the operand's are zeros."""
    made = elaborate(twice, name="twice", dims={**DIMS, "L": Guard()}, args={}, config={"spread_k": 6})
    multiplies, _ = lower(made, SM90A, until="spread_depth").launches
    assert not any(isinstance(stmt, If) for stmt in walk(multiplies.body))


def test_sums_that_leave_every_trip_are_parted_too() -> None:
    multiplies, _ = lower(product(promote_k=64), SM90A).launches
    assert roles_of(multiplies, MatmulRoles)


def test_k_is_shared_in_one_way() -> None:
    with pytest.raises(UnsupportedError, match="spread_k = 6: K is shared in one way"):
        lower(product(split_k=2), SM90A)


def test_other_targets_keep_one_launch() -> None:
    assert len(lower(product(), SM80).launches) == 1
