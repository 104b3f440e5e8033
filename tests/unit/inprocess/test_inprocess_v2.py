"""The second style of kernels in process: what annotations, objects and searches mean."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import v2_kernels as kernels  # noqa: E402

import tilec.language as T  # noqa: E402
import tilec.language.v2 as tl  # noqa: E402
from tilec.errors import UnsupportedError  # noqa: E402

# Annotations ----------------------------------------------------------------------------------------------


def test_sizes_and_dtypes_come_with_the_argument() -> None:
    x = torch.randn(6, 40)
    torch.testing.assert_close(kernels.scale(x, 2.0), x * 2)
    torch.testing.assert_close(kernels.scale(x.half(), 2.0), x.half() * 2)
    torch.testing.assert_close(kernels.scale(x[:3], 3), x[:3] * 3)
    assert kernels.scale.parse_cache_key(x.half(), 2.0) == (32, "float16", 6, 40)
    assert len(kernels.scale._kernels) == 3
    np.testing.assert_array_equal(kernels.scale(x.numpy(), 2.0), x.numpy() * 2)


def test_one_runtime_dimension_in_two_annotations() -> None:
    for size in (8, 100):
        x, y = torch.randn(size), torch.randn(size)
        torch.testing.assert_close(kernels.add(x, y, 3), x + y + 3)
    assert len(kernels.add._kernels) == 1
    with pytest.raises(ValueError, match="Y axis 0 has extent 9, expected _N = 8"):
        kernels.add(torch.randn(8), torch.randn(9), 3)


def test_sizes_unpacked_into_a_name_that_holds_one_are_equal() -> None:
    a, b = torch.randn(20, 24), torch.randn(24, 12)
    torch.testing.assert_close(kernels.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="K of matmul is 24 in axis 1 of A and 25 in axis 0 of B"):
        kernels.matmul(a, torch.randn(25, 13))
    x, y = torch.randn(6, 8), torch.randn(6, 3)
    torch.testing.assert_close(kernels.rows(x, y), x + y[:, :1])
    assert kernels.rows.parse_cache_key(x, y) == ("float32", "float32", 8, 3)
    with pytest.raises(ValueError, match="B axis 0 has extent 7, expected M = 6"):
        kernels.rows(x, torch.randn(7, 3))


def test_strides_of_the_call() -> None:
    x = torch.randn(6, 8)
    for given in (x, x.T, x[:, ::2]):
        torch.testing.assert_close(kernels.plus_one(given), given + 1)
    assert len(kernels.plus_one._kernels) == 3  # by their shapes


def test_addresses_and_compile_time_parameters() -> None:
    x = torch.randn(32)
    torch.testing.assert_close(kernels.doubled(x.data_ptr(), 32, True, torch.float32), 2 * x)
    torch.testing.assert_close(kernels.doubled(x, 32, False, torch.float32), x)


def test_an_annotation_is_no_value() -> None:
    with pytest.raises(TypeError, match=r"an unnamed .* stands alone"):
        kernels.scale.compile(tl.place(4, 4), block=T.dyn[int])
    with pytest.raises(TypeError, match="no runtime value"):
        tl.dyn["M", "N"]


# Placeholders ---------------------------------------------------------------------------------------------


def test_placeholders_compile_and_cannot_be_passed() -> None:
    half = tl.place((32, 32), dtype=torch.float16)
    kernel = kernels.matmul.compile(half, tl.place(32, 64, dtype="float16"))
    a, b = torch.randn(32, 32).half(), torch.randn(32, 64).half()
    torch.testing.assert_close(kernel(a, b), a.float() @ b.float(), rtol=1e-2, atol=1e-2)
    assert kernels.doubled.compile(tl.empty_data_ptr(), 32, True, torch.float32).out_idx == [1]
    with pytest.raises(TypeError, match="A must be an array"):
        kernels.matmul(half, half)
    strided = kernels.plus_one.compile(tl.place(4, 4, strides=(1, 4)))
    torch.testing.assert_close(strided(torch.eye(4).T), torch.eye(4) + 1)
    with pytest.raises(ValueError, match="2 extents but 1 strides"):
        tl.place(4, 4, strides=(1,))


def test_sizes_and_dtypes_by_name() -> None:
    x, names = torch.randn(4, 8), {"A.dtype": "float32", "A__shape_0": 4, "A__shape_1": 8}
    torch.testing.assert_close(kernels.scale.compile(**names)(x, 2.0), 2 * x)
    kernel = kernels.matmul.compile(M=4, K=8, N=3, **{"A.dtype": "float32", "B.dtype": T.float32})
    torch.testing.assert_close(kernel(x, x.T[:, :3].contiguous()), x @ x.T[:, :3])
    with pytest.raises(TypeError, match="missing a required argument: 'A'"):
        kernels.matmul.compile(M=4, K=8, N=3)


# Objects --------------------------------------------------------------------------------------------------


def test_what_partial_gives() -> None:
    x = torch.randn(8)
    made = kernels.hinted.partial(x)
    assert made.const_args == kernels.hinted.parse_cache_key(x) == made.arg_parser(x)[0]
    assert made.arg_parser(x)[1] == (x,)
    assert [(each.name, each.shape) for each in made.outs] == [("C", [8])]
    assert [(each.name, each.shape) for each in made.global_allocs] == [("part", [8, 2])]
    assert made.pass_configs == {"tl.enable_fast_math": True, "tl.disable_tma_lower": True}
    assert made.compile_flags == ["-O3"]
    assert kernels.hinted.partial(x, fast=False).compile_flags == []
    assert made.target.is_cpu
    assert made.target_host is None
    kernel = tl.compile(made)
    torch.testing.assert_close(kernel(x), x)
    assert kernel.source == kernel.get_kernel_source()
    assert kernel.wrapped_source == kernel.get_host_source()
    assert kernel.lib_path.is_file()


def test_many_kernels_at_once() -> None:
    x = tl.place(4, 8)
    made = kernels.scale.par_compile([(x,), {"A": x, "block": 16}, tl.CallArgs((x,), {"block": 8})])
    x = torch.randn(4, 8)
    for kernel in made:
        torch.testing.assert_close(kernel(x, 2.0), 2 * x)


def test_names_of_the_language_are_there() -> None:
    assert tl.get_tvm_dtype(torch.float16) == "float16"
    assert tl.gemm is T.gemm
    assert {"jit", "place", "tune", "set_pass_configs", "Tensor"} <= set(dir(tl))
    with pytest.raises(AttributeError, match=r"did you mean T\.gemm"):
        _ = tl.gem


# Searches -------------------------------------------------------------------------------------------------


def test_the_calls_of_a_search_are_a_product() -> None:
    x = tl.place(4, 8)
    request = kernels.add.partial(tl.place(8), tl.place(8), 1).prim_func.request
    assert request.early_key  # found in a cache without a look at the tile IR
    calls = kernels.matmul.get_tune_configs(x, x, bM=tl.tune([16, 32]), bN=tl.tune([16, 64]), bK=8)
    assert [call.kwargs for call in calls] == [
        {"bM": m, "bN": n, "bK": 8} for m in (16, 32) for n in (16, 64)
    ]
    assert all(call.args == (x, x) for call in calls)
    with pytest.raises(ValueError, match="no values"):
        tl.tune([])
    with pytest.raises(TypeError, match="axis of a search"):
        kernels.matmul(torch.randn(4, 4), torch.randn(4, 4), bM=tl.tune([16]))


def test_a_search_keeps_what_became_of_every_call() -> None:
    a = torch.randn(16, 16)
    found = kernels.matmul.tune(a, a, bM=tl.tune([16, -1]), bN=16, bK=16)
    assert (found.name, found.num_errors, len(found.records)) == ("matmul", 1, 2)
    assert found.best_args.kwargs == {"bM": 16, "bN": 16, "bK": 16}
    assert found.best is found.records[0]
    assert found.best_latency == found.best["latency"] > 0
    assert {"A.dtype", "A__shape_0", "B__shape_1", "bM", "out_dtype"} <= set(found.best)
    assert (found.best["A.dtype"], found.best["A__shape_0"], found.best["_status"]) == ("float32", 16, "ok")
    assert found.records[1]["latency"] is None
    assert "T.ceildiv by -1" in found.records[1]["_error"]
    with pytest.raises(RuntimeError, match="no call of matmul runs"):
        kernels.matmul.tune_configs([{"A": a, "B": a, "bM": -1}])


def test_records_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{"bM": 16, "latency": 1.0}]
    found = tl.AutoTuneResult("matmul", 0, 1.0, tl.CallArgs(), records[0], records)
    frame = SimpleNamespace(from_records=lambda given: ("frame", given))
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=frame))
    assert found.to_pandas() == ("frame", records)


def test_other_styles_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="tcgen05_gemm"):
        tl.tcgen05_gemm()
