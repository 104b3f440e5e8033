"""Regions, copies, products, reductions, allocations: shapes and their errors."""

from __future__ import annotations

import numpy as np
import pytest
from language_build import DYNAMIC, body, build, call, text

import tilec
import tilec.language as T
from tilec.errors import (
    SourceAssertionError,
    SourceIndexError,
    SourceRuntimeError,
    SourceTypeError,
    SourceValueError,
    UnsupportedError,
)
from tilec.ir import nodes as ir
from tilec.ir.guards import Guard
from tilec.ir.hints import Hints

#: These kernels are traced for the form of their statements and never run; most fill no tile.
pytestmark = pytest.mark.filterwarnings("ignore:.* is read before anything is written to it:UserWarning")


def tile_kernel(use, shape=(64, 48), tile=(16, 8), dtype="float32"):
    """A kernel with a global tensor A, a shared tile s and a fragment f; ``use(A, s, f, bx)`` is its body."""

    @T.prim_func
    def main(A: T.Tensor(shape, dtype)):
        with T.Kernel(4) as bx:
            s = T.alloc_shared(tile, dtype)
            f = T.alloc_fragment(tile, dtype)
            use(A, s, f, bx)

    return main


def lines(use, **kwargs):
    """What ``use`` adds, printed."""
    return body(tile_kernel(use, **kwargs))[2:]


def refuses(kind, use, match, **kwargs):
    with pytest.raises(kind, match=match) as caught:
        build(tile_kernel(use, **kwargs))
    assert caught.value.place.file == __file__


# Copies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda A, s, f, bx: T.copy(s, f), "copy(s[0:+16, 0:+8], f[0:+16, 0:+8])"),
        (lambda A, s, f, bx: T.copy(A[bx * 16, 8], s), "copy(A[bx * 16:+16, 8:+8], s[0:+16, 0:+8])"),
        (lambda A, s, f, bx: T.copy(s, A[bx * 16, 8]), "copy(s[0:+16, 0:+8], A[bx * 16:+16, 8:+8])"),
        (
            lambda A, s, f, bx: T.copy(A[bx * 16 : (bx + 1) * 16, 8:16], s),
            "copy(A[bx * 16:+16, 8:+8], s[0:+16, 0:+8])",
        ),
        (lambda A, s, f, bx: T.copy(A[0:12, 0:8], s), "copy(A[0:+16, 0:+8], s[0:+16, 0:+8])"),
        (lambda A, s, f, bx: T.copy(A[60:70, 0:8], s), "copy(A[60:+16, 0:+8], s[0:+16, 0:+8])"),
        (lambda A, s, f, bx: T.copy(f, A[0:64, 0:48]), "copy(f[0:+16, 0:+8], A[0:+16, 0:+8])"),
        (lambda A, s, f, bx: T.copy(s[3, :], f[2, :]), "copy(s[3:+1, 0:+8], f[2:+1, 0:+8])"),
        (lambda A, s, f, bx: T.copy(A[-16:, -8:], s), "copy(A[48:+16, 40:+8], s[0:+16, 0:+8])"),
        (lambda A, s, f, bx: T.copy(s[3, 0:8], A[bx, 0]), "copy(s[3:+1, 0:+8], A[bx:+1, 0:+8])"),
        (lambda A, s, f, bx: T.copy(A[1, 2], s[3, 4]), "s[3, 4] = A[1, 2]"),
    ],
)
def test_copy_extents(use, expected):
    assert lines(use) == [expected]


def test_copies_between_ranks_drop_axes_of_one():
    def use(A, s, f, bx):
        T.copy(A[bx, 0:16, 2, :], s)
        row = A[0, 0, bx, 0:8]
        T.copy(s[3, :], row)

    assert lines(use, shape=(4, 64, 4, 8)) == [
        "copy(A[bx:+1, 0:+16, 2:+1, 0:+8], s[0:+16, 0:+8])",
        "copy(s[3:+1, 0:+8], A[0:+1, 0:+1, bx:+1, 0:+8])",
    ]


