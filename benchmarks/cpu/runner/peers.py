"""What is timed beside kernels, where one call of torch is not all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch_peers
from torch.nn import functional

try:
    import onnx
    import onnxruntime
except ImportError:
    onnxruntime = None


def products(a: torch.Tensor, b: torch.Tensor) -> dict[str, Callable[[], object]]:
    """``a @ b`` by torch and NumPy into a tensor that is there, by oneDNN where torch has it, and by
    onnxruntime where it is installed."""
    out = torch.empty(a.shape[0], b.shape[1])
    left, right, found = a.numpy(), b.numpy(), out.numpy()
    calls: dict[str, Callable[[], object]] = {
        "torch": lambda: torch.mm(a, b, out=out),
        "numpy": lambda: np.matmul(left, right, out=found),
    }
    if torch.backends.mkldnn.is_available():
        calls["onednn"] = _onednn_product(a, b)
    if onnxruntime is not None:
        calls["onnxruntime"] = _onnx_product(left, right)
    return calls


def products_int8(
    a: torch.Tensor, w: torch.Tensor, a_scale: torch.Tensor, w_scale: torch.Tensor
) -> dict[str, Callable[[], object]]:
    """``a @ w.T`` of int8, the weights packed ahead and ``a`` stored as uint8 with zero at 128: scaled by
    oneDNN (torch), int32 sums alone of oneDNN's int8 product, which takes more than 16 rows, and of
    onnxruntime."""
    moved = torch_peers.shifted(a)
    calls: dict[str, Callable[[], object]] = {
        "torch": lambda: torch_peers.linear_shifted(moved, w, a_scale, w_scale)
    }
    if len(a) > 16:
        calls["_int_mm"] = lambda: torch._int_mm(a, w.t())
    if onnxruntime is not None:
        calls["onnxruntime"] = _onnx_product_int8(moved.numpy(), w.numpy())
    return calls


def _onednn_product(a: torch.Tensor, b: torch.Tensor) -> Callable[[], object]:
    """As ``linear`` of a weight that lies as ``b`` does: products of torch go to MKL, which leaves the widest
    vectors of some CPUs alone."""
    multiply, weight = torch.ops.mkldnn._linear_pointwise, b.t()
    return lambda: multiply(a, weight, None, "none", [], "")


def _onnx_product(a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
    """A graph of one product, both operands its inputs."""
    value, number = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    shapes = {"A": a.shape, "B": b.shape, "C": (a.shape[0], b.shape[1])}
    infos = {name: value(name, number, shape) for name, shape in shapes.items()}
    node = onnx.helper.make_node("MatMul", ["A", "B"], ["C"])
    graph = onnx.helper.make_graph([node], "product", [infos["A"], infos["B"]], [infos["C"]])
    return _onnx_call(graph, {"A": a, "B": b})


def _onnx_product_int8(a: np.ndarray, w: np.ndarray) -> Callable[[], object]:
    """A graph of one product of ``a``, zero at 128, with weights that are part of it."""
    value, kinds = onnx.helper.make_tensor_value_info, onnx.TensorProto
    constants = {"B": np.ascontiguousarray(w.T), "zero": np.array(128, np.uint8)}
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    node = onnx.helper.make_node("MatMulInteger", ["A", "B", "zero"], ["C"])
    inputs, outputs = value("A", kinds.UINT8, a.shape), value("C", kinds.INT32, (len(a), len(w)))
    graph = onnx.helper.make_graph([node], "product", [inputs], [outputs], initializer=initializers)
    return _onnx_call(graph, {"A": a})


def _onnx_call(graph: onnx.GraphProto, inputs: dict[str, np.ndarray]) -> Callable[[], object]:
    """A session of ``graph``. Its threads sleep between calls: they would take the processors of the other
    sides else."""
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, inputs)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None, causal: bool = False
) -> torch.Tensor:
    """Of tensors (B, heads, rows, D)."""
    grouped = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=grouped)


def attention_of_each(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: tuple[int, ...], causal: bool
) -> torch.Tensor:
    """Of one sequence after the other, rows (tokens, heads, D) back to back."""
    parts = zip(*(x.transpose(0, 1)[None].split(lengths, 2) for x in (q, k, v)), strict=True)
    return torch.cat([attention(*part, causal=causal)[0] for part in parts], 1).transpose(0, 1)


class Padded:
    """Sequences as long as the longest of them; what hides their ends is made ahead."""

    def __init__(self, rows: tuple[torch.Tensor, ...], lengths: tuple[int, ...], causal: bool) -> None:
        pad = torch.nn.utils.rnn.pad_sequence
        self._padded = [pad(x.split(lengths), batch_first=True).transpose(1, 2) for x in rows]
        places = torch.arange(max(lengths))
        seen = places < torch.tensor(lengths)[:, None]
        self._mask = seen[:, None, None] & (places <= places[:, None]) if causal else seen[:, None, None]

    def attention(self) -> torch.Tensor:
        """Of all sequences at once."""
        return attention(*self._padded, mask=self._mask)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Pairs half a head apart, turned by the angle of their token's place."""
    first, second = x.chunk(2, -1)
    c, s = cos[places][:, None], sin[places][:, None]
    return torch.cat([first * c - second * s, second * c + first * s], -1)


def gating(scores: torch.Tensor, k: int) -> torch.Tensor:
    """The softmax of the ``k`` largest of each row, largest first."""
    return torch.topk(scores, k).values.softmax(-1)
