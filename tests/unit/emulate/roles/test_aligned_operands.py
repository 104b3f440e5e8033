"""Operands whose rows TMA cannot take are copied to rows that it takes."""

from __future__ import annotations

import pytest
from emulated import SM80, SM90A, Beside, kernel_of
from tvm import tirx
from tvm.sym import Analyzer

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.exprs import int_value, substitute
from tilec.ir.guards import Guard
from tilec.ir.nodes import Alloc, Copy, walk
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate

BATCHES = {"B": Guard(), "M": Guard(), "N": Guard(), "K": Guard()}


def products(B, M, N, K, dtype="float16"):
    """A product for each entry of a batch, of operands along K."""

    @T.prim_func
    def main(X: T.Tensor((B, M, K), dtype), W: T.Tensor((B, N, K), dtype), Y: T.Tensor((B, M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), B, threads=128) as (bx, by, bz):
            x, w = (T.alloc_shared((64, 128), dtype) for _ in range(2))
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, 128), num_stages=2):
                T.copy(X[bz, by * 64, ko * 128], x)
                T.copy(W[bz, bx * 64, ko * 128], w)
                T.gemm(x, w, acc, transpose_B=True)
            T.copy(acc, Y[bz, by * 64, bx * 64])

    return main


def chosen(E, M, N, K, disable_tma=False):
    """A product whose second operand a table chooses."""

    @T.prim_func
    def main(
        X: T.Tensor((M, K), "float16"),
        W: T.Tensor((E, N, K), "float16"),
        which: T.Tensor((T.ceildiv(M, 64),), "int32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            x, w = (T.alloc_shared((64, 64), "float16") for _ in range(2))
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, 64), num_stages=2):
                T.copy(X[by * 64, ko * 64], x, disable_tma=disable_tma)
                T.copy(W[which[by], bx * 64, ko * 64], w)
                T.gemm(x, w, acc, transpose_B=True)
            T.copy(acc, Y[by * 64, bx * 64])

    return main


def made(entry, dims, config=None, **args):
    """A kernel before it is lowered."""
    return elaborate(entry, name=entry.__name__, dims=dims, args=args, config=config or {})


def aligned(kernel) -> list[str]:
    """The tensors of the workspace."""
    lowered = lower(kernel, SM90A, until="align_operands")
    return [str(stmt.buffer.name) for stmt in lowered.body if isinstance(stmt, Alloc)]


def test_one_launch_copies_all_operands(golden):
    golden(format_kernel(lower(made(products, BATCHES), SM90A, until="align_operands")))


@pytest.mark.parametrize(
    ("dims", "names"),
    [
        ({}, ["X_aligned", "W_aligned"]),
        ({"K": Guard(div=8)}, []),
        ({"K": Guard(eq=1000)}, []),
        ({"K": Guard(eq=1001)}, ["X_aligned", "W_aligned"]),
        ({"M": Guard(max=64)}, ["X_aligned"]),
        ({"M": Guard(max=64), "N": Guard(max=64)}, []),
    ],
    ids=str,
)
def test_rows_that_blocks_share_are_aligned(dims, names):
    assert aligned(made(products, {**BATCHES, **dims})) == names


@pytest.mark.parametrize(("align", "names"), [(True, ["X_aligned", "W_aligned"]), (False, [])])
def test_a_config_says_whether_operands_of_few_blocks_are_aligned(align, names):
    kernel = made(products, {**BATCHES, "M": Guard(max=64)}, {"align": align})
    assert aligned(kernel) == names
    assert Beside(kernel, SM90A).run({"B": 2, "M": 9, "N": 130, "K": 145}) == []


@pytest.mark.parametrize(("args", "names"), [({}, ["X_aligned"]), ({"disable_tma": True}, [])], ids=str)
def test_what_a_table_chooses_and_an_author_keeps_from_tma_stays(args, names):
    dims = {"E": Guard(), "M": Guard(), "N": Guard(), "K": Guard()}
    assert aligned(made(chosen, dims, **args)) == names


@pytest.mark.parametrize(
    "sizes", [(429, 20563, 148), (7, 15480, 319), (1, 1, 1), (8191, 8189, 8190)], ids=str
)
def test_as_many_blocks_copy_as_have_something_to_copy(sizes):
    dims = dict.fromkeys("MKN", Guard())
    kernel = kernel_of("gemm.py:matmul", dims, {"dtype": "float16"}, align=True)
    launch, _ = lower(kernel, SM90A, until="align_operands").launches
    values = {dim.var: tirx.const(size, "int32") for dim, size in zip(kernel.dims, sizes, strict=True)}
    (blocks,) = (substitute(extent, values) for extent in launch.grid)
    rows, depth, columns = sizes
    wanted = -(-rows // 8) * -(-depth // 512) + -(-depth // 8) * -(-columns // 512)
    assert int_value(Analyzer().simplify(blocks)) == wanted


def test_the_product_of_the_copies_has_the_roles_of_aligned_ones():
    launch = to_tir(lower(made(products, BATCHES), SM90A), SM90A).launches[-1]
    assert [found.rest for found in launch.tensor_maps] == [0, 64] * 2
    assert any("a launch in front copies them" in note for note in launch.notes)
    *_, last = lower(made(products, BATCHES), SM90A, until="align_operands").launches
    sources = [str(stmt.src.buffer.name) for stmt in walk(last.body) if isinstance(stmt, Copy)]
    assert sources[:2] == ["X_aligned", "W_aligned"]


def test_warps_without_roles_bring_the_copies_ahead():
    launch = to_tir(lower(made(products, BATCHES), SM80), SM80).launches[-1]
    ways = {road.statement: road.instruction for road in launch.roads}
    assert ways["X_aligned -> x"] == ways["W_aligned -> w"] == "cp.async of 16 bytes, 1 trip ahead"


@pytest.mark.parametrize(("rows", "staged"), [(Guard(), True), (Guard(eq=8), False)], ids=str)
def test_results_whose_rows_begin_anywhere_are_stored_along_rows(rows, staged):
    launch = to_tir(lower(made(products, {**BATCHES, "N": rows}), SM80), SM80).launches[-1]
    assert any(road.statement == "Y_stage -> Y" for road in launch.roads) == staged


@pytest.mark.parametrize(
    ("dtype", "target"),
    [("float16", SM80), ("float16", SM90A), ("float8_e4m3fn", SM90A), ("float32", SM90A)],
    ids=str,
)
def test_copies_are_what_was_copied(dtype, target):
    kernel = made(products, BATCHES, dtype=dtype)
    assert Beside(kernel, target).run({"B": 2, "M": 70, "N": 67, "K": 145}) == []


@pytest.mark.parametrize("sizes", [(13, 1100, 9), (9, 3, 1100), (70, 17, 70)], ids=str)
def test_copies_of_two_matrices_that_have_little_in_common_are_what_was_copied(sizes):
    dims = dict.fromkeys("MKN", Guard())
    kernel = kernel_of("gemm.py:matmul", dims, {"dtype": "float16"}, align=True, bM=64, bN=64)
    assert Beside(kernel, SM90A).run(dict(zip("MKN", sizes, strict=True))) == []
