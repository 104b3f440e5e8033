"""Kernels as functions of JAX: compiled, mapped, differentiated, and refused where they do not fit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from samples import sample_spec, scalar, tensor
from shape_samples import kernel, lengths, shapes_kernel

from tilec.package.model import KernelRecord
from tilec.package.write import write_package
from tilec.portable.loader import Library, load
from tilec.targets import native_host

jax = pytest.importorskip("jax")
pytest.importorskip("jax_tvm_ffi", reason="jax-tvm-ffi of PyPI is not installed")
jax_ops = pytest.importorskip("tilec.portable.jax_ops")

PRODUCT = """
#include <stdint.h>
void {p}_0(const float* x, const float* w, float a, float* y, int64_t n,
           void* scratch, int64_t b, int64_t e) {{
  for (int64_t i = 0; i < n; i++) y[i] = a * x[i] * w[i];
}}
"""
BACKWARD = """
#include <stdint.h>
void {p}_0(const float* dy, const float* w, float a, float* dx, int64_t n,
           void* scratch, int64_t b, int64_t e) {{
  for (int64_t i = 0; i < n; i++) dx[i] = a * dy[i] * w[i];
}}
"""


def chain(name: str, text: str, names: str, **more: Any) -> KernelRecord:
    first, second, last = names.split()
    params = [
        tensor(first, "float32", "n"),
        tensor(second, "float32", "n"),
        scalar("a", "float32"),
        tensor(last, "float32", "n", access="out"),
    ]
    return kernel(name, text, params, ["n"], **more)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    backward = {
        "kernel": "product_backward",
        "arguments": {"dy": "grad y", "w": "w", "a": "a"},
        "gradients": {"dx": "x"},
    }
    spec = sample_spec(native_host(), "jaxed")
    more = (
        shapes_kernel(),
        chain("product", PRODUCT, "x w y", backward=backward),
        chain("product_backward", BACKWARD, "dy w dx"),
    )
    made = write_package(replace(spec, kernels=(*spec.kernels, *more)), tmp_path_factory.mktemp("jaxed"))
    return load(made.library)


@pytest.fixture(scope="module")
def functions(library: Library) -> Any:
    return jax_ops.functions(library)


def floats(*shape: int) -> Any:
    return jax.numpy.asarray(np.random.default_rng(0).random(shape, np.float32))


def test_compiled_functions_compute(functions: Any) -> None:
    a, b, x = floats(5, 8), floats(8, 16), floats(6, 7)
    compiled = jax.jit(lambda a, b: functions["matmul"](a, b, alpha=0.5) + 1)
    np.testing.assert_allclose(compiled(a, b), 0.5 * a @ b + 1, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(functions["normalize"])(x), x / x.sum(1, keepdims=True), rtol=1e-5)


def test_every_kind_of_scalar(functions: Any) -> None:
    x = jax.numpy.arange(4, dtype="int8")
    run = jax.jit(lambda x: functions["mixed"](x, 8, True, 3, 0.5))
    assert run(x).tolist() == [1, 1, 2, 2, 2, 2, 3, 3]


def test_it_is_mapped_over_an_axis(functions: Any) -> None:
    a, b = floats(3, 5, 8), floats(8, 16)
    found = jax.jit(jax.vmap(functions["matmul"], in_axes=(0, None)))(a, b)
    np.testing.assert_allclose(found, a @ b, rtol=1e-5)


def test_gradients_are_those_of_jax(functions: Any) -> None:
    x, w = floats(9), floats(9)
    loss = jax.jit(jax.grad(lambda x: jax.numpy.sin(functions["product"](x, w, 3.0)).sum()))
    expected = jax.grad(lambda x: jax.numpy.sin(3.0 * x * w).sum())
    np.testing.assert_allclose(loss(x), expected(x), rtol=1e-5)


def test_what_has_no_gradient_says_so(functions: Any) -> None:
    x, w = floats(9), floats(9)
    with pytest.raises(TypeError, match=r"product has no gradient of w: name a backward kernel"):
        jax.grad(lambda w: functions["product"](x, w, 3.0).sum())(w)
    with pytest.raises(TypeError, match=r"add has no gradient of a, b"):
        jax.grad(lambda x: functions["add"](x, x).sum())(x)


@pytest.mark.parametrize(
    ("args", "named", "said"),
    [
        ((floats(3), floats(4)), {}, r"add: b is float32\[4\], expected float32\[3\]"),
        ((floats(3), floats(3).astype("int32")), {}, r"add: b is int32\[3\], expected float32\[3\]"),
        ((floats(3),), {}, "add: b is not given"),
        ((), {}, "add: a, b are not given"),
        ((floats(3), floats(3)), {"k": 1}, "add takes a, b"),
        ((floats(3), floats(3, 1)), {}, r"add: b has 2 axes, expected \[N\]"),
        ((floats(3), [1.0, 2.0, 3.0]), {}, "add: b is list, expected an array"),
    ],
)
def test_arguments_that_do_not_fit(functions: Any, args: Any, named: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        jax.jit(lambda: functions["add"](*args, **named))()


def test_scalars_are_numbers_that_are_known(functions: Any) -> None:
    x, product = floats(9), functions["product"]
    with pytest.raises(TypeError, match=r"product: a is traced, .* name it in static_argnames"):
        jax.jit(product)(x, x, 3.0)
    np.testing.assert_allclose(jax.jit(product, static_argnames="a")(x, x, a=3.0), 3.0 * x * x, rtol=1e-6)
    np.testing.assert_allclose(product(x, x, jax.numpy.float32(3.0)), 3.0 * x * x, rtol=1e-6)
    with pytest.raises(TypeError, match="product: a is str, expected a number"):
        product(x, x, "3")


def test_every_form_of_an_extent(functions: Any) -> None:
    made = jax.jit(lambda x: functions["shapes"](x, 5, K=7))(floats(6, 10))
    assert [len(each) for each in made] == lengths(6, 10, 5, 7)
    with pytest.raises(TypeError, match="shapes: K is not given"):
        functions["shapes"](floats(6, 10), 5)


def test_a_library_that_is_opened_again_has_its_names_already(library: Library, functions: Any) -> None:
    again = jax_ops.functions(load(library.path))
    assert again.keys() == functions.keys() == library.kernels.keys()
    assert again["add"](floats(3), floats(3)).shape == (3,)


def test_kernels_that_have_no_function(library: Library) -> None:
    params = {each["name"]: each for each in library.kernels["product"].metadata["params"]}
    x, w, a, y = params["x"], params["w"], params["a"], params["y"]
    forms = {
        "apart": [x, a, w, y],
        "written": [{**x, "access": "inout"}, w, a, y],
        "four bits": [{**x, "dtype": "int4"}, w, a, y],
        "nothing": [x, w, a],
    }
    for form, listed in forms.items():
        metadata = {**library.kernels["product"].metadata, "params": listed}
        other = SimpleNamespace(metadata=metadata)
        assert not jax_ops._is_expressible(other), form