def test_an_element_of_higher_rank_takes_the_extents_on_its_right():
    def use(A, s, f, bx):
        T.copy(A[bx, 5, 0], s)

    assert lines(use, shape=(4, 64, 8)) == ["copy(A[bx:+1, 5:+16, 0:+8], s[0:+16, 0:+8])"]


def test_bound_starts_and_stops_cancel_out():
    @T.prim_func
    def main(A: T.Tensor((64, 8), "float32")):
        with T.Kernel(4) as bx:
            s = T.alloc_shared((16, 8), "float32")
            lo = bx * 16
            hi = lo + 16
            T.copy(A[lo:hi, :], s)

    assert body(main)[-1] == "copy(A[lo:+16, 0:+8], s[0:+16, 0:+8])"


def test_copy_hints_are_kept():
    def use(A, s, f, bx):
        T.copy(A[0, 0], s, coalesced_width=4, annotations={"prefer_instruction": "sync"})

    stmt = next(stmt for stmt in ir.walk(build(tile_kernel(use)).body) if isinstance(stmt, ir.Copy))
    assert stmt.hints == Hints(coalesced_width=4, prefer_instruction="sync")


@pytest.mark.parametrize(
    ("use", "match"),
    [
        (lambda A, s, f, bx: T.copy(A, s), "axis 0 has 64 in A and 16 in s"),
        (lambda A, s, f, bx: T.copy(A[0:32, 0:8], s), "axis 0 of A has extent 32, s holds 16"),
        (lambda A, s, f, bx: T.copy(T.alloc_shared((8,), "float32"), s), "ranks 1 and 2 differ"),
        (lambda A, s, f, bx: T.copy(T.alloc_shared((1, 16, 8), "float32"), s), "ranks 3 and 2"),
        (lambda A, s, f, bx: T.copy(T.alloc_shared((8,), "float32")[0], s), "too few"),
        (
            lambda A, s, f, bx: T.copy(s, T.alloc_shared((2, 2, 16, 8), "float32")[:, :, :, 0]),
            "do not pair up",
        ),
    ],
)
def test_copy_of_shapes_that_do_not_match(use, match):
    refuses(ValueError, use, match)


def test_copy_refuses_other_things():
    refuses(SourceTypeError, lambda A, s, f, bx: T.copy(3, s), "takes buffers")
    refuses(KeyError, lambda A, s, f, bx: T.copy(A[0, 0], s, eviction_policy="soon"), "eviction_policy")


def test_fill_and_clear():
    def use(A, s, f, bx):
        T.fill(s[2, :], 3)
        T.clear(f)
        T.fill(A[bx, 1], -T.infinity("float32"))

    assert lines(use) == [
        "fill(s[2:+1, 0:+8], 3.0)",
        "fill(f[0:+16, 0:+8], 0.0)",
        'fill(A[bx:+1, 1:+1], float32("-inf"))',
    ]


# Indices --------------------------------------------------------------------------------------------------


def test_negative_indices_count_from_the_end():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            A[-1] = 1
            for i in T.serial(4):
                A[-i - 1] = 2
                A[i - 2] = 3

    assert [line.strip() for line in body(main)] == [
        "A[7] = 1",
        "for i in serial(0, 4, 1):",
        "A[7 - i] = 2",
        "A[i - 2] = 3",
    ]


