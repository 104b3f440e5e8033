"""Operators of torch and gradients: a backward kernel where the manifest names one, else an error."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tilec.build.library import build
from tilec.errors import ManifestError, PackageError
from tilec.manifest import load_manifest
from tilec.portable import loader
from tilec.targets import CPU_LEVELS, native_host, parse_target

torch = pytest.importorskip("torch")
torch_ops = pytest.importorskip("tilec.portable.torch_ops")

LEVEL = next(name for name in CPU_LEVELS if parse_target(name).arch == native_host().arch)
KERNELS = """
import tilec
import tilec.language as T

@tilec.jit(out_idx=[-1])
def product(n, dtype="float32", block=64):
    @T.prim_func
    def main(X: T.Tensor((n,), dtype), W: T.Tensor((n,), dtype), a: T.float32, Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=64) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = a * X[bx * block + i] * W[bx * block + i]
    return main

@tilec.jit(out_idx=[-2, -1])
def product_backward(n, dtype="float32", block=64):
    @T.prim_func
    def main(dY: T.Tensor((n,), dtype), X: T.Tensor((n,), dtype), W: T.Tensor((n,), dtype), a: T.float32,
             dX: T.Tensor((n,), dtype), dW: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=64) as bx:
            for i in T.Parallel(block):
                dX[bx * block + i] = a * dY[bx * block + i] * W[bx * block + i]
                dW[bx * block + i] = a * dY[bx * block + i] * X[bx * block + i]
    return main

@tilec.jit
def doubled(n, dtype="float32", block=64):
    @T.prim_func
    def main(X: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=64) as bx:
            for i in T.Parallel(block):
                X[bx * block + i] = 2 * X[bx * block + i]
    return main
"""
MANIFEST = f"""\
edition = 1

[package]
name = "gradients"

[targets]
cpu = ["{LEVEL}"]

[[kernel]]
name = "product"
source = "kernels.py:product"
dims = {{ n = "dynamic" }}
rtol = 1e-5

[kernel.backward]
kernel = "product_backward"
arguments = {{ dY = "grad Y", X = "X", W = "W", a = "a" }}
gradients = {{ dX = "X", dW = "W" }}

[[kernel]]
name = "product_backward"
source = "kernels.py:product_backward"
dims = {{ n = "dynamic" }}

[[kernel]]
name = "half"
source = "kernels.py:product"
dims = {{ n = "dynamic" }}

[kernel.backward]
kernel = "product_backward"
arguments = {{ dY = "grad Y", X = "X", W = "W", a = "a" }}
gradients = {{ dX = "X" }}

