"""8-bit floats on tensor cores: sums scaled after every trip on sm_90a, operands widened before sm_89."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from told import no_roles
from variant_code import compile_variant

from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.matmul.match.promotion import Promotion, without_promotion
from tilec.backends.cuda.nodes import WarpGemm
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel, Pipelined, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[5] / "examples" / "kernels"
SM90A, SM89, SM80 = (parse_target(name) for name in ("sm_90a", "sm_89", "sm_80"))
DIMS = {"M": Guard(), "N": Guard(div=16), "K": Guard(div=16)}


def blocks(**config: object) -> Kernel:
    """The product with a scale per block of examples/kernels/fp8.py."""
    return elaborate(
        load_entry("fp8.py:linear_fp8_blocks", KERNELS),
        name="blocks",
        dims=DIMS,
        args={},
        config={"bM": 128, "bN": 128, "num_stages": 6, "threads": 256, **config},
    )


def changed(kernel: Kernel, old: str, new: str) -> Kernel:
    """The kernel with a part of its text replaced."""
    text = format_kernel(kernel)
    assert old in text
    return parse_kernel(text.replace(old, new))


def test_form(golden):
    golden(format_kernel(lower(blocks(), SM90A, until="select_wgmma")))


def test_sum_without_a_factor_is_promoted_too():
    kernel = changed(blocks(), "part[i, j] * both", "part[i, j]")
    loop = next(stmt for stmt in walk(kernel.launches[0].body) if isinstance(stmt, Pipelined))
    plain, promotion = without_promotion(loop)
    assert isinstance(promotion, Promotion)
    assert format_kernel(kernel).count("both") == 1
    assert len(plain.body) == len(loop.body) - 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a_scale[by * 128 + i, ko]", "a_scale[by * 128 + j, ko]"),
        ("acc[i, j] = acc[i, j] + part", "acc[i, j] = acc[j, i] + part"),
        ("trans_b=True, clear=True", "trans_b=True, clear=False"),
    ],
)
def test_other_loops_keep_the_older_strategy(old, new):
    kernel = changed(blocks(), old, new)
    assert no_roles(lower(kernel, SM90A, until="assign_roles").launches[0]) is not None


@pytest.mark.parametrize(("columns", "run"), [(128, 0), (192, 64), (208, 16), (256, 128)])
def test_columns_of_a_block_share_a_factor(columns, run):
    kernel = blocks(bN=columns)
    loop = next(stmt for stmt in walk(kernel.launches[0].body) if isinstance(stmt, Pipelined))
    promotion = without_promotion(loop)[1]
    assert isinstance(promotion, Promotion)
    assert (promotion.run, len(promotion.factors)) == (run, 2 if run else 1)


@pytest.mark.parametrize("place", ["(bx * 192 + j * 2) // 128", "(bx * 192 + j + ko) // 128", "j % 2"])
def test_factors_of_other_columns_keep_the_older_strategy(place):
    kernel = changed(blocks(bN=192), "(bx * 192 + j) // 128", place)
    loop = next(stmt for stmt in walk(kernel.launches[0].body) if isinstance(stmt, Pipelined))
    assert without_promotion(loop)[1] is None


def test_operands_are_widened_where_tensor_cores_lack_8_bit_floats():
    products = {
        target.name: next(
            stmt
            for stmt in walk(lower(blocks(bM=32, bN=64, num_stages=2, threads=128), target).launches[0].body)
            if isinstance(stmt, WarpGemm)
        )
        for target in (SM80, SM89)
    }
    found = {name: (str(stmt.a.buffer.dtype), stmt.tile.instruction) for name, stmt in products.items()}
    assert found == {"sm_80": ("float16", "m16n8k16"), "sm_89": ("float8_e4m3fn", "m16n8k32")}


def test_source_names_the_instruction_for_8_bit_floats():
    kernel = lower(blocks(bM=32, bN=64, num_stages=2, threads=128), SM89)
    text = cuda.source(to_tir(kernel, SM89), SM89, "blocks")
    assert "mma_sync_aligned_m16n8k32_row_col_f32_e4m3_e4m3_f32" in text.replace(".", "_")


@pytest.mark.nvrtc
@pytest.mark.parametrize("config", [{}, {"bN": 192, "num_stages": 5}], ids=["two trips at once", "wide"])
def test_scaled_sums_spill_nothing(config):
    (launch,) = compile_variant(blocks(**config), SM90A, "blocks").launches
    assert launch.gpu is not None
    assert (launch.gpu.spills, launch.gpu.registers) == (0, 168)


@pytest.mark.parametrize(("columns", "fits"), [(192, True), (224, True), (256, False), (72, False)])
def test_integers_take_the_columns_that_their_instruction_has(columns, fits):
    kernel = elaborate(
        load_entry("gemm.py:linear_int8", KERNELS),
        name="integers",
        dims=DIMS,
        args={},
        config={"bM": 128, "bN": columns, "bK": 128, "num_stages": 3, "threads": 256},
    )
    reason = no_roles(lower(kernel, SM90A, until="assign_roles").launches[0])
    assert (reason is None) == fits
    assert fits or "columns of integers" in str(reason)


@pytest.mark.parametrize("early", [True, False])
def test_launches_that_begin_early_load_scales_by_each_lane_for_itself(early):
    """Those of columns, which a warp loads from one place, go to a uniform register else."""
    text = cuda.source(to_tir(lower(blocks(pdl=early), SM90A), SM90A), SM90A, "blocks")
    reads = re.findall(r"[aw]_scale_ptr\[.*", text)
    assert len(reads) > 8
    assert all(("own_zero" in read) == early for read in reads)