@pytest.mark.parametrize(
    ("use", "kind", "match"),
    [
        (lambda A, s, f, bx: A[64, 0], SourceIndexError, "index 64 is out of range for axis 0 of A"),
        (lambda A, s, f, bx: s[0, -9], SourceIndexError, "index -1 is out of range for axis 1"),
        (lambda A, s, f, bx: A[bx], SourceIndexError, "A has 2 axes, got 1"),
        (lambda A, s, f, bx: A[0, 0, 0], SourceIndexError, "A has 2 axes, got 3"),
        (lambda A, s, f, bx: A[0:8:2, 0], SourceValueError, "step 2"),
        (lambda A, s, f, bx: A[0.5, 0], SourceTypeError, "not an integer"),
        (lambda A, s, f, bx: A[s[0, 0], 0], SourceTypeError, "not an integer"),
        (lambda A, s, f, bx: A[(bx, bx), 0], SourceTypeError, "index 0 of A is 2 indices, not one"),
        (lambda A, s, f, bx: A[[bx, bx] * 16 + bx, 0], SourceTypeError, r"operator \+ takes one index"),
        (lambda A, s, f, bx: sum(A[bx, 0] for _ in range(300)), SourceValueError, "more than 200 operators"),
        (lambda A, s, f, bx: A[70:80, 0], SourceIndexError, "index 70 is out of range"),
        (lambda A, s, f, bx: s.__setitem__((0, 0), f), SourceTypeError, "cannot hold a tile"),
        (lambda A, s, f, bx: s.__setitem__((0, 0), "x"), SourceTypeError, "takes numbers and expressions"),
    ],
)
def test_wrong_indices(use, kind, match):
    refuses(kind, use, match)


def test_buffers_describe_themselves():
    seen = {}

    def use(A, s, f, bx):
        seen.update(shape=A.shape, dtype=s.dtype, scopes=(A.scope(), s.scope(), f.scope()), name=f.name)
        seen.update(strides=A.strides)

    build(tile_kernel(use))
    assert seen == {
        "shape": (64, 48),
        "dtype": "float32",
        "scopes": ("global", "shared.dyn", "local.fragment"),
        "name": "f",
        "strides": (48, 1),
    }


# Products -------------------------------------------------------------------------------------------------


def product(a, b, c, dtypes=("float16", "float16", "float32"), scopes=None, **options):
    """A kernel of one gemm over tiles of these shapes."""

    @T.prim_func
    def main(X: T.Tensor((4, 4), "float32")):
        with T.Kernel(1):
            first = T.alloc_shared(a, dtypes[0])
            second = T.alloc_shared(b, dtypes[1])
            total = X if scopes == "global" else T.alloc_fragment(c, dtypes[2])
            T.gemm(first, second, total, **options)

    return main


def test_gemm():
    assert body(product((16, 32), (32, 8), (16, 8)))[-1].startswith(
        "gemm(first[0:+16, 0:+32], second[0:+32, 0:+8]"
    )
    turned = product((32, 16), (8, 32), (16, 8), transpose_A=True, transpose_B=True, clear_accum=True)
    assert "trans_a=True, trans_b=True, clear=True" in body(turned)[-1]
    assert build(product((16, 32), (32, 8), (16, 8), policy=T.GemmWarpPolicy.FullRow, k_pack=2))


@pytest.mark.parametrize(
    ("kernel", "kind", "match"),
    [
        (product((16, 32), (16, 8), (16, 8)), SourceAssertionError, "axis K is 32 in first and 16 in second"),
        (product((16, 32), (32, 8), (8, 8)), SourceAssertionError, "axis M is 16 in first and 8 in total"),
        (product((16, 32), (32, 8), (16, 16)), SourceAssertionError, "axis N is 8 in second and 16 in total"),
        (product((2, 16, 32), (32, 8), (16, 8)), SourceAssertionError, "extents"),
        (product((16,), (16, 8), (1, 8)), SourceAssertionError, "extents"),
        (
            product((16, 32), (32, 8), (16, 8), scopes="global"),
            SourceAssertionError,
            "accumulator is a fragment",
        ),
        (
            product((16, 32), (32, 8), (16, 8), ("float16", "int8", "float32")),
            SourceValueError,
            "float16 and second is int8",
        ),
        (
            product((16, 32), (32, 8), (16, 8), ("int8", "int8", "float32")),
            UnsupportedError,
            "int8 into float32",
        ),
        (product((16, 32), (32, 8), (16, 8), mbar=1), UnsupportedError, "mbar"),
    ],
)
def test_wrong_gemm(kernel, kind, match):
    with pytest.raises(kind, match=match):
        build(kernel)


