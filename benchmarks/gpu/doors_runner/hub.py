"""The folder for the kernel hub: operators under a namespace of their own, layers of models."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from types import ModuleType, SimpleNamespace

import torch
from checks import HERE, Env, LeftOut, agree, check, matmul, refused, rms_norm

FOLDER = HERE / "hub"
BUILD = FOLDER / "build" / "torch-universal"


def has_kernels() -> bool:
    """Whether the package is installed that loads such folders."""
    return importlib.util.find_spec("kernels") is not None


@cache
def loaded() -> ModuleType:
    """As that package loads it, or where it is missing as a module under the id of its metadata."""
    if has_kernels():
        from kernels import get_local_kernel

        return get_local_kernel(FOLDER)
    name = json.loads((BUILD / "metadata.json").read_text())["id"]
    spec = importlib.util.spec_from_file_location(name, BUILD / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@check("functions of the module")
def _(env: Env) -> str:
    a, b = env.random(40, 128, dtype=torch.float16), env.random(128, 136, dtype=torch.float16)
    agree(loaded().matmul_float16(a, b), matmul(a, b), dtype=torch.float16)
    made = torch.empty(40, 136, dtype=torch.float16, device=env.device)
    loaded().library.kernels["matmul_float16"](a, b, made)
    agree(made, matmul(a, b), dtype=torch.float16)
    return "by get_local_kernel" if has_kernels() else "imported: the kernels package is not installed"


@check("they compile under their own namespace")
def _(env: Env) -> None:
    assert loaded().add_op_namespace_prefix("product").startswith("_doors_")
    module = loaded()
    compiled = torch.compile(lambda x: module.product(x, x, 2.0) + 1, backend="aot_eager", fullgraph=True)
    x = env.random(100)
    agree(compiled(x), 2 * x * x + 1)
    torch.library.opcheck(loaded().ops.column_sums.default, (env.random(6, 7),))


@check("a layer with axes in front, for each element type")
def _(env: Env) -> None:
    forward = loaded().layers.RMSNorm.forward
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x, weight = env.random(2, 5, 64, dtype=dtype), env.random(64, dtype=dtype)
        wanted = rms_norm(x.view(10, 64), weight).view(2, 5, 64)
        agree(forward(SimpleNamespace(weight=weight), x), wanted, dtype=dtype)
    refused("RMSNorm has kernels for", forward, SimpleNamespace(weight=weight), x.double())


@check("kernelize puts it in place of a model's own")
def _(env: Env) -> None:
    if not has_kernels():
        raise LeftOut("the kernels package is not installed")
    import kernels

    @kernels.use_kernel_forward_from_hub("RMSNorm")
    class RMSNorm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = env.random(64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError("the model's own forward ran")

    mapping = {"RMSNorm": {env.device: kernels.LocalLayerRepository(FOLDER, layer_name="RMSNorm")}}
    with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
        model = kernels.kernelize(
            RMSNorm(), mode=kernels.Mode.INFERENCE, device=env.device, use_fallback=False
        )
    x = env.random(10, 64)
    agree(model(x), rms_norm(x, model.weight))
