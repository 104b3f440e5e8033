"""Products of two blocks by tcgen05 run on the emulator, and faults planted in them are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from emulated import Beside, kernel_of, lowered, replacing, with_args, without
from tvm import tirx
from tvm.ir import StringImm

from tilec.backends.cuda.analysis.blocks.threads import has_groups
from tilec.backends.cuda.codegen import images
from tilec.backends.cuda.statement_roles.tensor_memory.pair_sums import PairSums
from tilec.errors import EmulationError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.ir.text.parser import parse_kernel
from tilec.lowering.lowered import LoweredKernel
from tilec.targets import parse_target

SM100A = parse_target("sm_100a")
GUARDS = {"M": Guard(), "N": Guard(div=16), "K": Guard(div=16)}
CONFIG = {"bM": 128, "bN": 64, "bK": 64, "num_stages": 2, "threads": 128, "cluster": (1, 2)}
#: Three tiles along M, the last of which is in a pair with a block outside of the grid.
DIMS = {"M": 300, "N": 80, "K": 208}
#: One pair walks over four tiles of 256 x 64 in these dims.
WALKS = {"trans_B": False, "threads": 256}
TEXTS = Path(__file__).parents[2] / "backends" / "pass_texts" / "sm_100a" / "pair_sums.txt"
#: A load of the kernel there, and statements that bring as much by threads.
LOAD = "        copy(B[bx * 64:+64, ko * 32:+32], Bs[0:+64, 0:+32])"
BY_THREADS = (
    "        for i, j in parallel(64, 32):\n"
    "            Bs[i, j] = B[bx * 64 + i, ko * 32 + j] * cast(float16, 2.0)"
)


def product(dtype: str = "float16", trans_B: bool = True, **config: Any) -> Kernel:
    args = {"dtype": dtype, "trans_B": trans_B}
    return kernel_of("gemm.py:matmul", GUARDS, args, **{**CONFIG, **config})


def road_of_products(made: LoweredKernel) -> str:
    (found,) = (road.instruction for road in made.launches[0].roads if road.kind == "tcgen05")
    return found


@pytest.mark.parametrize(
    ("name", "args", "config", "cluster"),
    [
        ("sm_100a", {}, {}, (1, 2, 1)),
        ("sm_103a", {"trans_B": False}, {"threads": 256}, (2, 1, 1)),
        pytest.param("sm_100f", {"dtype": "bfloat16"}, {"bM": 256, "threads": 256}, (2, 1, 1),
                     marks=pytest.mark.emulate),
        pytest.param("sm_110a", {"dtype": "float32"}, {"bK": 32, "bN": 96}, (1, 2, 1),
                     marks=pytest.mark.emulate),
    ],
)  # fmt: skip
def test_two_blocks_multiply_as_one(
    name: str, args: dict[str, Any], config: dict[str, Any], cluster: tuple[int, int, int]
) -> None:
    kernel = product(**args, **config)
    made = lowered(kernel, name)
    assert road_of_products(made).startswith(f"tcgen05 m256n{config.get('bN', 64)}k")
    assert made.launches[0].cluster == cluster
    assert Beside(kernel, parse_target(name)).run(DIMS) == []


@pytest.mark.emulate
def test_integers_multiply_in_pairs() -> None:
    kernel = kernel_of("gemm.py:linear_int8", GUARDS, {}, **CONFIG)
    assert road_of_products(lowered(kernel)).startswith("tcgen05 m256n64k32")
    assert Beside(kernel, SM100A).run(DIMS) == []


def test_a_block_has_half_of_the_second_operand() -> None:
    alone, pair = (lowered(product(cluster=asked)).launches[0].shared_bytes for asked in (1, (1, 2)))
    assert alone - pair == 2 * 32 * 64 * 2  # stages, rows, columns, bytes


def test_rings_have_the_stages_that_halves_leave_room_for() -> None:
    alone, pair = (lowered(product(bN=256, threads=256, num_stages=4, cluster=asked)).launches[0].roads
                   for asked in (1, (1, 2)))  # fmt: skip
    assert any("ring of 3 stages" in road.instruction for road in alone)
    assert any("ring of 4 stages" in road.instruction for road in pair)


def test_a_grid_of_whole_pairs_stays() -> None:
    kernel = kernel_of("gemm.py:matmul", {**GUARDS, "M": Guard(div=256)}, {}, **CONFIG)
    assert lowered(kernel).launches[0].grid[1] == "(M + 127) // 128"


def test_a_loop_without_trips_gives_zeros() -> None:
    assert Beside(product(), SM100A).run({"M": 1, "N": 16, "K": 0}) == []


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"cluster": (2, 1)}, "Bs changes along bx, which blocks of a pair share; ask for pairs along"),
        ({"bN": 48}, "48 columns are no multiple of 32"),
        ({"cluster": (1, 4)}, "clusters of 1 x 4 are no pairs along one axis of the grid"),
    ],
)
def test_others_multiply_alone(config: dict[str, Any], reason: str) -> None:
    made = lowered(product(**config))
    assert any(
        note.startswith(f"no pairs of blocks for one product: {reason}") for note in made.launches[0].notes
    )
    assert "m128" in road_of_products(made)
    assert made.launches[0].cluster == (1, 1, 1)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("(K + 31) // 32", "(K + by * 32) // 32", "trips or branches change along by"),
        (LOAD, BY_THREADS, "threads bring"),
        (LOAD, f"{LOAD}\n        first = Bs[0, 0]", "other uses"),
        ("    copy(acc", '    cluster_barrier("wait")\n    copy(acc', "orders the blocks"),
        (
            "    acc = alloc",
            "    C[0, 0] = cast(float16, 1.0)\n    acc = alloc",
            "stores in front",
        ),
    ],
)
def test_what_blocks_do_apart_keeps_them_from_pairs(old: str, new: str, reason: str) -> None:
    before = TEXTS.read_text(encoding="utf-8").partition("\n====")[0]
    assert old in before
    made = PairSums().apply(parse_kernel(before.replace(old, new)), SM100A)
    (note,) = made.launches[0].notes
    assert reason in note
    assert not has_groups(made.launches[0])


def test_authors_ask_for_pairs_too() -> None:
    before = TEXTS.read_text(encoding="utf-8").partition("\n====")[0]
    made = PairSums().apply(parse_kernel(before.replace('"cluster"', '"cluster_dims"')), SM100A).launches[0]
    assert (made.schedule.clusters, made.grid) == ((1, 2), (1, 4))
    assert made.notes == ("pairs of blocks along by multiply 256 rows together",)


@pytest.mark.nvrtc
@pytest.mark.parametrize(("name", "config"), [("sm_100a", WALKS), ("sm_103a", {"bK": 32})])
def test_the_assembler_takes_it(name: str, config: dict[str, Any]) -> None:
    made = lowered(product(**config), name)
    (launch,) = images.compile_kernel(made, parse_target(name), "p").launches
    assert (launch.gpu.spills, launch.products) == (0, ("tcgen05",))


# ---- faults ----


def failure(made: LoweredKernel) -> str:
    with pytest.raises(EmulationError) as caught:
        Beside(product(), SM100A, lowered=made).run(DIMS)
    return str(caught.value)


def test_commits_arrive_in_both_blocks() -> None:
    def alone(stmt: Any) -> Any:
        return with_args(stmt, lambda args: [args[0], tirx.const(1, "uint16"), *args[2:]])

    assert "deadlock" in failure(replacing(product(), SM100A, "commit_multicast", alone))


def test_both_blocks_have_asked_for_columns() -> None:
    text = failure(without(product(), SM100A, "barrier_cluster_wait", which=1))
    assert "has asked for with nothing that orders the two" in text


def test_both_blocks_have_loaded_sums() -> None:
    kernel = product(**WALKS, stages=2)
    with pytest.raises(EmulationError, match="overwrites or gives up tensor memory that warp"):
        Beside(kernel, SM100A, lowered=without(kernel, SM100A, "tilec_barrier_wait_cluster", which=1)).run(
            DIMS
        )


def test_a_copy_says_that_its_bytes_may_count_in_the_other_block() -> None:
    def of_one(stmt: Any) -> Any:
        return with_args(stmt, lambda args: [_without_group(arg) for arg in args])

    text = failure(replacing(product(), SM100A, "complete_tx", of_one))
    assert "whose bytes count at a barrier of another" in text


def _without_group(arg: Any) -> Any:
    return StringImm("") if isinstance(arg, StringImm) and arg.value == "cta_group::2" else arg
