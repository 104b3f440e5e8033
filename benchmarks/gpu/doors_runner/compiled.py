"""Operators under torch.library.opcheck, torch.compile and torch.export."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from checks import Env, agree, check
from model import ROWS, both, close


@check("opcheck; of 8-bit floats what torch can compare")
def _(env: Env) -> None:
    half = {"dtype": torch.float16}
    wide = env.random(10, 100, **half)
    x, w = env.random(100).requires_grad_(), env.random(100).requires_grad_()
    for name, given, dims in (
        ("product", (x, w, 2.0), {}),
        ("matmul_float16", (env.random(16, 24, **half), env.random(24, 8, **half)), {}),
        ("rms_norm_float16", (wide[:, 2:66], env.random(64, **half)), {}),
        ("column_sums", (env.random(20, 30),), {}),
        ("doubled", (env.random(100),), {}),
        ("repeated", (env.random(100),), {"m": 3}),
    ):
        torch.library.opcheck(getattr(env.ops, name).default, given, dims)
    bytes_each = [env.random(8, 32).to(torch.float8_e4m3fn) for _ in range(2)]
    without_products = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(env.ops.linear_fp8.default, (*bytes_each, 1.0), test_utils=without_products)


@check("a compiled model, one graph for all numbers of rows")
def _(env: Env) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    model, peer = both(env)
    counted = CompileCounterWithBackend("inductor")
    compiled = torch.compile(model, backend=counted, fullgraph=True, dynamic=True)
    for rows in ROWS:
        x = env.random(rows, 128)
        close(compiled(x), peer(x))
    assert counted.frame_count == 1, f"{counted.frame_count} graphs"


@check("a compiled model that its own CUDA graphs run", cuda=True)
def _(env: Env) -> None:
    from torch._dynamo.utils import counters

    model, peer = both(env)
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    for _ in range(6):
        x = env.random(48, 128)
        close(compiled(x).clone(), peer(x))
    skipped = counters["inductor"]["cudagraph_skips"]
    assert not skipped, f"{skipped} graphs were not made"


@check("a compiled backward pass")
def _(env: Env) -> None:
    def model(x: torch.Tensor, w: torch.Tensor) -> Any:
        return env.ops.product(torch.relu(x), w, 3.0).sum()

    x, w = env.random(500).requires_grad_(), env.random(500).requires_grad_()
    torch.compile(model, fullgraph=True)(x, w).backward()
    agree(x.grad, 3.0 * w.detach() * (x > 0))
    agree(w.grad, 3.0 * torch.relu(x).detach())


@check("a compiled model that writes a tensor, on transposed inputs")
def _(env: Env) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        y = (x.T + 1).contiguous().view(-1)
        env.ops.doubled(y)
        return y * 3

    x = env.random(30, 20)
    agree(torch.compile(model, fullgraph=True)(x), 6 * (x.T + 1).reshape(-1))


@check("an exported model, saved and loaded")
def _(env: Env) -> None:
    model, peer = both(env)
    rows = torch.export.Dim("rows", min=2, max=4096)
    program = torch.export.export(model, (env.random(48, 128),), dynamic_shapes=[{0: rows}])
    with TemporaryDirectory() as folder:
        torch.export.save(program, Path(folder, "model.pt2"))
        loaded = torch.export.load(Path(folder, "model.pt2")).module()
    for count in ROWS:
        x = env.random(count, 128)
        close(loaded(x), peer(x))
