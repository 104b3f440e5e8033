"""Kernels built by hand, for the tests of printer, parser, verifier and interpreter."""

from __future__ import annotations

from tvm import tirx

from tilec.ir import nodes as ir
from tilec.ir.guards import Guard
from tilec.ir.layout import Digit, Layout

F32, I32 = "float32", "int32"
FALSE, TRUE = tirx.const(False, "bool"), tirx.const(True, "bool")


def var(name: str, dtype: str = I32) -> tirx.Var:
    """A scalar variable."""
    return tirx.Var(name, dtype)


def i32(value: int) -> tirx.IntImm:
    """An int32 constant."""
    return tirx.const(value, I32)


def f32(value: float) -> tirx.FloatImm:
    """A float32 constant."""
    return tirx.const(value, F32)


def buffer(name, shape, dtype=F32, scope="global", strides=None):
    """A buffer of any scope."""
    return tirx.decl_buffer(shape, dtype, name, scope=scope, strides=strides)


def shared(name, shape, dtype=F32):
    """A shared tile."""
    return buffer(name, shape, dtype, "shared.dyn")


def fragment(name, shape, dtype=F32):
    """A fragment."""
    return buffer(name, shape, dtype, "local.fragment")


def load(buf, *indices):
    """``buf[indices]``."""
    return tirx.BufferLoad(buf, [i32(index) if isinstance(index, int) else index for index in indices])


def store(buf, indices, value):
    """``buf[indices] = value``."""
    indices = indices if isinstance(indices, tuple) else (indices,)
    return ir.Store(buf, tuple(i32(index) if isinstance(index, int) else index for index in indices), value)


def region(buf, *axes):
    """``axes`` are (start, extent) pairs; none: the whole buffer."""
    axes = axes or tuple((0, extent) for extent in buf.shape)
    start = tuple(i32(low) if isinstance(low, int) else low for low, _ in axes)
    extent = tuple(int(size) if isinstance(size, (int, tirx.IntImm)) else size for _, size in axes)
    return ir.Region(buf, start, extent)


def tensor(buf, *extents, access="in", output=False, strides=None):
    """A tensor parameter; extents default to the texts of the shape."""
    texts = extents or tuple(str(extent) for extent in buf.shape)
    return ir.TensorParam(str(buf.name), buf, texts, strides, access, output)


def dynamic(v, guard=None):
    """A runtime dimension."""
    return ir.Dim(str(v.name), v, guard or Guard())


def launch(grid, block_vars, *body, threads=128):
    """One launch with a flat thread count."""
    return ir.Launch(tuple(grid), tuple(block_vars), (threads, 1, 1), tuple(body))


def loop(v, stop, *body, kind="serial"):
    """``for v in range(stop)``."""
    stop = i32(stop) if isinstance(stop, int) else stop
    return ir.For(kind, v, i32(0), stop, i32(1), tuple(body))