[[kernel]]
name = "doubled"
source = "kernels.py:doubled"
dims = {{ n = "dynamic" }}
"""


def write(folder: Path, text: str) -> Path:
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "gradients.toml").write_text(text)
    return folder / "gradients.toml"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> loader.Library:
    folder = tmp_path_factory.mktemp("gradients")
    return loader.load(build(write(folder, MANIFEST), folder / "out", jobs=1).report.library)


@pytest.fixture(scope="module")
def ops(library: loader.Library) -> Any:
    torch_ops.register(library, "tilec_gradients")
    return torch.ops.tilec_gradients


def leaves() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return tuple(torch.randn(100, requires_grad=True) for _ in range(2))


def test_gradients_are_those_of_torch(ops: Any) -> None:
    x, w = leaves()
    (ops.product(x, w, 3.0).sin().sum()).backward()
    found = x.grad, w.grad
    x, w = leaves()
    ((3.0 * x * w).sin().sum()).backward()
    torch.testing.assert_close(found, (x.grad, w.grad))


def test_a_gradient_that_is_spread_or_missing(ops: Any) -> None:
    x, w = leaves()
    ops.product(x, w.detach(), 3.0).sum().backward()  # the gradient that comes in has stride 0
    torch.testing.assert_close(x.grad, 3.0 * w.detach())
    assert w.grad is None


def test_it_goes_through_the_compiler(ops: Any) -> None:
    x, w = leaves()

    def model(x: Any, w: Any) -> Any:
        return ops.product(torch.relu(x), w, 3.0).sum()

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    compiled(x, w).backward()
    torch.testing.assert_close(x.grad, 3.0 * w.detach() * (x > 0))
    torch.library.opcheck(ops.product.default, (*leaves(), 3.0))


def test_what_writes_its_arguments_goes_through_the_compiler(ops: Any) -> None:
    def model(x: Any) -> Any:
        y = x + 1
        ops.doubled(y)
        return y * 3

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert (compiled(torch.ones(100)) == 12).all()
    torch.library.opcheck(ops.doubled.default, (torch.ones(100),))


def test_gradients_inside_of_autocast_have_the_types_of_the_leaves(ops: Any) -> None:
    x, w = (leaf.detach().half().requires_grad_() for leaf in leaves())
    with torch.autocast("cpu", dtype=torch.float16):
        ops.product(x, w, 3.0).sum().backward()
    assert x.grad.dtype == torch.float16
    torch.testing.assert_close(x.grad, 3 * w.detach())


def test_what_has_no_gradient_says_so(ops: Any) -> None:
    x, w = leaves()
    made = ops.product_backward(x, x.detach(), w.detach(), 1.0)
    with pytest.raises(RuntimeError, match=r"tilec_gradients\.product_backward has no backward kernel"):
        made[0].sum().backward()
    with pytest.raises(RuntimeError, match="product_backward gives no gradient of W; detach it"):
        ops.half(x, w, 3.0).sum().backward()
    ops.half(x, w.detach(), 3.0).sum().backward()
    torch.testing.assert_close(x.grad, 3.0 * w.detach())


def test_what_writes_its_arguments_refuses_before_it_runs(ops: Any) -> None:
    x = torch.ones(100, requires_grad=True)
    with pytest.raises(RuntimeError, match="doubled writes its arguments"):
        ops.doubled(x)
    assert (x == 1).all()
    with torch.no_grad():
        ops.doubled(x)
    ops.doubled(x.detach())
    assert (x == 4).all()


def test_what_a_backward_pass_kept_may_not_be_written(ops: Any) -> None:
    x = torch.ones(100, requires_grad=True)
    kept = 3 * x
    y = kept * kept
    ops.doubled(kept.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with torch.inference_mode():
        ops.doubled(made := torch.ones(100))
    assert (made == 2).all()


def test_threads_that_register_at_once(library: loader.Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first takes long, and the second begins meanwhile."""
    begun, register = threading.Event(), torch_ops._Operator.register

    def slow(operator: Any, space: Any, library: loader.Library) -> None:
        begun.set()
        time.sleep(0.05)
        register(operator, space, library)

    def second() -> tuple[str, ...]:
        begun.wait()
        return torch_ops.register(library, "at_once")

    monkeypatch.setattr(torch_ops._Operator, "register", slow)
    with ThreadPoolExecutor(2) as threads:
        calls = threads.submit(torch_ops.register, library, "at_once"), threads.submit(second)
        assert calls[0].result() == calls[1].result() != ()


def test_registering_again_changes_nothing(library: loader.Library, ops: Any, tmp_path: Path) -> None:
    names = torch_ops.register(library, "tilec_gradients")
    assert names == ("doubled", "half", "product", "product_backward")
    assert torch_ops.register(loader.load(library.path), "tilec_gradients") == names
    other = build(write(tmp_path, MANIFEST.replace("1e-5", "1e-4")), tmp_path / "out", jobs=1).report.library
    with pytest.raises(loader.LibraryError, match="name another namespace"):
        torch_ops.register(loader.load(other), "tilec_gradients")


def test_tolerances_reach_the_library(library: loader.Library) -> None:
    assert library.kernels["product"].metadata["tolerance"] == {"rtol": 1e-5}


def test_a_part_of_the_manifest_has_no_gradient(tmp_path: Path) -> None:
    made = build(write(tmp_path, MANIFEST), tmp_path / "out", jobs=1, kernels=["product"]).report
    assert "backward" not in loader.load(made.library).kernels["product"].metadata


def test_a_backward_kernel_that_is_not_there(tmp_path: Path) -> None:
    path = write(
        tmp_path, MANIFEST.replace('kernel = "product_backward"\n', 'kernel = "product_backwards"\n')
    )
    with pytest.raises(
        ManifestError, match="'product_backwards' of product is not in the manifest"
    ) as caught:
        load_manifest(path)
    assert "product_backward" in caught.value.remedy


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('W = "W", a', "a", "W of product_backward is not given"),
        ('X = "X", W', 'X = "Z", W', '"Z" is no parameter of product'),
        ('dX = "X", dW', 'dX = "Y", dW', "dX of product_backward is no gradient of an input Y of product"),
        ('dX = "X", dW', 'X = "X", dW', "X is no output of product_backward"),
        ('dX = "X", dW = "W"', 'dX = "W", dW = "W"', "an input has two gradients"),
    ],
)
def test_a_backward_kernel_that_does_not_fit(tmp_path: Path, old: str, new: str, why: str) -> None:
    text = MANIFEST[: MANIFEST.index('[[kernel]]\nname = "half"')].replace(old, new, 1)
    with pytest.raises(PackageError) as caught:
        build(write(tmp_path, text), tmp_path / "out", jobs=1)
    assert why in caught.value.why
