"""`tilec build --onnxruntime`: the onnxruntime package of PyPI runs kernels as operators of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from operator_kernels import bump_kernel, packed_kernel
from samples import sample_spec

from tilec.errors import PackageError
from tilec.package.operators.onnxruntime import operators, write_operators
from tilec.package.write import write_package
from tilec.targets import native_host

ort = pytest.importorskip("onnxruntime", reason="onnxruntime of PyPI is not installed")
onnx = pytest.importorskip("onnx", reason="onnx of PyPI is not installed")

Model: TypeAlias = Callable[..., Any]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = sample_spec(native_host(), "operated")
    spec = replace(spec, kernels=(*spec.kernels, bump_kernel(), packed_kernel()))
    report = write_package(spec, tmp_path_factory.mktemp("operators"))
    (made,) = write_operators([spec], [report])
    return made


@pytest.fixture(scope="module")
def model(library: Path) -> Model:
    """``model("matmul", {"A": a, "B": b}, ["C"], alpha=0.5)``: the outputs of one node, by its name."""

    def run(
        name: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str],
        threads: int = 2,
        **attributes: Any,
    ) -> list[np.ndarray]:
        helper = onnx.helper
        node = helper.make_node(name, list(inputs), list(outputs), domain="operated", **attributes)
        graph = helper.make_graph([node], "one", [_value(name, a) for name, a in inputs.items()], [])
        graph.output.extend(onnx.ValueInfoProto(name=each) for each in outputs)
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("operated", 1)]
        text = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 4
        options.register_custom_ops_library(str(library))
        session = ort.InferenceSession(text, options, providers=["CPUExecutionProvider"])
        return session.run(None, dict(inputs))

    return run


def _value(name: str, array: np.ndarray) -> Any:
    dtype = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, dtype, [None] * array.ndim)


@pytest.mark.parametrize("threads", [1, 3])
def test_kernels_are_operators(model: Model, threads: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.random(1000, dtype=np.float32) for _ in "ab")
    np.testing.assert_array_equal(model("add", {"a": a, "b": b}, ["c"], threads)[0], a + b)
    a, b = rng.random((5, 8), dtype=np.float32), rng.random((8, 16), dtype=np.float32)
    np.testing.assert_allclose(model("matmul", {"A": a, "B": b}, ["C"], threads)[0], a @ b, rtol=1e-6)
    found = model("matmul", {"A": a, "B": b}, ["C"], threads, alpha=0.5)[0]
    np.testing.assert_allclose(found, 0.5 * a @ b, rtol=1e-6)


def test_strides_are_those_of_whole_rows_and_a_workspace_is_there(model: Model) -> None:
    x = np.random.default_rng(1).random((7, 64), dtype=np.float32)
    (found,) = model("normalize", {"x": x}, ["y"])
    np.testing.assert_allclose(found, x / x.sum(axis=1, keepdims=True), rtol=1e-6)


def test_scalars_are_attributes_also_where_they_are_dims(model: Model) -> None:
    x = np.arange(4, dtype=np.int8)
    attributes = {"n": 8, "flag": 1, "shift": 10, "scale": 2.0}
    (found,) = model("mixed", {"x": x}, ["y"], **attributes)
    np.testing.assert_array_equal(found, 2 * (x.repeat(2).astype(np.int32) + 10))
    (found,) = model("mixed", {"x": x}, ["y"], **{**attributes, "flag": 0})
    np.testing.assert_array_equal(found, -2 * x.repeat(2).astype(np.int32))


def test_what_is_read_and_written_comes_in_and_goes_out(model: Model) -> None:
    x = np.arange(3, dtype=np.float32)
    bumped, y = model("bump", {"x": x}, ["x2", "y"], M=6, step=0.5)
    np.testing.assert_array_equal(bumped, np.arange(3) + 0.5)
    np.testing.assert_array_equal(y[:6], np.tile(np.arange(3), 2))
    assert y.shape == (12,)
    np.testing.assert_array_equal(x, np.arange(3))
    assert np.isinf(model("bump", {"x": x}, ["x2", "y"], M=3)[0]).all()


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "said"),
    [
        (
            "matmul",
            {"A": (5, 8), "B": (7, 16)},
            {},
            "matmul: it failed: .* extent 7, expected K = 8",
        ),
        ("matmul", {"A": (5, 8, 1), "B": (8, 16)}, {}, "matmul: A has 3 axes, expected 2"),
        ("matmul", {"A": (200, 8), "B": (8, 24)}, {}, "matmul: no variant serves it: "),
        ("bump", {"x": (3,)}, {}, "bump: it needs an integer attribute: M"),
        ("bump", {"x": (3,)}, {"M": 2**62}, "bump: the extents of its outputs have no value"),
    ],
)
def test_wrong_nodes_are_errors_of_the_session(
    model: Model, name: str, shapes: dict[str, tuple[int, ...]], attributes: dict[str, int], said: str
) -> None:
    inputs = {each: np.ones(shape, np.float32) for each, shape in shapes.items()}
    outputs = ["x2", "y"] if name == "bump" else ["out"]
    with pytest.raises(Exception, match=said):
        model(name, inputs, outputs, **attributes)


def test_kernels_of_other_element_types_and_devices_are_none() -> None:
    names = [
        each.name for each in operators(replace(sample_spec(), kernels=(bump_kernel(), packed_kernel())))
    ]
    assert names == ["bump"]


def test_no_operator_is_an_error(tmp_path: Path) -> None:
    spec = replace(sample_spec(native_host()), kernels=(packed_kernel(),))
    report = write_package(spec, tmp_path)
    with pytest.raises(PackageError, match="sample has no kernel that ONNX Runtime can call"):
        write_operators([spec], [report])
    assert not list(tmp_path.glob("lib/*onnxruntime*"))
