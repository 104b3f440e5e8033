"""Roads of statements: each refusal at the line of the statement that misses a condition, with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from told import losses

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.roads import ROADS, Loss, Road, decode, encode, missed
from tilec.ir.text.parser import parse_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

ROWS = 128
pytestmark = pytest.mark.filterwarnings("ignore:.* is read before anything is written to it:UserWarning")


def product(case):
    """A product of sm_90a's form but for what ``case`` names; the statement to blame is marked."""

    def factory(M, N=128, K=512):
        @T.prim_func
        def main(
            A: T.Tensor((M, K), "float32" if case == "converted" else "float16"),
            B: T.Tensor((K, N), "float16"),
            C: T.Tensor((M, N), "float16"),
            R: T.Tensor((M,), "float32"),
        ):
            with T.Kernel(T.ceildiv(M, ROWS), threads=160 if case == "threads" else 256) as by:  # threads
                a, b = T.alloc_shared((ROWS, 64), "float16"), T.alloc_shared((64, N), "float16")
                acc = T.alloc_fragment((ROWS, N), "float32")
                if case in ("before", "behind", "shape", "unused"):
                    row = T.alloc_fragment((ROWS,), "float32")  # shape
                if case == "threads" and T.get_thread_binding() == 159:
                    R[by] = 1.0
                if case == "start":
                    T.fill(acc, 1)  # start
                else:
                    T.clear(acc)
                if case == "before":
                    T.copy(R[by * ROWS], row)  # before
                for k in T.Pipelined(K // 64, num_stages=3):
                    if case == "turned":
                        for i, j in T.Parallel(ROWS, 64):  # turned
                            a[i, j] = A[by * ROWS + ROWS - 1 - i, k * 64 + j]
                    else:
                        T.copy(A[by * ROWS, k * 64], a)  # converted
                    T.copy(B[k * 64, 0], b)
                    T.gemm(a, b, acc, clear_accum=case == "clears")  # clears
                    if case == "inside":
                        for i, j in T.Parallel(ROWS, N):  # inside
                            acc[i, j] *= 2.0
                if case == "behind":
                    T.reduce_max(acc, row, dim=1)  # behind
                    T.copy(row, R[by * ROWS])
                if case == "across":
                    for i, j in T.Parallel(ROWS, N):
                        C[by * ROWS + i, j] = acc[i, N - 1 - j]  # across
                elif case == "shape":
                    for i, j in T.Parallel(ROWS, N):
                        C[by * ROWS + i, j] = acc[i, j] + row[i]
                elif case == "calls":
                    for i, j in T.Parallel(ROWS, N):
                        C[by * ROWS + i, j] = T.sin(acc[i, j])  # calls
                else:
                    T.copy(acc, C[by * ROWS, 0])

        return main

    return factory


def launch_of(case):
    kernel = elaborate(product(case), name="product", dims={"M": Guard()}, args={}, config={})
    return to_tir(lower(kernel, parse_target("sm_90a")), parse_target("sm_90a")).launches[0]


def test_a_refusal_is_at_the_line_of_the_statement_that_misses_a_condition():
    roads = launch_of("threads").roads
    (road,) = (road for road in roads if road.loss is not None and road.loss.road == "warp_roles")
    assert road.loss is not None
    assert "160 threads are not one" in road.loss.condition
    assert "threads=128" in road.loss.remedy
    assert "# threads" in Path(__file__).read_text().splitlines()[road.line - 1]
    assert missed("warp_roles", roads) == [road]


@pytest.mark.parametrize(
    "case", ["shape", "start", "before", "clears", "converted", "inside", "behind", "across", "calls"]
)
def test_what_stands_beside_a_product_does_not_keep_it_from_roles(case):
    roads = launch_of(case).roads
    assert missed("warp_roles", roads) == missed("wgmma", roads) == missed("tma", roads) == []


def test_a_load_that_tma_does_not_carry_out_says_why():
    roads = launch_of("turned").roads
    road = next(road for road in roads if road.statement == "A -> a" and road.loss is not None)
    assert road.loss is not None
    assert road.loss.condition
    assert road.loss.remedy
    assert "# turned" in Path(__file__).read_text().splitlines()[road.line - 1]


@pytest.mark.parametrize("case", ["", "unused"])
def test_a_launch_with_roles_has_no_loss(case):
    launch = launch_of(case)
    assert losses(launch) == []
    assert missed("warp_roles", launch.roads) == missed("wgmma", launch.roads) == []


PRODUCT = """
kernel("product")
A = tensor({a}, (8, {K}), ("8", "{K}"), access="in")
B = tensor({a}, ({K}, {N}), ("{K}", "{N}"), access="in")
C = tensor({c}, (8, {N}), ("8", "{N}"), access="out")
with launch(1, threads=(32, 1, 1)) as (bx,):
    a = alloc({a}, (8, {K}), "shared.dyn")
    b = alloc({a}, ({K}, {N}), "shared.dyn")
    c = alloc({c}, (8, {N}), "local.fragment")
    copy(A[0:+8, 0:+{K}], a[0:+8, 0:+{K}])
    copy(B[0:+{K}, 0:+{N}], b[0:+{K}, 0:+{N}])
    fill(c[0:+8, 0:+{N}], {zero})
    gemm(a[0:+8, 0:+{K}], b[0:+{K}, 0:+{N}], c[0:+8, 0:+{N}], clear=False)
    copy(c[0:+8, 0:+{N}], C[0:+8, 0:+{N}])
"""


@pytest.mark.parametrize(
    ("types", "sizes", "said"),
    [
        (("int8", "int32"), (32, 32), ""),
        (("int8", "int32"), (32, 31), "K = 31 is no multiple of 2, which pmaddwd takes at once"),
        (("int8", "int32"), (36, 32), "36 columns are no multiple of the 8 of pmaddwd"),
        (("float32", "float32"), (32, 31), ""),
        (("float32", "float32"), (4, 32), ""),
        (("float32", "float32"), (4, 31), "4 columns do not fill a vector of 8"),
    ],
)
def test_a_cpu_says_what_keeps_a_product_from_its_instructions(types, sizes, said):
    (a, c), (N, K) = types, sizes
    zero = "0" if c == "int32" else "0.0"
    target = parse_target("x86-64-v3")
    launch = to_tir(
        lower(parse_kernel(PRODUCT.format(a=a, c=c, N=N, K=K, zero=zero)), target), target
    ).launches[0]
    (found,) = (road for road in launch.roads if road.kind == "microkernel")
    assert (found.loss.condition if found.loss else "") == said
    assert bool(missed("microkernel", launch.roads)) == bool(said)


def test_roads_survive_their_text():
    loss = Loss("vectors", 'why "so"', "change it; at once")
    roads = (Road("A -> b", "tma", "TMA", "/home/a/k.py", 3), Road("T.Kernel", "elements", "é", "", 0, loss))
    found = decode(encode(roads))
    assert [road.file for road in found] == ["k.py", ""], "images know no folders"
    assert found[1] == roads[1]
    assert str(found[0]) == "k.py:3: A -> b: TMA"
    assert (encode(()), decode("")) == ("", ())


@pytest.mark.parametrize("asked", ROADS)
def test_a_kernel_without_a_statement_for_a_road_misses_it(asked):
    (found,) = missed(asked, [Road("x", "registers", "registers")])
    assert found.loss is not None
    assert found.loss.road == asked


def test_attention_of_float32_turns_its_values():
    kernels = Path(__file__).parents[4] / "examples" / "kernels"
    strides = dict.fromkeys(("q_batch", "q_row", "kv_batch", "kv_row"), Guard(div=8))
    dims = {**dict.fromkeys(("B", "Sq", "Sk", "H", "Hkv"), Guard()), "D": Guard(eq=64), **strides}
    args, config = {"dtype": "float32"}, {"bM": 128, "bN": 64, "threads": 256}
    entry = load_entry("attention.py:attention_dense", kernels)
    kernel = elaborate(entry, name="attention", dims=dims, args=args, config=config)
    target = parse_target("sm_90a")
    roads = to_tir(lower(kernel, target), target).launches[-1].roads
    assert missed("wgmma", roads) == []
    (road,) = (road for road in roads if road.instruction == "turned in shared memory")
    assert road.loss is not None
    assert "is stored across K" in road.loss.condition
    assert "T.gemm" in (kernels / "attention_blocks.py").read_text().splitlines()[road.line - 1]


def test_statements_of_single_threads_have_a_road():
    @T.prim_func
    def each(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding(0)
            Y[tx] = X[tx]

    target = parse_target("sm_80")
    kernel = elaborate(each, name="each", dims={}, args={}, config={})
    (road,) = to_tir(lower(kernel, target), target).launches[0].roads
    assert (road.statement, road.instruction) == ("X -> Y", "each thread its own element")
