"""What is timed beside kernels, where one call of torch is not all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

try:
    import onnx
    import onnxruntime
except ImportError:
    onnxruntime = None


def products(a: torch.Tensor, b: torch.Tensor) -> dict[str, Callable[[], object]]:
    """``a @ b`` by torch and NumPy into a tensor that is there, and by onnxruntime where it is installed."""
    out = torch.empty(a.shape[0], b.shape[1])
    left, right, found = a.numpy(), b.numpy(), out.numpy()
    calls: dict[str, Callable[[], object]] = {
        "torch": lambda: torch.mm(a, b, out=out),
        "numpy": lambda: np.matmul(left, right, out=found),
    }
    if onnxruntime is not None:
        calls["onnxruntime"] = _onnx_product(left, right)
    return calls


def _onnx_product(a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
    """A graph of one product, both operands its inputs. Its threads sleep between calls: they would take the
    processors of the other sides else."""
    value, number = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    shapes = {"A": a.shape, "B": b.shape, "C": (a.shape[0], b.shape[1])}
    infos = {name: value(name, number, shape) for name, shape in shapes.items()}
    node = onnx.helper.make_node("MatMul", ["A", "B"], ["C"])
    graph = onnx.helper.make_graph([node], "product", [infos["A"], infos["B"]], [infos["C"]])
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"A": a, "B": b})


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Pairs half a head apart, turned by the angle of their token's place."""
    first, second = x.chunk(2, -1)
    c, s = cos[places][:, None], sin[places][:, None]
    return torch.cat([first * c - second * s, second * c + first * s], -1)
