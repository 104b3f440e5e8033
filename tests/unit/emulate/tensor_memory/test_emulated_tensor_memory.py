"""Products by tcgen05 run on the emulator, and faults planted in them are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from emulated import Beside, kernel_of, lowered, replacing, roads, with_args, without
from tvm import tirx

from tilec.backends.cuda.codegen import images
from tilec.backends.cuda.statement_roles.tensor_memory.alternate_sums import AlternateSums
from tilec.errors import EmulationError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Block, If, Kernel, Stmt
from tilec.ir.text.parser import parse_kernel
from tilec.lowering.lowered import LoweredKernel
from tilec.lowering.passes.base import rewrite_blocks
from tilec.targets import parse_target

SM100A = parse_target("sm_100a")
GUARDS = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
BYTES = {"M": Guard(), "N": Guard(div=16), "K": Guard(div=16)}
CONFIG = {"bM": 128, "bN": 64, "bK": 64, "num_stages": 2, "threads": 128}
DIMS = {"M": 130, "N": 72, "K": 200}
TEXT = Path(__file__).parents[2] / "backends" / "pass_texts" / "sm_100a" / "alternate_sums.txt"


def product(dtype: str = "float16", trans_B: bool = True, **config: Any) -> Kernel:
    args = {"dtype": dtype, "trans_B": trans_B}
    return kernel_of("gemm.py:matmul", GUARDS, args, **{**CONFIG, **config})


def failure(made: LoweredKernel) -> str:
    with pytest.raises(EmulationError) as caught:
        Beside(product(), SM100A, lowered=made).run(DIMS)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "dtype", "trans_B", "config"),
    [
        ("sm_100a", "float16", True, {}),
        ("sm_103f", "bfloat16", False, {"bN": 96, "bK": 32}),
        ("sm_110a", "float16", True, {"bN": 128, "threads": 256}),
        ("sm_100f", "bfloat16", False, {"bM": 256, "threads": 256}),
    ],
)
def test_a_product_has_its_sums_in_tensor_memory(
    name: str, dtype: str, trans_B: bool, config: dict[str, int]
) -> None:
    kernel = product(dtype, trans_B, **config)
    columns = config.get("bN", CONFIG["bN"])
    assert f"tcgen05 m128n{columns}k16, sums in tensor memory" in roads(lowered(kernel, name))
    assert Beside(kernel, parse_target(name)).run(DIMS) == []


@pytest.mark.parametrize(
    ("source", "args", "config"),
    [
        ("fp8.py:linear_fp8", {}, {"bK": 128}),
        ("gemm.py:matmul", {"dtype": "float32", "trans_B": True}, {"bK": 32}),
        ("gemm.py:linear_int8", {}, {"bN": 32, "threads": 256, "bM": 256}),
    ],
)
def test_other_types_have_kinds_of_their_own(
    source: str, args: dict[str, Any], config: dict[str, int]
) -> None:
    kernel = kernel_of(source, BYTES, args, **{**CONFIG, **config})
    assert f"tcgen05 m128n{config.get('bN', CONFIG['bN'])}k" in roads(lowered(kernel))
    assert Beside(kernel, SM100A).run({"M": 130, "N": 80, "K": 208}) == []


@pytest.mark.parametrize(
    ("name", "road"),
    [("sm_110a", "tcgen05"), ("sm_100f", "mma.sync"), ("sm_103a", "mma.sync"), ("sm_110f", "mma.sync")],
)
def test_integers_are_those_of_some_targets(name: str, road: str) -> None:
    made = lowered(kernel_of("gemm.py:linear_int8", BYTES, {}, **CONFIG), name)
    assert f"As, Ws -> acc: {road} " in roads(made)


def test_operands_of_other_types_lie_along_k() -> None:
    assert "mma.sync m16n8k8" in roads(lowered(product("float32", False, bK=32)))


@pytest.mark.parametrize("align", [True, False])
def test_operands_that_threads_load_are_not_its(align: bool) -> None:
    guards = {"M": Guard(), "N": Guard(), "K": Guard()}
    kernel = kernel_of("gemm.py:matmul", guards, {"dtype": "float16", "trans_B": True}, **CONFIG, align=align)
    assert ("tcgen05" in roads(lowered(kernel))) == align
    assert Beside(kernel, SM100A).run({"M": 3, "N": 5, "K": 70}) == []


def test_products_of_the_next_tile_run_beside_what_follows_the_sums_of_one() -> None:
    kernel = product(bN=128, threads=256)
    (note,) = lowered(kernel).launches[0].notes
    assert "issues the next tile's products beside" in note
    assert Beside(kernel, SM100A).run({"M": 600, "N": 136, "K": 200}) == []  # five tiles a block


def test_a_branch_around_the_loop_keeps_tiles_apart() -> None:
    kernel = parse_kernel(TEXT.read_text(encoding="utf-8").partition("\n====")[0])

    def branched(block: Block) -> list[Stmt]:
        return [If(tirx.const(True, "bool"), (stmt,)) if isinstance(stmt, If) else stmt for stmt in block]

    launch = replace(kernel.launches[0], body=rewrite_blocks(kernel.launches[0].body, branched))
    apart = replace(
        kernel, body=tuple(launch if stmt is kernel.launches[0] else stmt for stmt in kernel.body)
    )
    assert AlternateSums().apply(kernel, SM100A) is not kernel
    (stays,) = AlternateSums().apply(apart, SM100A).launches
    assert stays.body == launch.body
    assert "a branch of its author stands around its loop" in stays.notes[0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("tensor_commit(As_Bs_empty[0], As, Bs)", "a stage is used outside"),
        ("barrier_wait(As_Bs_full[0], 0)", "a stage is used outside"),
        ("fill(As[0:+2, 0:+128, 0:+32], 0.0)", "threads bring"),
    ],
)
def test_what_threads_order_for_themselves_keeps_tiles_apart(line: str, reason: str) -> None:
    before = TEXT.read_text(encoding="utf-8").partition("\n====")[0]
    place = "        close_tensor"
    (launch,) = (
        AlternateSums()
        .apply(parse_kernel(before.replace(place, f"        {line}\n{place}")), SM100A)
        .launches
    )
    assert reason in launch.notes[0]


def test_larger_sums_take_all_columns_of_a_tile_alone() -> None:
    made = lowered(product(bM=256, bN=256, bK=32, threads=256))
    assert "tcgen05 m128n256k16" in roads(made)
    (note,) = made.launches[0].notes
    assert "tensor memory has no 1024 columns" in note


def test_a_loop_without_trips_gives_zeros() -> None:
    assert Beside(product(), SM100A).run({"M": 1, "N": 8, "K": 0}) == []


@pytest.mark.parametrize(
    ("name", "config"),
    [("sm_100", {}), ("sm_120a", {}), ("sm_100a", {"bM": 64}), ("sm_100a", {"bN": 24})],
)
def test_others_are_mma(name: str, config: dict[str, int]) -> None:
    assert "mma.sync m16n8k16" in roads(lowered(product(**config), name))


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("name", "dtype", "threads"),
    [
        ("sm_100a", "float16", 256),
        ("sm_100f", "float32", 128),
        ("sm_103a", "float8_e4m3fn", 256),
        ("sm_100a", "int8", 128),
    ],
)
def test_the_assembler_takes_it(name: str, dtype: str, threads: int) -> None:
    source, args = ("linear_int8", {}) if dtype == "int8" else ("matmul", {"dtype": dtype, "trans_B": True})
    kernel = kernel_of(f"gemm.py:{source}", BYTES, args, **{**CONFIG, "bK": 32, "threads": threads})
    made = lowered(kernel, name)
    (launch,) = images.compile_kernel(made, parse_target(name), "p").launches
    assert (launch.gpu.spills, launch.products) == (0, ("tcgen05",))


# ---- faults ----


def test_a_missing_commit_is_found() -> None:
    assert "mbarrier" in failure(without(product(), SM100A, "tcgen05_commit", which=1))


def test_sums_are_not_loaded_before_products_are_complete() -> None:
    text = failure(without(product(), SM100A, "tilec_barrier_wait", which=2))
    assert "tcgen05.ld of tensor memory that nothing has written" in text


def test_a_load_is_waited_for() -> None:
    assert "while an asynchronous product works on it" in failure(without(product(), SM100A, "wait::ld"))


def test_products_begin_with_cleared_sums() -> None:
    def adding(stmt: Any) -> Any:
        return with_args(stmt, lambda args: [*args[:8], tirx.const(True, "bool"), *args[9:]])

    text = failure(replacing(product(), SM100A, "tcgen05_mma", adding))
    assert "adds to sums that nothing has written" in text


def test_products_wait_for_columns_that_others_load() -> None:
    kernel = product(threads=256)
    made = without(kernel, SM100A, "tilec_barrier_wait", which=1)
    with pytest.raises(EmulationError, match="overwrites or gives up tensor memory that warp"):
        Beside(kernel, SM100A, lowered=made).run({"M": 400, "N": 72, "K": 200})


def test_columns_are_asked_for() -> None:
    assert "nothing has written" in failure(without(product(), SM100A, "tcgen05_alloc"))
