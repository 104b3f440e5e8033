"""Forms of kernels: annotations, scalars, sizes, code around and between launches, outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import agree

import tilec
import tilec.language as T
from tilec.errors import SourceError, UnsupportedError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate

torch = pytest.importorskip("torch")
M, N = T.dynamic("M, N")


def array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def built(kernel: Any, **dims: Guard) -> Kernel:
    return elaborate(kernel, name="k", dims=dims, args={}, config={}, open_dims=True)


def error(kernel: Any, **options: Any) -> SourceError:
    """Of a kernel that cannot be built; it has the place in this file and a remedy."""
    with pytest.raises(SourceError) as caught:
        tilec.compile(kernel, target="cpu", **options)
    assert caught.value.place
    assert caught.value.place.file == __file__
    assert caught.value.remedy
    return caught.value


# Annotations ----------------------------------------------------------------------------------------------


@T.prim_func
def spellings(
    A: T.Tensor((M, 4), "float32"),
    B: T.Tensor[[M, 4], torch.float32],
    C: T.Tensor[(M, 4), T.float32],
    D: T.Tensor[M, 4],
    E: T.Tensor([M, 4]),
    F: T.Tensor(M),
    G: T.StridedTensor((M, 4), (8, 1), "float32"),
    H: T.StridedTensor[[M, 4], [1, M], np.float32],
    I: T.Buffer((M, 4), float, None, [4, 1]),  # noqa: E741
    Y: T.Tensor((M, 4), "float"),
):
    assert [X.shape[1] for X in (A, B, C, D, E, G, H, I)] == [4] * 8
    assert {str(X.dtype) for X in (A, B, C, D, E, F, G, H, I, Y)} == {"float32"}
    assert (A.strides, G.strides, A.scope(), A.name) == ((4, 1), (8, 1), "global", "A")
    rows, columns = A.shape
    flat = T.Tensor((rows * columns,), T.float32, A.data)
    with T.Kernel(rows, threads=32) as bx:
        s = T.alloc_shared((4,), "float16")
        assert (s.shape, s.dtype, s.scope(), s.name) == ((4,), "float16", "shared.dyn", "s")
        for j in T.Parallel(columns):
            Y[bx, j] = (
                flat[bx * 4 + j]
                + B[bx, j]
                + C[bx, j]
                + D[bx, j]
                + E[bx, j]
                + F[bx]
                + G[bx, j]
                + H[bx, j]
                + I[bx, j]
            )


def test_spellings_of_tensors_and_what_they_offer():
    parts = [array(3, 4) + number for number in range(8)]
    parts[5], f = np.zeros((3, 8), np.float32)[:, :4], array(3)
    parts[5][...] = array(3, 4)
    parts[6] = np.asfortranarray(parts[6])
    inputs = [*parts[:5], f, *parts[5:]]
    agree(spellings, *inputs, expected=sum(parts) + f[:, None])


def test_keys_of_tensors_that_are_no_shape():
    with pytest.raises(TypeError, match="is no extent"):
        T.Tensor[M, torch.float16]
    with pytest.raises(TypeError, match=r"32\.0 is no extent") as caught:
        T.Tensor((64 / 2,), "float32")
    assert "n // 32" in caught.value.remedy
    with pytest.raises(ValueError, match="2 extents but 1 strides"):
        T.StridedTensor((4, 4), (1,), "float32")


@pytest.mark.parametrize(
    "argument",
    [
        {"data": 1},
        {"elem_offset": 0},
        {"scope": "shared"},
        {"align": 4},
        {"offset_factor": 1},
        {"buffer_type": "auto"},
        {"axis_separators": [1]},
    ],
)
def test_arguments_of_buffer_that_are_refused(argument: dict[str, Any]):
    with pytest.raises(UnsupportedError, match=f"T.Buffer.{next(iter(argument))}="):
        T.Buffer((8,), "float32", **argument)


@pytest.mark.parametrize("name", ["access_ptr", "vload", "vstore"])
def test_low_level_accesses_are_refused(name: str):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            getattr(A, name)("r")

    assert f"{name} of a buffer" in str(error(main))


# Scalars --------------------------------------------------------------------------------------------------


@T.prim_func
def scalars(
    Y: T.Tensor((13,), "float64"),
    a: T.int8,
    b: T.int16,
    c: T.int32,
    d: T.int64,
    e: T.uint8,
    f: T.uint16,
    g: T.uint32,
    h: T.uint64,
    i: T.float16,
    j: T.bfloat16,
    k: T.float32,
    l: T.float64,  # noqa: E741
    m: T.bool,
):
    with T.Kernel(1, threads=32):
        for at, value in enumerate((a, b, c, d, e, f, g, h, i, j, k, l, m)):
            Y[at] = value


def test_scalars_of_every_dtype():
    values = (-1, -2, -3, -4, 5, 6, 7, 8, 1.5, 2.5, 3.5, 4.25, True)
    agree(scalars, *values, expected=np.asarray(values, np.float64))


@T.prim_func
def sized(n: T.int32, A: T.Tensor((n, 2), "float32"), B: T.Tensor((n * 2 + 1,), "float32")):  # noqa: F821
    with T.Kernel(n, threads=32) as bx:
        for j in T.Parallel(2):
            B[bx * 2 + j] = A[bx, j] + n


def test_a_scalar_may_size_tensors():
    a = array(5, 2)
    wanted = np.zeros(11, np.float32)
    kernel = tilec.compile(sized, target="cpu")
    kernel(5, a, wanted)
    np.testing.assert_allclose(wanted[:10], a.ravel() + 5)
    with pytest.raises(ValueError, match="A axis 0 has extent 5, expected n = 4"):
        kernel(4, a, wanted)


@pytest.mark.parametrize("extent", ["rows", "total"])
def test_a_scalar_may_have_the_name_of_a_dynamic_size(extent):
    """It is passed like any other, whether a tensor has that size or not."""
    total, rows = T.dynamic("total, rows")
    size = {"rows": rows, "total": total}[extent]

    @T.prim_func
    def first_rows(A: T.Tensor((size, 2), "float32"), rows: T.int32, B: T.Tensor((size, 2), "float32")):
        with T.Kernel(rows, threads=32) as bx:
            for j in T.Parallel(2):
                B[bx, j] = A[bx, j] + rows

    a, b = array(5, 2), np.zeros((5, 2), np.float32)
    count = {"rows": 5, "total": 3}[extent]
    tilec.compile(first_rows, target="cpu")(a, count, b)
    np.testing.assert_allclose(b[:count], a[:count] + count)
    assert not b[count:].any()


# Sizes ----------------------------------------------------------------------------------------------------


@T.prim_func
def doubled_size(A: T.Tensor((M * 2,), "float32"), B: T.Tensor((M * 2 + 1,), "float32")):
    with T.Kernel(M, threads=32) as bx:
        B[bx] = A[bx * 2] + A[bx * 2 + 1]


def test_a_size_inside_an_expression_alone_is_solved():
    kernel, b = tilec.compile(doubled_size, target="cpu"), np.zeros(7, np.float32)
    kernel(np.arange(6, dtype=np.float32), b)
    assert b.tolist()[:3] == [1, 5, 9]
    with pytest.raises(ValueError, match="A axis 0 has extent 5"):
        kernel(np.zeros(5, np.float32), np.zeros(6, np.float32))


UNNAMED = T.int32()


@T.prim_func
def named(
    A: T.Tensor((T.dyn["K"], UNNAMED), "float32"),
    B: T.Tensor((UNNAMED, T.Var("J", "int64")), "float32"),
    C: T.Tensor((T.dyn["K"], UNNAMED, T.symbolic("J", "int64")), "float32"),
):
    K, J = T.dyn["K"], T.Var("J", "int64")
    with T.Kernel(T.ceildiv(K * UNNAMED * J, 32), threads=32) as bx:
        for i in T.Parallel(32):
            if bx * 32 + i < K * UNNAMED * J:
                x, y, z = T.index_to_coordinates(bx * 32 + i, (K, UNNAMED, J))
                C[x, y, z] = A[x, y] * B[y, z]


def test_dimensions_made_in_every_way():
    a, b = array(3, 5), array(5, 4)
    agree(
        named,
        a,
        b,
        dims={"K": Guard(), "int32_0": Guard(), "J": Guard()},
        expected=np.einsum("xy,yz->xyz", a, b),
    )
    assert [dim.name for dim in built(named).dims] == ["K", "int32_0", "J"]


def test_dimensions_that_cannot_be():
    @T.prim_func
    def nowhere(A: T.Tensor((8,), "float32")):
        with T.Kernel(T.dynamic("m")) as bx:
            A[bx] = 1.0

    @T.prim_func
    def twice(
        A: T.Tensor((8,), "float32"), B: T.Tensor((T.dynamic("m"), T.dynamic("m", "int64")), "float32")
    ):
        with T.Kernel(1):
            A[0] = B[0, 0]

    @T.prim_func
    def both(m: T.Tensor((T.dynamic("m"),), "float32")):
        with T.Kernel(1):
            m[0] = 1.0

    assert "no argument of nowhere says what m is" in str(error(nowhere))
    assert "two variables are called m" in str(error(twice))
    assert "m is a tensor and a dimension" in str(error(both))
    with pytest.raises(TypeError, match="no runtime dimension"):
        T.float32()


# Code around launches -------------------------------------------------------------------------------------


@T.macro
def scaled(X, Y, factor):
    with T.Kernel(T.ceildiv(X.shape[0], 32), threads=32) as bx:
        for i in T.Parallel(32):
            Y[bx * 32 + i] = X[bx * 32 + i] * factor


@T.macro
def shifted(X, by):
    out = T.empty((X.shape[0],), X.dtype)
    with T.Kernel(T.ceildiv(X.shape[0], 32), threads=32) as bx:
        for i in T.Parallel(32):
            out[bx * 32 + i] = X[bx * 32 + i] + by
    return out


@T.prim_func
def chained(A: T.Tensor((N,), "float32"), limit: T.int32):
    doubled = T.alloc_global((N,), "float32")
    scaled(A, doubled, 2)
    last = T.min(N, limit) - 1
    made = shifted(doubled, 1)
    Y = T.empty(N, dtype=T.float32)
    with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
        held = T.alloc_global((N,), "float32")
        for i in T.Parallel(32):
            held[bx * 32 + i] = made[bx * 32 + i]
    with T.Kernel(N, threads=32) as bx:
        Y[bx] = held[last - bx]
    return Y, made


def test_launches_in_order_with_workspace_macros_and_outputs():
    a = array(45)
    made = 2 * a + 1
    agree(chained, a, 40, expected=[np.concatenate([made[39::-1], np.zeros(5, np.float32)]), made])


def test_outputs_are_returned_and_are_no_out_idx():
    @T.prim_func
    def kept(A: T.Tensor((8,), "float32")):
        Y = T.empty((8,), "float32")
        with T.Kernel(1):
            Y[0] = A[0]

    @T.prim_func
    def given(A: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            A[0] = 1.0
        return A

    @T.prim_func
    def fine(A: T.Tensor((8,), "float32")):
        Y = T.empty((8,), "float32")
        with T.Kernel(1):
            Y[0] = A[0]
        return Y

    assert isinstance(error(kept), RuntimeError)
    assert isinstance(error(given), RuntimeError)
    assert isinstance(error(fine, out_idx=[0]), ValueError)


# Signatures -----------------------------------------------------------------------------------------------


def test_parameters_of_prim_funcs_that_are_refused():
    @T.prim_func
    def bare(A: T.Tensor((8,), "float32"), n):
        with T.Kernel(1):
            A[0] = 1.0

    @T.prim_func
    def python_int(A: T.Tensor((8,), "float32"), n: int):
        with T.Kernel(1):
            A[0] = 1.0

    @T.prim_func
    def empty(A: T.Tensor((8,), "float32")):
        pass

    assert "argument n of bare is not annotated" in str(error(bare))
    assert "n: T.int32" in error(python_int).remedy
    assert isinstance(error(python_int), TypeError)
    assert "has no T.Kernel block" in str(error(empty))
    with pytest.raises(TypeError, match="positional-only"):

        @T.prim_func
        def variadic(A: T.Tensor((8,), "float32"), *rest):
            pass

    with pytest.raises(TypeError, match="positional-only"):

        @T.prim_func
        def positional(A: T.Tensor((8,), "float32"), /):
            pass


@T.prim_func
def with_default(A: T.Tensor((8,), "float32"), s: T.float32 = 2.0):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            A[i] = s


def test_defaults_of_prim_funcs_are_documentation():
    with pytest.raises(ValueError, match="expected 2 inputs, got 1"):
        tilec.compile(with_default, target="cpu")(np.zeros(8, np.float32))
    with pytest.raises(TypeError, match="not callable"):
        with_default(np.zeros(8, np.float32))
