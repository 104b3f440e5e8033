"""Operators of torch under its compiler, exporter and autocast, for every form that an extent may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from samples import normalize_kernel, tensor
from shape_samples import LEVEL, kernel, lengths, shapes_kernel

from tilec.package.model import PackageSpec
from tilec.package.write import write_package
from tilec.portable import loader
from tilec.targets import native_host

torch = pytest.importorskip("torch")
torch_ops = pytest.importorskip("tilec.portable.torch_ops")

#: y = x + 1 where the bits of a float16 are not 0
MIXED = """
#include <stdint.h>
void {p}_0(const float* x, const uint16_t* bits, float* y, int64_t n, void* scratch, int64_t begin,
           int64_t end) {{
  for (int64_t i = 0; i < n; i++) y[i] = x[i] + (bits[i] != 0);
}}
"""


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Any:
    n = [tensor("x", "float32", "n"), tensor("b", "float16", "n"), tensor("y", "float32", "n", access="out")]
    mixed, normalize = kernel("mixed", MIXED, n, ["n"]), normalize_kernel(LEVEL, native_host())
    spec = PackageSpec("torchshapes", "1.0", native_host(), (shapes_kernel(), mixed, normalize))
    made = write_package(spec, tmp_path_factory.mktemp("torchshapes"))
    torch_ops.register(loader.load(made.library))
    return torch.ops.torchshapes


def test_every_form_of_an_extent_passes_opcheck(ops: Any) -> None:
    x = torch.rand(6, 12)[:, :10]
    torch.library.opcheck(ops.shapes.default, (x, 5), {"K": 7})
    assert [len(each) for each in ops.shapes(x, 5, K=7)] == lengths(6, 10, 5, 7)


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
    """All outputs in one tensor, with work of torch on both sides."""

    def forward(self, x: Any) -> Any:
        return torch.cat(torch.ops.torchshapes.shapes(torch.relu(x), 5, K=7)) + 1


def test_one_compiled_graph_serves_all_shapes(ops: Any) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    model, counted = Model(), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counted, fullgraph=True, dynamic=True)
    for shape in ((6, 10), (9, 12), (11, 17)):
        x = torch.rand(*shape)
        torch.testing.assert_close(compiled(x), model(x))
    assert counted.frame_count == 1


def test_it_is_exported_saved_and_loaded(ops: Any, tmp_path: Path) -> None:
    rows, columns = torch.export.Dim("rows", min=3, max=64), torch.export.Dim("columns", min=20, max=4096)
    exported = torch.export.export(Model(), (torch.rand(6, 30),), dynamic_shapes=[(rows, columns)])
    torch.export.save(exported, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for shape in ((6, 30), (17, 25)):
        x = torch.rand(*shape)
        torch.testing.assert_close(loaded(x), Model()(x))


def test_operators_keep_no_workspace(ops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def memory(device: Any, stream: int, size: int) -> tuple[object, int, int]:
        sizes.append(size)
        return host_memory(device, stream, size)

    host_memory = loader._host_memory
    monkeypatch.setattr(loader, "_host_memory", memory)
    x = torch.rand(3, 4)
    for _ in range(2):
        torch.testing.assert_close(ops.normalize(x), x / x.sum(1, keepdim=True))
    assert len(sizes) == 2


def test_shapes_that_do_not_agree_are_refused_while_tracing(ops: Any) -> None:
    compiled = torch.compile(lambda a, b: ops.mixed(a, b), backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match=r"mixed: b has the shape \(5,\), expected \[4\]"):
        compiled(torch.rand(4), torch.rand(5).half())
    with pytest.raises(RuntimeError, match="mixed: b has the shape"):
        compiled(torch.rand(4), torch.rand(4, 1).half())


@pytest.mark.parametrize("given", ["float16", "bfloat16", "float32"])
def test_autocast_gives_each_tensor_the_type_that_the_kernel_reads(ops: Any, given: str) -> None:
    x = torch.ones(4, dtype=getattr(torch, given), requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ops.mixed(x, x).tolist() == [2, 2, 2, 2]
        compiled = torch.compile(lambda x: ops.mixed(x, x), backend="aot_eager", fullgraph=True)
        assert compiled(x.detach()).dtype == torch.float32
    with pytest.raises(loader.LaunchError, match="TILEC_ERR_DTYPE"):
        ops.mixed(x.detach(), x.detach())


def test_autocast_leaves_other_types_alone(ops: Any) -> None:
    x = torch.ones(4, dtype=torch.float64)
    with torch.autocast("cpu"), pytest.raises(loader.LaunchError, match="TILEC_ERR_DTYPE"):
        ops.mixed(x, x)