def test_gemm_of_a_stage_and_a_runtime_clear():
    @T.prim_func
    def main(X: T.Tensor((4, 4), "float32")):
        with T.Kernel(1):
            a, b = T.alloc_shared((2, 16, 32), "float16"), T.alloc_shared((32, 8), "float16")
            c = T.alloc_fragment((16, 8), "float32")
            for k in range(2):
                T.gemm(a[k, :, :], b, c, clear_accum=k == 0)

    assert (
        body(main)[-1].strip() == "gemm(a[k:+1, 0:+16, 0:+32], b[0:+32, 0:+8], c[0:+16, 0:+8], clear=k == 0)"
    )


# Reductions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sum", "max", "min", "absmax"])
@pytest.mark.parametrize("clear", [True, False])
def test_reductions(kind, clear):
    reduce = getattr(T, f"reduce_{kind}")

    @T.prim_func
    def main(X: T.Tensor((4, 6), "float32"), Y: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            x, y = T.alloc_fragment((4, 6), "float32"), T.alloc_fragment((4,), "float32")
            T.copy(X, x)
            T.fill(y, 2)
            reduce(x, y, dim=-1, clear=clear)
            T.copy(y, Y)

    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    y = np.zeros(4, np.float32)
    call(build(main), {}, x, y)
    plain = {"sum": x.sum(1), "max": x.max(1), "min": x.min(1), "absmax": np.abs(x).max(1)}[kind]
    joined = {"sum": plain + 2, "min": np.minimum(plain, 2)}.get(kind, np.maximum(plain, 2))
    np.testing.assert_allclose(y, plain if clear else joined, rtol=1e-6)


@pytest.mark.parametrize(
    ("use", "kind", "match"),
    [
        (
            lambda A, s, f, bx: T.reduce_sum(f, T.alloc_fragment((4,), "float32"), dim=1),
            SourceValueError,
            r"\(4,\)",
        ),
        (
            lambda A, s, f, bx: T.reduce_sum(f, T.alloc_fragment((8,), "float32"), dim=2),
            SourceValueError,
            "dim=2",
        ),
        (lambda A, s, f, bx: T.reduce_max(A, f), SourceValueError, "global memory"),
        (
            lambda A, s, f, bx: T.reduce_max(f, T.alloc_fragment((16,), "float32"), batch=0),
            SourceValueError,
            "batch",
        ),
        (
            lambda A, s, f, bx: T.reduce(f, T.alloc_fragment((16,), "float32"), "mean", 1, True),
            SourceValueError,
            "bitor",
        ),
        (
            lambda A, s, f, bx: T.reduce_bitor(f, T.alloc_fragment((16,), "float32"), dim=1),
            SourceValueError,
            "only integers",
        ),
        (lambda A, s, f, bx: T.cumsum(f, dim=2), SourceValueError, "dim=2"),
        (lambda A, s, f, bx: T.cumsum(A), SourceValueError, "global memory"),
        (
            lambda A, s, f, bx: T.cummax(f, T.alloc_fragment((16,), "float32")),
            SourceValueError,
            "one shape",
        ),
    ],
)
def test_wrong_reductions(use, kind, match):
    refuses(kind, use, match)


def test_reduced_axis_may_stay_as_one():
    def use(A, s, f, bx):
        T.reduce_max(f, T.alloc_fragment((16, 1), "float32"), dim=1, nan_propagate=True)

    assert lines(use)[-1] == (
        "reduce_max(f[0:+16, 0:+8], fragment[0:+16, 0:+1], axis=1, clear=True, nan_propagate=True)"
    )


# Allocations and launches ---------------------------------------------------------------------------------


def test_allocations():
    @T.prim_func
    def main(B: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared(8, "float16", scope="shared")
            b = T.alloc_local([2, 3], "bool")
            c = T.alloc_fragment((4,), "int8", scope="local")
            d = T.alloc_var(T.int64, 5, "local.var")
            e = T.alloc_var("float32")
            w = T.alloc_global((2, 2), "float32")
            T.clear(a)
            T.clear(b)
            T.clear(c)
            w[0, 0] = e
            B[0] = d

    printed = text(main)
    assert 'w = alloc(float32, (2, 2), "global.workspace")\nwith launch' in printed
    assert [line for line in body(main) if " = alloc" in line] == [
        'a = alloc(float16, (8,), "shared.dyn")',
        'b = alloc(bool, (2, 3), "local")',
        'c = alloc(int8, (4,), "local")',
        'd = alloc(int64, (1,), "local.var", init=int64(5))',
        'e = alloc(float32, (1,), "local.var")',
    ]


@pytest.mark.parametrize(
    ("use", "kind", "match"),
    [
        (
            lambda A, s, f, bx: T.alloc_shared((bx, 4), "float32"),
            SourceValueError,
            "not known while building",
        ),
        (lambda A, s, f, bx: T.alloc_shared((0, 4), "float32"), SourceValueError, "not positive"),
        (lambda A, s, f, bx: T.alloc_shared((2.5,), "float32"), SourceTypeError, "no integer"),
        (
            lambda A, s, f, bx: T.alloc_shared((4,), "float32", scope="local"),
            SourceValueError,
            "no shared memory",
        ),
        (
            lambda A, s, f, bx: T.alloc_fragment((4,), "float32", scope="global"),
            SourceValueError,
            "no fragment",
        ),
        (lambda A, s, f, bx: T.alloc_var("int32", 1, init=2), SourceTypeError, "init twice"),
        (lambda A, s, f, bx: T.alloc_var("int32", 1, "local", 3), SourceTypeError, "takes a dtype"),
        (lambda A, s, f, bx: T.alloc_var("int32", scope=3), SourceTypeError, "no string"),
        (lambda A, s, f, bx: T.alloc_global((bx,), "float32"), SourceValueError, "does not follow"),
        (lambda A, s, f, bx: T.Kernel(2).__enter__(), SourceRuntimeError, "inside another region"),
        (lambda A, s, f, bx: T.Kernel(1, 2, 3, 4), SourceValueError, "1 to 3"),
        (lambda A, s, f, bx: T.Kernel(1, threads=0), SourceValueError, "threads"),
        (lambda A, s, f, bx: T.use_swizzle(4, order="spiral"), SourceValueError, "spiral"),
        (lambda A, s, f, bx: T.annotate_layout({3: None}), SourceTypeError, "takes buffers"),
        (lambda A, s, f, bx: T.empty((4,), "float32"), SourceRuntimeError, "inside a T.Kernel"),
        (lambda A, s, f, bx: list(T.serial(4)), SourceTypeError, "T.macro"),
        (lambda A, s, f, bx: T.serial(0, 4, 0), SourceValueError, "step 0"),
        (lambda A, s, f, bx: T.serial(2.5), SourceTypeError, "takes integers"),
        (lambda A, s, f, bx: T.Parallel(), SourceValueError, "at least one"),
        (lambda A, s, f, bx: T.Pipelined(4, num_stages=-1), SourceValueError, "num_stages"),
        (lambda A, s, f, bx: T.unroll(4, explicit=True, unroll_factor=2), SourceValueError, "not both"),
    ],
)
def test_wrong_allocations_and_launches(use, kind, match):
    refuses(kind, use, match)


def test_launch_queries_and_hints():
    seen = {}

    @T.prim_func
    def main(B: T.Tensor((4,), "float32")):
        with T.Kernel(3, 2, threads=(32, 4)):
            s = T.alloc_shared((4, 4), "float32")
            T.use_swizzle(10)
            T.annotate_layout({s: lambda i, j: (i, j), B: tilec.layout.make_swizzled_layout(B)})
            T.annotate_restrict_buffers(B)
            T.annotate_l2_hit_ratio({B: 0.5})
            T.annotate_min_blocks_per_sm(2)
            T.set_max_nreg(24, 0)
            seen["threads"] = (
                T.get_thread_extent(),
                T.get_thread_extents(),
                T.get_block_extents(),
                T.get_block_extent(2),
            )
            B[0] = T.get_block_binding(1) + T.get_block_bindings()[0]

    launch = build(main).launches[0]
    assert seen["threads"] == (32, [32, 4, 1], [3, 2], 1)
    assert launch.threads == (32, 4, 1)
    assert launch.schedule.given == {"use_swizzle": (10, "row"), "may_alias": ("B",), "min_blocks_per_sm": 2}
    assert body(main)[-1] == "B[0] = cast(float32, by + bx)"


def test_barriers_and_waits_add_nothing():
    def use(A, s, f, bx):
        T.async_copy(A[0, 0], s)
        T.ptx_commit_group()
        T.ptx_wait_group(0)
        T.sync_threads()
        T.copy(s, f)

    assert lines(use) == ["copy(A[0:+16, 0:+8], s[0:+16, 0:+8])", "copy(s[0:+16, 0:+8], f[0:+16, 0:+8])"]
    refuses(SourceValueError, lambda A, s, f, bx: T.async_copy(s, f), "global into shared")
    refuses(SourceValueError, lambda A, s, f, bx: T.sync_threads(16, 128), "sync_threads")


def test_pipelined_schedules_are_kept():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            s = T.alloc_shared((16,), "float32")
            for k in T.Pipelined(1, 4, num_stages=2, order=[0, 1], stage=[0, 1]):
                T.copy(A[k * 16], s)
                T.copy(s, A[k * 16])

    loop = next(stmt for stmt in ir.walk(build(main).body) if isinstance(stmt, ir.Pipelined))
    assert (loop.num_stages, loop.order, loop.stage) == (2, (0, 1), (0, 1))


# Guards ---------------------------------------------------------------------------------------------------


@tilec.jit
def divisible(M, block=128):
    assert M % block == 0, "M must be a multiple of the block"

    @T.prim_func
    def main(A: T.Tensor((M,), "float32")):
        with T.Kernel(M // block) as bx:
            T.clear(A[bx * block : (bx + 1) * block])

    return main


def test_guards_answer_factory_asserts():
    assert build(divisible, {"M": Guard(div=128)})
    assert build(divisible, {"M": Guard(div=256, min=512)})
    assert build(divisible, {"M": 256})
    with pytest.raises(AssertionError, match="multiple of the block"):
        build(divisible, {"M": 200})
    with pytest.raises(ValueError, match="dimension M is dynamic here"):
        build(divisible, {"M": DYNAMIC})


def test_an_ellipsis_is_all_axes_that_are_left():
    def copies(at):
        return lines(lambda A, s, f, bx: T.copy(A[at], T.alloc_shared((64, 48), "float32")))

    assert copies(...) == copies((..., slice(None))) == copies((slice(None), slice(None)))
    refuses(SourceIndexError, lambda A, s, f, bx: T.copy(A[..., 0, 0, 0], s), "2 axes, got 4")


def test_divmod_is_a_quotient_and_a_remainder():
    def stored(at):
        return lines(lambda A, s, f, bx: s.__setitem__(at(bx), 0.0))

    assert stored(lambda bx: divmod(bx, 3)) == stored(lambda bx: (bx // 3, bx % 3))
    assert stored(lambda bx: divmod(15, bx + 2)) == stored(lambda bx: (15 // (bx + 2), 15 % (bx + 2)))
