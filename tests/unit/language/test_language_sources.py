"""What a manifest binds for every form that `source` may name."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from language_build import DYNAMIC, call

import tilec.language as T
from tilec.errors import SourceError
from tilec.ir import nodes as ir
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import describe, elaborate, load_entry, tuning_configs
from tilec.language.frontend.modules.torch_device import Unanswered, without_a_device

FOLDER = Path(__file__).parent


def made(name: str, dims: dict[str, Any], args: Any = None, **config: Any) -> ir.Kernel:
    guards = {key: Guard(eq=value) if isinstance(value, int) else value for key, value in dims.items()}
    entry = load_entry(f"source_forms.py:{name}", FOLDER)
    return elaborate(entry, name="k", dims=guards, args=args or {}, config=config)


def extents(kernel: ir.Kernel) -> list[tuple[str, ...]]:
    return [param.extents for param in kernel.params if isinstance(param, ir.TensorParam)]


def test_a_prim_func_has_dims_alone():
    kernel = made("described", {"rows": 3, "columns": DYNAMIC})
    assert extents(kernel) == [("rows", "columns")] * 2
    assert [dim.var is None for dim in kernel.dims] == [True, False]
    x, y = np.ones((3, 5), np.float32), np.zeros((3, 5), np.float32)
    call(kernel, {"columns": 5}, x, y)
    assert (y == 2).all()


def test_a_plain_factory():
    kernel = made("plain", {"N": DYNAMIC}, {"term": 5.0}, block=8)
    assert extents(kernel) == [("N",)] * 2
    x, y = np.ones(20, np.float32), np.zeros(20, np.float32)
    call(kernel, {"N": 20}, x, y)
    assert (y == 6).all()


def test_the_first_config_of_autotune_is_the_default():
    kernel = made("tuned", {"N": 40})
    assert kernel.launches[0].grid == (3,)
    assert kernel.params[-1].output
    assert made("tuned", {"N": 40}, block=40).launches[0].grid == (1,)
    entry = load_entry("source_forms.py:tuned", FOLDER)
    assert [config["block"] for config in tuning_configs(entry, {"N": Guard(eq=40)}, {})] == [16, 40]
    assert tuning_configs(load_entry("source_forms.py:plain", FOLDER), {}, {}) == []


def test_an_eager_kernel_of_a_class():
    kernel = made("Kernels.added", {"M": DYNAMIC, "n": DYNAMIC}, {"dtype": "float16"})
    assert extents(kernel) == [("M", "n")] * 2
    assert [str(param.buffer.dtype) for param in kernel.params] == ["float16"] * 2
    assert [dim.name for dim in kernel.dims] == ["M", "n"]
    x, y = np.ones((2, 20), np.float16), np.zeros((2, 20), np.float16)
    call(kernel, {"M": 2, "n": 20}, x, y)
    assert (y == 5).all()  # the one term that is tuned
    assert made("Kernels.added", {"M": 4, "n": 20}, {"term": 7.0}).launches[0].grid == (4, 3)


@pytest.mark.parametrize("sizes", [{"M": 3, "N": DYNAMIC}, {"X__shape_0": 3, "X__shape_1": DYNAMIC}])
def test_sizes_that_come_with_the_argument(sizes: dict[str, Any]):
    assert describe(load_entry("source_forms.py:open_sizes", FOLDER)).required == ("X.dtype", "Z.dtype")
    dtypes = {"X.dtype": "float32", "Z.dtype": "float16"}
    kernel = made("open_sizes", {**sizes, "Z__shape_0": 3, "step": DYNAMIC}, dtypes)
    assert extents(kernel) == [tuple(sizes), ("Z__shape_0",), tuple(sizes)]
    assert kernel.params[1].strides == ("step",)
    x, z, y = np.ones((3, 40), np.float32), np.arange(3, dtype=np.float16), np.zeros((3, 40), np.float32)
    call(kernel, {list(sizes)[1]: 40, "step": 1}, x, z, y)
    assert (y == 1 + z[:, None]).all()


@pytest.mark.parametrize(
    ("name", "dims", "args", "what", "remedy"),
    [
        ("described", {"rows": 1, "columns": 1}, {"n": 3}, "has no parameter n", "remove it"),
        ("described", {"rows": 1, "column": 1}, {}, "dimension columns", 'add columns = "dynamic"'),
        ("plain", {"N": 1}, {"blok": 3}, "has no parameter blok", "did you mean block"),
        ("plain", {"N": 1}, {"BLOCK": 3}, "has no parameter BLOCK", "did you mean block"),
        ("plain", {"N": 1}, {"N": 3}, "parameter N of kernel k is given twice", "not in two of them"),
        ("plain", {}, {}, "needs parameter N", "in dims, args or config"),
        (
            "open_sizes",
            {"M": 1},
            {"X.dtype": "float32"},
            "needs parameter Z.dtype",
            "in dims, args or config",
        ),
        ("Kernels.added", {"n": 1}, {}, "dimension M of kernel k has no entry", 'add M = "dynamic"'),
        ("Kernels.added", {"M": 1}, {"n": 1}, "has no parameter n", "remove it"),
        ("needs_a_number", {"N": DYNAMIC}, {}, "dimension N is dynamic here", "give it integers in dims"),
    ],
)
def test_what_cannot_be_bound(name: str, dims: Any, args: Any, what: str, remedy: str):
    with pytest.raises(SourceError) as caught:
        made(name, dims, args)
    assert what in caught.value.what
    assert remedy in caught.value.remedy
    assert caught.value.place
    unknown = "has no parameter" in what  # said of the key that gives it
    said = caught.value.why if unknown else caught.value.place.file
    assert str(FOLDER / "source_forms.py") in said
    assert (caught.value.place.file is None) == unknown


def test_answers_about_a_device_cannot_be_used():
    pytest.importorskip("torch")
    assert made("asks_the_device", {"N": 40})
    with pytest.raises(SourceError, match=r"torch.cuda.get_device_capability\(\) in a build") as caught:
        made("asks_the_device", {"N": 40}, {"wide": True})
    assert "config key" in caught.value.remedy


def test_errors_of_a_source_that_is_no_kernel(tmp_path: Path):
    text = "import sys\nassert sys.argv == ['other.py']\nvalue, double = 3, print\n"
    (tmp_path / "other.py").write_text(text)
    with pytest.raises(SourceError, match="3 is no kernel"):
        describe(load_entry("other.py:value", tmp_path))
    with pytest.raises(SourceError, match="has no values") as caught:
        load_entry("other.py:values", tmp_path)
    assert caught.value.remedy == "name a kernel of that file", "a number is none"
    with pytest.raises(SourceError, match="has no doubled") as caught:
        load_entry("other.py:doubled", tmp_path)
    assert caught.value.remedy == "did you mean double?"


def test_constants_belong_to_eager_kernels():
    @T.prim_func
    def main(X: T.Tensor((8,), "float32")):
        T.const("N")
        with T.Kernel(1):
            X[0] = 1.0

    with pytest.raises(RuntimeError, match="only inside an eager kernel"):
        elaborate(main, name="k", dims={"N": Guard(eq=8)}, args={}, config={})


def test_builds_in_several_threads_leave_torch_as_it_was():
    torch = pytest.importorskip("torch")
    before, began, ended, found = torch.cuda.device_count, threading.Event(), threading.Event(), []

    def other() -> None:
        with without_a_device():
            began.set()
            ended.wait()
            found.append(type(torch.cuda.device_count()))

    thread = threading.Thread(target=other)
    with without_a_device():
        thread.start()
        began.wait()
    assert torch.cuda.device_count() == before()
    ended.set()
    thread.join()
    assert found == [Unanswered]
    assert torch.cuda.device_count is before
