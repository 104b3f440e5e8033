"""The operators without Python (`tilec build --torch`), in a process that has no others of this name."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from checks import HERE, Env, agree, check, linear_fp8, matmul, refused, rms_norm


@cache
def operators() -> Any:
    """Of the library that torch loads."""
    torch.ops.load_library(HERE / "lib" / "libdoors_torch.so")
    return torch.ops.doors


@check("operators agree with torch")
def _(env: Env) -> None:
    ops = operators()
    for m, n, k in ((37, 136, 128), (300, 264, 192), (70, 133, 77)):
        a, b = env.random(m, k, dtype=torch.float16), env.random(k, n, dtype=torch.float16)
        agree(ops.matmul_float16(a, b), matmul(a, b), dtype=torch.float16)
        a, w = (env.random(*shape).to(torch.float8_e4m3fn) for shape in ((m, k), (n, k)))
        agree(ops.linear_fp8(a, w, 0.25), linear_fp8(a, w, 0.25), dtype=torch.bfloat16)
    wide, weight = env.random(50, 200, dtype=torch.bfloat16), env.random(128, dtype=torch.bfloat16)
    agree(
        ops.rms_norm_bfloat16(wide[:, 3:131], weight), rms_norm(wide[:, 3:131], weight), dtype=torch.bfloat16
    )
    x = env.random(999)
    before = x.clone()
    ops.doubled(x)
    agree(x, 2 * before)
    agree(ops.repeated(x, m=3), x.expand(3, 999).contiguous())


@check("tensors that begin at any element")
def _(env: Env) -> None:
    x, w = env.random(4112), env.random(4112)
    for first, second in ((0, 0), (1, 0), (3, 2), (4, 8)):
        a, b = x[first : first + 4096], w[second : second + 4096]
        agree(operators().product(a, b, 0.5), 0.5 * a * b)


@check("workspaces of torch")
def _(env: Env) -> None:
    for m, n in ((10, 30), (200, 5000), (7, 64)):
        x = env.random(m, n)
        agree(operators().column_sums(x), x.sum(0))


@check("errors are torch's")
def _(env: Env) -> None:
    a, b = env.random(32, 64, dtype=torch.float16), env.random(64, 40, dtype=torch.float16)
    refused("element type", operators().matmul_float16, a.float(), b)
    refused("expected K = 64", operators().matmul_float16, a, b[:60].contiguous())
    if env.device == "cuda":
        refused("is on device", operators().matmul_float16, a, b.cpu())
        refused("is on device", operators().matmul_float16, a.cpu(), b)
    agree(operators().matmul_float16(a, b), matmul(a, b), dtype=torch.float16)


@check("they run on the current stream", cuda=True)
def _(env: Env) -> None:
    x, w = torch.zeros(4096, device="cuda"), env.random(4096)
    rows = torch.zeros(64, 4096, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(3.0)
        rows.fill_(2.0)
        found, sums = operators().product(x, w, 2.0), operators().column_sums(rows)
    stream.synchronize()
    agree(found, 6.0 * w)
    agree(sums, torch.full((4096,), 128.0, device="cuda"))


@check("they are captured", cuda=True)
def _(env: Env) -> None:
    rows = env.random(100, 2000)
    operators().column_sums(rows)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sums = operators().column_sums(rows)
    for _ in range(3):
        rows.copy_(torch.randn_like(rows))
        graph.replay()
        agree(sums, rows.sum(0))
