"""Calls of the loader and of operators: types, layouts, outputs, workspaces, errors, gradients."""

from __future__ import annotations

from typing import Any

import torch
from checks import HERE, Env, LeftOut, agree, check, error_of, linear_fp8, matmul, refused, rms_norm

#: (M, N, K) of products: few rows, many, rows that no tensor map takes.
PRODUCTS = ((37, 136, 128), (300, 264, 192), (70, 133, 77))


@check("products of 16-bit floats by the loader")
def _(env: Env) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        kernel = env.library.kernels[f"matmul_{str(dtype).rpartition('.')[2]}"]
        for m, n, k in PRODUCTS:
            a, b = env.random(m, k, dtype=dtype), env.random(k, n, dtype=dtype)
            agree(kernel(a, b), matmul(a, b), dtype=dtype)


@check("products of 16-bit floats by the operator")
def _(env: Env) -> None:
    for m, n, k in PRODUCTS:
        a, b = (env.random(*shape, dtype=torch.bfloat16) for shape in ((m, k), (k, n)))
        agree(env.ops.matmul_bfloat16(a, b), matmul(a, b), dtype=torch.bfloat16)


@check("products of 8-bit floats")
def _(env: Env) -> None:
    for m, n, k in PRODUCTS:
        a, w = (env.random(*shape).to(torch.float8_e4m3fn) for shape in ((m, k), (n, k)))
        agree(env.ops.linear_fp8(a, w, 0.25), linear_fp8(a, w, 0.25), dtype=torch.bfloat16)


@check("rows of a wider tensor")
def _(env: Env) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        wide, weight = env.random(50, 200, dtype=dtype), env.random(128, dtype=dtype)
        operator = getattr(env.ops, f"rms_norm_{str(dtype).rpartition('.')[2]}")
        for start in (0, 3):
            rows = wide[:, start : start + 128]
            agree(operator(rows, weight), rms_norm(rows, weight), dtype=dtype)


@check("tensors that begin at any element")
def _(env: Env) -> None:
    x, w = env.random(4112), env.random(4112)
    for first, second in ((0, 0), (1, 0), (3, 2), (4, 8)):
        a, b = x[first : first + 4096], w[second : second + 4096]
        agree(env.ops.product(a, b, 0.5), 0.5 * a * b)


@check("a product of tensors between multiples of 16 bytes is right, or refused", cuda=True)
def _(env: Env) -> str:
    flat = env.random(64 * 128 + 1, dtype=torch.float16)
    a, b = flat[1:].view(64, 128), env.random(128, 136, dtype=torch.float16)
    error = error_of(env.ops.matmul_float16, a, b)
    if error is not None:
        assert "TILEC_ERR_LAYOUT" in str(error), error
        return "refused"
    agree(env.ops.matmul_float16(a, b), matmul(a, b), dtype=torch.float16)
    return "right"


@check("outputs that are given, and calls that are prepared")
def _(env: Env) -> None:
    x, w = env.random(1000), env.random(1000)
    made = torch.empty_like(x)
    env.library.product(x, w, 2.0, made)
    agree(made, 2 * x * w)
    call = env.library.product.prepare(x, w, 3.0, made)
    x.mul_(0.5)
    call()
    agree(made, 3 * x * w)