def scale_kernel():
    """y = alpha * x, n a multiple of 16, blocks of 64."""
    n, alpha, bx, i = var("n"), var("alpha", F32), var("bx"), var("i")
    x, y, t = buffer("x", (n,)), buffer("y", (n,)), fragment("t", (64,))
    body = (
        ir.Alloc(t),
        ir.Copy(region(x, (bx * 64, 64)), region(t)),
        ir.Parallel((i,), (64,), (store(y, bx * 64 + i, load(t, i) * alpha),)),
    )
    return ir.Kernel(
        "scale",
        (tensor(x, "n"), ir.ScalarParam("alpha", alpha, 2.0), tensor(y, "n", access="out", output=True)),
        (dynamic(n, Guard(div=16)),),
        (launch([(n + 63) // 64], [bx], *body),),
        "y = alpha * x",
    )


def matmul_kernel(dtype=F32, m_tile=32, n_tile=32, k_tile=16, k_size=40, n_size=48):
    """C[M, N] = A[M, K] @ B[N, K]^T, M dynamic, N and K pinned; A, B of ``dtype``, C float32."""
    m, bx, by, ko = var("M"), var("bx"), var("by"), var("ko")
    a, b = buffer("A", (m, k_size), dtype), buffer("B", (n_size, k_size), dtype)
    c = buffer("C", (m, n_size))
    at, bt = shared("A_tile", (m_tile, k_tile), dtype), shared("B_tile", (n_tile, k_tile), dtype)
    acc = fragment("acc", (m_tile, n_tile))
    step = (
        ir.Copy(region(a, (by * m_tile, m_tile), (ko * k_tile, k_tile)), region(at)),
        ir.Copy(region(b, (bx * n_tile, n_tile), (ko * k_tile, k_tile)), region(bt)),
        ir.Gemm(region(at), region(bt), region(acc), False, True, FALSE),
    )
    steps = -(-k_size // k_tile)
    body = (
        ir.Alloc(at, layout=Layout(((Digit(m_tile, k_tile),), (Digit(k_tile, 1),)))),
        ir.Alloc(bt),
        ir.Alloc(acc),
        ir.Fill(region(acc), f32(0.0)),
        ir.Pipelined(ko, i32(0), i32(steps), step, num_stages=2),
        ir.Copy(region(acc), region(c, (by * m_tile, m_tile), (bx * n_tile, n_tile))),
    )
    grid = [-(-n_size // n_tile), (m + (m_tile - 1)) // m_tile]
    return ir.Kernel(
        "matmul",
        (tensor(a, "M", "K"), tensor(b, "N", "K"), tensor(c, "M", "N", access="out")),
        (dynamic(m), ir.Dim("K", None, Guard(eq=k_size)), ir.Dim("N", None, Guard(eq=n_size))),
        (launch(grid, [bx, by], *body),),
    )


def softmax_kernel(rows=4, cols=10):
    """Row softmax of X[M, N], N at most ``cols``; columns past N are -inf."""
    m, n, bx, i, j = var("M"), var("N"), var("bx"), var("i"), var("j")
    i2, j2, i3, j3 = var("i"), var("j"), var("i"), var("j")
    x, y = buffer("X", (m, n)), buffer("Y", (m, n))
    s, top, total = fragment("s", (rows, cols)), fragment("top", (rows,)), fragment("total", (rows,))
    inside = tirx.if_then_else(tirx.LT(j, n), load(x, bx * rows + i, j), f32(float("-inf")))
    body = (
        ir.Alloc(s),
        ir.Alloc(top),
        ir.Alloc(total),
        ir.Parallel((i, j), (rows, cols), (store(s, (i, j), inside),)),
        ir.Reduce("max", region(s), region(top), 1, True),
        ir.Parallel((i2, j2), (rows, cols), (store(s, (i2, j2), tirx.exp(load(s, i2, j2) - load(top, i2))),)),
        ir.Reduce("sum", region(s), region(total), 1, True),
        ir.Parallel(
            (i3, j3), (rows, cols), (store(y, (bx * rows + i3, j3), load(s, i3, j3) / load(total, i3)),)
        ),
    )
    return ir.Kernel(
        "softmax",
        (tensor(x, "M", "N"), tensor(y, "M", "N", access="out")),
        (dynamic(m), dynamic(n, Guard(min=1, max=cols))),
        (launch([(m + (rows - 1)) // rows], [bx], *body),),
    )


def control_kernel():
    """Scalars, loops and branches: counts, breaks, continues and while."""
    n, bx, k, t = var("n"), var("bx"), var("k"), var("t")
    x, y = buffer("x", (n,), I32), buffer("y", (4,), I32)
    total = buffer("total", (1,), I32, "local.var")
    count = buffer("count", (1,), I32, "local.var")
    body = (
        ir.Alloc(total, init=i32(100)),
        ir.Alloc(count),
        loop(
            k,
            n,
            ir.Bind(t, load(x, k) * 2),
            ir.If(tirx.LT(t, i32(0)), (ir.Break(),)),
            ir.If(
                tirx.EQ(tirx.floormod(t, i32(3)), i32(0)),
                (ir.Continue(),),
                (store(count, 0, load(count, 0) + 1),),
            ),
            store(total, 0, load(total, 0) + t),
        ),
        ir.While(
            tirx.GT(load(total, 0), i32(10)),
            (store(total, 0, load(total, 0) - 7), ir.Assume(tirx.GE(load(total, 0), i32(3)))),
        ),
        store(y, 0, load(total, 0)),
        store(y, 1, load(count, 0)),
    )
    return ir.Kernel(
        "control",
        (tensor(x, "n"), tensor(y, "4", access="out")),
        (dynamic(n),),
        (launch([1], [bx], *body),),
    )


SAMPLES = {
    "scale": scale_kernel,
    "matmul": matmul_kernel,
    "softmax": softmax_kernel,
    "control": control_kernel,
}
