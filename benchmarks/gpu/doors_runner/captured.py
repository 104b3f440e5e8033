"""Calls inside of CUDA graphs that torch captures."""

from __future__ import annotations

from collections.abc import Callable

import torch
from checks import Env, agree, check, matmul, refused


def capture(work: Callable[[], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A graph of ``work`` behind one run that warms it up, and its result."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = work()
    return graph, made


@check("a graph of operators gives what new inputs ask for", cuda=True)
def _(env: Env) -> None:
    a, b = env.random(40, 128, dtype=torch.float16), env.random(128, 136, dtype=torch.float16)
    x = env.random(40, 136)

    def work() -> torch.Tensor:
        sums = env.ops.column_sums(env.ops.matmul_float16(a, b).float() + x)
        return env.ops.product(sums, sums, 2.0)

    graph, made = capture(work)
    for _ in range(3):
        a.copy_(env.random(40, 128, dtype=torch.float16))
        x.copy_(env.random(40, 136))
        graph.replay()
        sums = ((a @ b).float() + x).sum(0)
        off = float((made - 2 * sums * sums).norm() / (2 * sums * sums).norm())
        assert off < 5e-3, off


@check("workspaces of graphs stay theirs while others come and go", cuda=True)
def _(env: Env) -> None:
    rows = [env.random(100, 2000), env.random(300, 6000)]
    made = [capture(lambda each=each: env.ops.column_sums(each)) for each in rows]
    direct = [capture(lambda each=each: env.library.column_sums(each)) for each in rows]
    for size in (10_000, 3_000_000):
        agree(
            env.library.column_sums(torch.ones(10, size, device="cuda")),
            torch.full((size,), 10.0, device="cuda"),
        )
        for each in rows:
            each.copy_(torch.randn_like(each))
        litter = [torch.full((1000, count), torch.nan, device="cuda") for count in (10, 100, 1000, 5000)]
        for graph, _ in (*made, *direct):
            graph.replay()
        for kind in (made, direct):
            for each, (_, sums) in zip(rows, kind, strict=True):
                agree(sums, each.sum(0))
        assert all(bool(torch.isnan(each).all()) for each in litter), "a graph wrote into memory of others"


@check("a kernel that was not loaded is refused in a capture, which goes on", cuda=True)
def _(env: Env) -> None:
    x, weight = env.random(10, 64), env.random(64)
    ops, kernel = env.ops, env.library.kernels["rms_norm_float32"]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        refused("TILEC_ERR_NOT_PRELOADED", ops.rms_norm_float32, x, weight)
        y = x + 1
    x.zero_()
    graph.replay()
    agree(y, torch.ones(10, 64, device="cuda"))
    kernel.preload("cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        ops.rms_norm_float32(x, weight)


@check("a graphed callable with its backward pass", cuda=True)
def _(env: Env) -> None:
    def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return env.ops.product(torch.relu(x), w, 2.0)

    given = [env.random(256).requires_grad_() for _ in range(2)]
    graphed = torch.cuda.make_graphed_callables(model, tuple(given))
    x, w = (env.random(256).requires_grad_() for _ in range(2))
    made = graphed(x, w)
    agree(made, 2 * torch.relu(x) * w)
    made.sum().backward()
    agree(x.grad, (2 * w * (x > 0)).detach())


@check("a graph of the prepared calls of the loader", cuda=True)
def _(env: Env) -> None:
    a, b = env.random(200, 256, dtype=torch.bfloat16), env.random(256, 264, dtype=torch.bfloat16)
    c = torch.empty(200, 264, dtype=torch.bfloat16, device="cuda")
    env.library.matmul_bfloat16(a, b, c)
    stream = torch.cuda.Stream()
    call = env.library.matmul_bfloat16.prepare(a, b, c, stream=stream.cuda_stream)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        call()
    c.zero_()
    graph.replay()
    torch.cuda.synchronize()
    agree(c, matmul(a, b), dtype=torch.bfloat16)