class Foreign:
    """What knows DLPack's protocol alone."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()


@check("arrays of others, by DLPack")
def _(env: Env) -> None:
    x, w = env.random(1000), env.random(1000)
    made = torch.zeros_like(x)
    env.library.product(Foreign(x), Foreign(w), 2.0, Foreign(made))
    agree(made, 2 * x * w)


@check("functions of tvm-ffi")
def _(env: Env) -> None:
    try:
        import tvm_ffi
    except ImportError:
        raise LeftOut("the tvm_ffi package is not installed") from None
    module = tvm_ffi.load_module(str(HERE / "lib" / "libdoors.so"))
    x, w, rows = env.random(1000), env.random(1000), env.random(50, 70)
    agree(torch.from_dlpack(module.doors_product(x, w, 2.0)), 2 * x * w)
    agree(torch.from_dlpack(module.doors_column_sums(rows)), rows.sum(0))


@check("a kernel that writes its argument, and one with a dim that the caller says")
def _(env: Env) -> None:
    x = env.random(777)
    before = x.clone()
    env.ops.doubled(x)
    agree(x, 2 * before)
    agree(env.ops.repeated(x, m=3), x.expand(3, 777).contiguous())


@check("workspaces that grow and shrink")
def _(env: Env) -> None:
    for m, n in ((10, 30), (200, 5000), (7, 64), (100, 20000)):
        x = env.random(m, n)
        agree(env.ops.column_sums(x), x.sum(0))
        agree(env.library.column_sums(x), x.sum(0))


@check("tensors without elements")
def _(env: Env) -> None:
    agree(env.ops.product(env.random(0), env.random(0), 1.0), env.random(0))
    assert env.ops.repeated(env.random(5), m=0).shape == (0, 5)


@check("other types, shapes and layouts are errors, after which calls go on")
def _(env: Env) -> None:
    a, b = env.random(32, 64, dtype=torch.float16), env.random(64, 40, dtype=torch.float16)
    refused("TILEC_ERR_DTYPE", env.ops.matmul_float16, a.float(), b)
    refused("TILEC_ERR_DTYPE", env.library.matmul_float16, a, b.bfloat16())
    refused("TILEC_ERR_SHAPE", env.ops.matmul_float16, a, b[:60].contiguous())
    refused("TILEC_ERR_SHAPE", env.ops.matmul_float16, a[0], b)
    refused("TILEC_ERR_LAYOUT", env.ops.matmul_float16, a, env.random(40, 64, dtype=torch.float16).T)
    refused("missing", env.library.matmul_float16, a)
    agree(env.ops.matmul_float16(a, b), matmul(a, b), dtype=torch.float16)


@check("tensors on several devices are errors, and each device is served", cuda=True)
def _(env: Env) -> None:
    x, w = env.random(100), env.random(100)
    refused("TILEC_ERR_DEVICE", env.ops.product, x, w.cpu(), 1.0)
    refused("TILEC_ERR_DEVICE", env.ops.product, x.cpu(), w, 1.0)
    refused("TILEC_ERR_DEVICE", env.library.product, x, w, 1.0, torch.empty(100))
    agree(env.ops.product(x.cpu(), w.cpu(), 2.0), 2 * x.cpu() * w.cpu())
    agree(env.ops.product(x, w, 2.0), 2 * x * w)


@check("a library says which variant serves a device")
def _(env: Env) -> str:
    kernel = env.library.kernels["product"]
    kernel.preload(env.device)
    return str(kernel.select(env.device, n=64).target)


def leaves(env: Env) -> tuple[torch.Tensor, torch.Tensor]:
    """Two vectors that want gradients."""
    return env.random(500).requires_grad_(), env.random(500).requires_grad_()


@check("gradients are those of torch")
def _(env: Env) -> None:
    x, w = leaves(env)
    env.ops.product(x, w, 3.0).sin().sum().backward()
    again = [each.detach().clone().requires_grad_() for each in (x, w)]
    (3.0 * again[0] * again[1]).sin().sum().backward()
    agree(x.grad, again[0].grad)
    agree(w.grad, again[1].grad)


@check("a gradient of one input, from one that is spread")
def _(env: Env) -> None:
    x, w = leaves(env)
    env.ops.product(x, w.detach(), 3.0).sum().backward()
    agree(x.grad, 3.0 * w.detach())
    assert w.grad is None


@check("what has no gradient says so")
def _(env: Env) -> None:
    a, b = env.random(16, 16, dtype=torch.float16), env.random(16, 16, dtype=torch.float16)
    refused("no backward kernel", env.ops.matmul_float16(a.requires_grad_(), b).sum().backward)
    x, w = leaves(env)
    refused("writes its arguments", env.ops.doubled, x)
    kept = x * w
    made = (kept * kept).sum()
    env.ops.doubled(kept.detach())
    refused("modified by an inplace operation", made.backward)


@check("inside of autocast")
def _(env: Env) -> None:
    a, b = env.random(32, 64), env.random(64, 40)
    x, w = (each.half().detach().requires_grad_() for each in leaves(env))
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast(env.device, dtype=dtype):
            agree(env.ops.matmul_bfloat16(a, b), matmul(a.bfloat16(), b.bfloat16()), dtype=torch.bfloat16)
            made = env.ops.product(x, w, 3.0)
    agree(made, 3.0 * x.float() * w.float())
    made.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float16
