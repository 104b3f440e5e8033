"""Configs that no GPU of a target can run are refused before any compiler, with the number and the limit."""

from __future__ import annotations

import pytest
from cuda_kernels import ATTENTION, gemm, shipped
from variant_code import compile_variant

from tilec.backends.cuda.analysis.products.mma import warp_grid
from tilec.backends.cuda.analysis.products.registers import register_limit
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.codegen.compilers import CudaCompiler
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.errors import CompileError, TilecError
from tilec.ir.guards import Guard
from tilec.targets import parse_target

#: Target, config of the plain product, what the error says.
REFUSED = [
    ("sm_80", {"bN": 256, "bK": 256, "threads": 256}, "196608 bytes, a block of sm_80 has 166912"),
    ("sm_86", {"bK": 256, "num_stages": 4}, "131072 bytes, a block of sm_86 has 101376"),
    ("compute_80", {"bN": 256, "bK": 192, "threads": 256}, "147456 bytes, a block of compute_80 has 101376"),
    ("sm_80", {"bM": 512, "bN": 512}, "registers of each thread, a block of 128 threads has 255"),
    ("sm_80", {"bM": 1024, "bN": 512, "threads": 512}, "registers of each thread, a block of 512"),
    ("sm_80", {"threads": 2048}, "2048 threads in a block, sm_80 has 1024"),
    ("sm_80", {"threads": 2048}, "give T.Kernel fewer threads, which are filled up to whole warps"),
    ("sm_90a", {"bM": 256, "bN": 256, "bK": 64, "threads": 256, "num_stages": 3}, "registers"),
    ("sm_90a", {"bN": 256, "bK": 256, "threads": 256, "num_stages": 6}, "232448"),
    ("sm_120a", {"bM": 512, "bN": 512}, "registers of each thread"),
    ("sm_120a", {"bM": 1024, "bN": 1024}, "each of 128 threads holds 8192 words"),
]


@pytest.mark.parametrize(("target", "config", "said"), REFUSED)
def test_a_product_that_cannot_fit_is_refused(target, config, said, monkeypatch) -> None:
    monkeypatch.setattr(cuda, "find_compiler", _no_compiler)
    with pytest.raises(TilecError) as raised:
        compile_variant(gemm(**config), parse_target(target), "k")
    assert said in str(raised.value)


def test_attention_that_cannot_fit_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(cuda, "find_compiler", _no_compiler)
    dims = {**ATTENTION, "D": Guard(eq=128)}
    deep = shipped("attention.py:attention", dims, {"bM": 256, "bN": 256, "num_stages": 2, "threads": 512})
    with pytest.raises(CompileError, match="bytes, a block of sm_86 has 101376"):
        compile_variant(deep, parse_target("sm_86"), "k")
    tall = shipped("attention.py:attention", dims, {"bM": 1024, "bN": 64, "threads": 128})
    with pytest.raises(CompileError, match="registers of each thread"):
        compile_variant(tall, parse_target("sm_80"), "k")


@pytest.mark.parametrize(
    ("dtype", "width", "config"),
    [
        ("float32", 128, {"bM": 64, "bN": 32}),
        ("float32", 256, {"bM": 32, "bN": 16}),
        ("float16", 256, {"bM": 32, "bN": 64}),
    ],
)
def test_rings_leave_room_for_what_products_of_warps_need(dtype, width, config) -> None:
    dims = {**ATTENTION, "D": Guard(eq=width)}
    target = parse_target("sm_120a")
    kernel = shipped("attention.py:attention", dims, {**config, "width": width, "threads": 128}, dtype)
    (launch,) = lower_kernel(lower(kernel, target), target).launches
    assert any("warp roles" in str(road) for road in launch.roads)
    assert launch.shared_bytes <= target.gpu.shared_bytes


def test_a_product_that_spills_is_lowered() -> None:
    target = parse_target("sm_80")
    assert lower_kernel(lower(gemm(bN=256), target), target).launches


@pytest.mark.parametrize(
    ("tiles", "warps", "policy", "grid"),
    [((8, 16), 8, 1, (8, 1)), ((4, 64), 8, 1, (4, 2)), ((1, 2), 4, 1, (1, 2)), ((4, 8), 8, 2, (1, 8))],
)
def test_policies_split_what_rows_or_columns_leave(tiles, warps, policy, grid) -> None:
    assert warp_grid(tiles, warps, policy) == grid


def test_threads_share_the_registers_of_a_multiprocessor() -> None:
    assert [register_limit(threads) for threads in (32, 256, 384, 512, 1024)] == [255, 255, 168, 128, 64]


def _no_compiler() -> CudaCompiler:
    raise AssertionError("a compiler was asked for")
