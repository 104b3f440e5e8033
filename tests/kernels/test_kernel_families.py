"""The kernels of kernels.toml against their NumPy references: interpreted, called in process with torch
tensors, lowered for GPUs; with ``-m emulate`` also run on the emulated ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from breadth import parametrized
from families import Suite, title

from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import Target, parse_target

FOLDER = Path(__file__).parent

#: Values of dims that are open in the manifest.
OPEN = {
    "batch": 2, "B": 2, "rows": 17, "seq_len": 40, "seq_len_kv": 13, "Sq": 19, "total": 70, "nnz_s": 2,
    "row_blocks": 3, "places": 112, "blocks": 7, "ldx": 64, "UQ": 40, "UKV": 61, "batch_size": 3,
}  # fmt: skip
SUITE = Suite(FOLDER / "kernels.toml", OPEN, default=21)

GPUS = {name: [target for each, target in SUITE.on_gpus if each == name] for name in SUITE.plans}
#: For each kernel one of its GPUs, which take turns.
TAKING_TURNS = [
    (name, targets[at % len(targets)]) for at, (name, targets) in enumerate(GPUS.items()) if targets
]

every_kernel = pytest.mark.parametrize("name", SUITE.plans)


@every_kernel
def test_the_interpreter_agrees_with_the_reference(name: str) -> None:
    SUITE.case(name).check_interpreted()


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITE.on_cpus)
def test_a_call_with_torch_tensors_agrees_with_the_reference(name: str) -> None:
    case = SUITE.case(name)
    case.check(case.called())


@parametrized(("name", "target"), SUITE.on_gpus, fast=TAKING_TURNS, ids=title)
def test_kernels_lower_for_gpus(name: str, target: Target) -> None:
    SUITE.case(name).check_lowered(target)


@pytest.mark.emulate
@pytest.mark.parametrize(("name", "target"), SUITE.on_gpus, ids=title)
def test_emulated_gpus_agree_with_the_reference(name: str, target: Target) -> None:
    SUITE.case(name).check_emulated(target)


def test_no_family_is_thin() -> None:
    """Four of each at the least; examples/kernels has more of decode and attention."""
    count = Counter(plan.entry.source.split(".py:")[0] for plan in SUITE.plans.values())
    assert min(count.values()) >= 4, count


#: Entry, dims, config: tiles as large as kernels of models have them.
LARGE = [
    (
        "latent_attention.py:mla_decode",
        {"batch": 1, "heads": 64, "kv_head_num": 1, "seqlen_kv": 128, "dim": 512, "pe_dim": 64},
        {"block_N": 64, "block_H": 64},
    ),
    (
        "latent_attention.py:sparse_mla_fwd",
        {"batch": 1, "seq_len": 2, "seq_len_kv": 128, "heads": 64, "dim": 512, "tail_dim": 64},
        {"topk": 128, "block_I": 64, "threads": 256},
    ),
    (
        "attention_backward.py:gqa_bwd",
        {"batch": 1, "heads": 4, "seq_len": 256, "dim_qk": 192, "dim_v": 128},
        {"block_M": 128, "block_N": 32},
    ),
]


@pytest.mark.parametrize(("entry", "dims", "config"), LARGE, ids=[each[0] for each in LARGE])
def test_large_tiles_fit_a_block(entry: str, dims: dict[str, int], config: dict[str, int]) -> None:
    guards = {name: Guard(eq=size) for name, size in dims.items()}
    kernel = elaborate(load_entry(entry, FOLDER), name="kernel", dims=guards, args={}, config=config)
    target = parse_target("sm_90a")
    assert lower_kernel(lower(kernel, target), target).launches
