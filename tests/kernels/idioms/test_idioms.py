"""The kernels of the manifests here against their NumPy references: interpreted, in a library for CPUs,
lowered for GPUs; with ``-m emulate`` also run on the emulated ones. The roads of their statements on sm_90a
are golden texts: a change says which kernels it meant, and which it did not."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from breadth import parametrized
from families import Suite, title

from tilec.portable.loader import Library
from tilec.targets import Target, parse_target, runs_here

Libraries = Callable[[Suite], Library]
FOLDER = Path(__file__).parent

#: Values of dims that idioms.toml leaves open: an edge of a tile at the end of each.
PRODUCTS = {
    "M": 144, "N": 144, "K": 144, "K2": 80, "gates": 128, "any_dims": {"M": 131, "N": 133, "K": 135},
    "tokens": 40, "places": 144, "hidden": 144, "inter": 136, "rows": 256, "blocks": 3,
    "H": 9, "W": 8, "C": 64, "F": 136,
    "chained": {"N": 128}, "fp8_block_scales": {"K": 896}, "fp8_scaled_every_other": {"K": 384},
    "fp8_scaled_every_fourth": {"K": 1536}, "grouped_by_table": {"rows": 300},
    "grouped_unpadded": {"rows": 300, "blocks": 4}, "grouped_walk": {"rows": 300},
    "unpacked_by_threads": {"K": 192}, "weighted_trips": {"K": 192},
    **{name: {"K": 192} for name in ("int4_pairs", "int4_halves", "word_weights", "looked_up_weights")},
}  # fmt: skip
#: Those of attention.toml: one tile and a part of the next, where a guard lets them.
ATTENTION = {
    "S": 136, "Sq": 72, "Sk": 128, "rows": 128, "pages": 16, "longest": 9,
    "paged_of_64": {"longest": 3}, "paged_of_256": {"longest": 2},
    "rows_gathered": {"Sk": 400, "rows": 384, "blocks": 1},
    "kept_documents": {"S": 424}, "masked_blocks": {"S": 384, "blocks": 3}, "mask_copied": {"seq_len": 384},
    "fp8_values_transposed": {"S": 256},
    "whole_bwd_d64": {"S": 128}, "whole_bwd_d128": {"S": 256},
    "grouped_bwd": {"S": 128, "H": 2},
    "seqlen_kv": 128, "max_seqlen_pad": 192, "seq_len": 72, "seq_len_kv": 80, "seqlen": 256,
    "UQ": 200, "UKV": 210, "total": 80,
    "sparse_mla": {"seq_len": 2}, "chunk_linear_fwd": {"S": 128},
    "chunk_linear_bwd": {"S": 128}, "M": 136, "N": 264, "K": 328, "ring_running_on": {"M": 264, "K": 136},
    "ring_attention": {"Sk": 384}, "multicast_pair": {"N": 256}, "multicast_2x2": {"M": 256, "N": 256},
    "ragged_192_rows": {"heads": 2}, "native_sparse": {"seq_len": 70, "heads": 16},
    "ragged_decode": {"batch_size": 3, "total": 300}, "list_decode": {"batch": 1, "max_cache_seqlen": 256},
    "paged_decode": {"batch": 1, "num_blocks": 4}, "max_blocks_per_seq": 3, "max_selected_blocks": 3,
    "delta_kkt": {"S": 128}, "delta_states": {"S": 128}, "delta_outputs": {"S": 128}, "gqa_bwd": {"heads": 2},
    "mla_by_hand": {"H": 64, "Sk": 192}, "compressed": {"S": 160, "H": 2}, "gated_chunks": {"S": 128},
    "cluster_of_4": {"M": 512}, "cluster_split_k": {"K": 256},
}  # fmt: skip
SUITES = (
    Suite(FOLDER / "idioms.toml", PRODUCTS, default=2),
    Suite(FOLDER / "attention.toml", ATTENTION, default=1),
)
CASES = [(suite, name) for suite in SUITES for name in suite.plans]
ON_CPUS = [(suite, name) for suite in SUITES for name in suite.on_cpus]
#: Loops that may have no trip, products in branches, operands from registers, rotated loops, backward.
RUNNING_ON = [
    "row_softmax",
    "branched",
    "scaled_in_registers",
    "staged_64_rows",
    "whole_bwd_d64",
]
#: Some whose products read registers in loops: packed weights, what threads scale, weights of keys.
FROM_REGISTERS = ["scaled_in_registers", "int4_pairs", "staged_64_rows", "rows_gathered"]
#: Some whose numbers of few bits loops of AVX-512 ask for ahead.
OF_FEW_BITS = ["word_weights", "int4_pairs", "looked_up_weights"]
AVX512 = "x86-64-v4+vnni+avx512bf16"
HOPPER = parse_target("sm_90a")
ON_GPUS = [(suite, name, target) for suite in SUITES for name, target in suite.on_gpus]

ON_HOPPER = [(suite, name) for suite, name, target in ON_GPUS if target.name == HOPPER.name]
#: Lowered first: everything for Hopper, and what is for others alone.
FIRST = [each for each in ON_GPUS if each[2] == HOPPER or each[:2] not in ON_HOPPER]

every_kernel = pytest.mark.parametrize(("suite", "name"), CASES, ids=title)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    """The library of a suite, built when it is first asked for."""
    return cache(lambda suite: suite.library(tmp_path_factory.mktemp(suite.name)))


@every_kernel
def test_the_interpreter_agrees_with_the_reference(suite: Suite, name: str) -> None:
    suite.case(name).check_interpreted()


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "name"), ON_CPUS, ids=title)
def test_a_library_agrees_with_the_reference(suite: Suite, name: str, libraries: Libraries) -> None:
    case = suite.case(name)
    case.check(case.called_in(libraries(suite)))


@parametrized("name", OF_FEW_BITS, fast=["word_weights"])
def test_numbers_of_few_bits_agree_on_avx512(name: str, tmp_path: Path) -> None:
    if not runs_here(parse_target(AVX512)):
        pytest.skip(f"this machine does not run {AVX512}")
    suite = next(suite for suite in SUITES if name in suite.plans)
    case = suite.case(name)
    case.check(case.called_in(suite.library(tmp_path, [name], AVX512)), AVX512)


@parametrized(("suite", "name", "target"), ON_GPUS, fast=FIRST, ids=title)
def test_kernels_lower_for_gpus(suite: Suite, name: str, target: Target, golden: Callable[..., None]) -> None:
    roads = suite.case(name).check_lowered(target)
    if target == HOPPER:
        golden(roads, f"{name}.txt")


@pytest.mark.emulate
@pytest.mark.parametrize(("suite", "name", "target"), ON_GPUS, ids=title)
def test_emulated_gpus_agree_with_the_reference(suite: Suite, name: str, target: Target) -> None:
    suite.case(name).check_emulated(target)


@pytest.mark.nvrtc
@parametrized("name", RUNNING_ON, fast=["row_softmax", "branched", "staged_64_rows"])
def test_products_of_idioms_run_on(name: str) -> None:
    suite = next(suite for suite in SUITES if name in suite.plans)
    suite.case(name).check_runs_on(HOPPER)


@pytest.mark.nvrtc
@parametrized("name", FROM_REGISTERS, fast=["scaled_in_registers", "staged_64_rows"])
def test_operands_in_registers_stay_until_products_are_complete(name: str) -> None:
    suite = next(suite for suite in SUITES if name in suite.plans)
    suite.case(name).check_operands_stay(HOPPER)


@pytest.mark.emulate
@pytest.mark.nvrtc
@pytest.mark.parametrize(("suite", "name"), ON_HOPPER, ids=title)
def test_operands_in_registers_stay_in_every_kernel(suite: Suite, name: str) -> None:
    suite.case(name).check_operands_stay(HOPPER)


def test_every_idiom_is_timed_with_work_that_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    benchmarks = FOLDER.parents[2] / "benchmarks" / "gpu"
    monkeypatch.syspath_prepend(benchmarks)
    monkeypatch.syspath_prepend(benchmarks / "idioms_runner")
    from idiom_peers import PEERS
    from idioms import read_rows

    rows = read_rows()
    assert {row.run.plan.name for row in rows} >= {name for _, name in CASES}
    assert all(row.run.flops > 0 and (row.plain is None or row.plain.flops > 0) for row in rows)
    assert {row.torch for row in rows if row.torch} <= PEERS.keys()
