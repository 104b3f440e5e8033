"""sm_90a strategies run on the emulator, and faults planted in them are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from breadth import diagonal, parametrized
from emulated import (
    KERNELS,
    NOTHING,
    SM90A,
    Beside,
    call_name,
    edited,
    kernel_of,
    replacing,
    with_args,
    without,
)
from shipped import MANIFESTS, known_authors, variants
from tvm import tirx

from tilec.backends.cuda.attention.nodes import AttentionRoles, RingRelease
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.cuda.matmul.emit import entry as products
from tilec.backends.cuda.warp_roles.strategy import rewrite_roles, with_roles
from tilec.backends.pipeline import lower
from tilec.build.elaborated.frontend import elaborate_variant
from tilec.emulate import EmulatedKernel
from tilec.errors import EmulationError
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.trials.oracle import Author

GUARDS = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
HALF = {"dtype": "float16"}
CONFIG = {"bM": 64, "bN": 64, "bK": 64, "num_stages": 2, "threads": 128}
DIMS = {"M": 70, "N": 72, "K": 200}
BLOCKS = Author(inputs=load_entry("fp8.py:linear_fp8_blocks_inputs", KERNELS))


def product(**config):
    """A product with the stages that it asks for, few enough to be filled again."""
    return kernel_of("gemm.py:matmul", GUARDS, HALF, **{**CONFIG, "stages": 1, **config})


def blocks(**config):
    """A product of 8-bit floats whose sums are scaled after every trip."""
    guards = {"M": Guard(), "N": Guard(div=16), "K": Guard(div=16)}
    config = {"bM": 64, "bN": 96, "num_stages": 2, "threads": 128, **config}
    return kernel_of("fp8.py:linear_fp8_blocks", guards, {}, **config)


FORMS = [
    {},
    {"pingpong": False},
    {"bM": 128, "threads": 256, "num_stages": 4, "pingpong": False},
    {"cluster": 2},
    {"cluster": (1, 2)},
    {"cluster": (1, 2), "bN": 72},
    {"pdl": True, "constant": ("B",)},
    {"bM": 128, "threads": 256, "pingpong": True},
    {"split_k": 2},
    {"swap": True, "bM": 16, "bN": 128, "threads": 256},
]
SPLIT_FURTHER = [{"split_k": 4, "swap": True, "bM": 16}, {"split_k": 8, "bN": 24}, {"split_k": 3}]


@parametrized("config", FORMS + SPLIT_FURTHER, fast=FORMS, ids=str)
def test_strategy(config):
    assert Beside(product(**config), SM90A).run(DIMS) == []


WITH_A_RING = [
    {},
    {"bM": 128, "threads": 256, "pingpong": True},
    {"cluster": 2},
    {"split_k": 2},
    {"swap": True, "bM": 16},
    {"pdl": True, "constant": ("B",)},
]


@parametrized(
    ("config", "stages"),
    [(config, stages) for config in WITH_A_RING for stages in (0, 1)],
    fast=diagonal(WITH_A_RING, (0, 1)),
    ids=str,
)
def test_a_ring_of_one_stage_ends(config, stages):
    """A trip's product gives its stage back before the next trip waits for it."""
    assert Beside(product(**config, num_stages=stages), SM90A).run(DIMS) == []


def test_a_ring_of_one_stage_with_sums_that_leave_ends():
    assert Beside(blocks(num_stages=1), SM90A, BLOCKS).run({"M": 70, "N": 208, "K": 400}) == []


@parametrized("steps", [1, 3, 4], fast=[3])
def test_parts_of_k_have_factors_of_their_own_trips(steps):
    kernel = blocks(split_k=2, bN=64)
    assert Beside(kernel, SM90A, BLOCKS).run({"M": 70, "N": 208, "K": 128 * steps - 16}) == []


COLUMNS = (75, 72, 74)
IN_STAGED_ROWS = [{}, {"swap": True}, {"split_k": 2, "bN": 32}, {"bM": 128, "threads": 256, "pingpong": True}]


@parametrized(
    ("config", "columns"),
    [(config, columns) for config in IN_STAGED_ROWS for columns in COLUMNS],
    fast=diagonal(IN_STAGED_ROWS, COLUMNS),
    ids=str,
)
def test_rows_that_begin_anywhere(config, columns):
    """Threads store staged rows: in vectors, in pairs, or in pairs and single elements at their ends."""
    guards = {"M": Guard(), "N": Guard(), "K": Guard(div=16)}
    kernel = kernel_of("fp8.py:linear_fp8", guards, {}, **{**CONFIG, "bK": 128, "stages": 1, **config})
    inputs = load_entry("fp8.py:linear_fp8_inputs", KERNELS)
    assert Beside(kernel, SM90A, Author(inputs=inputs)).run({"M": 70, "N": columns, "K": 200 + 56}) == []


def test_parts_of_integers_add_up():
    guards, config = {**GUARDS, "K": Guard(div=16)}, {**CONFIG, "bK": 128, "num_stages": 2, "split_k": 2}
    kernel = kernel_of("gemm.py:linear_int8", guards, {}, **config)
    assert Beside(kernel, SM90A).run({"M": 70, "N": 72, "K": 400}) == []


WITH_RESIDUAL = [
    {},
    {"bM": 128, "bN": 128, "threads": 256, "pingpong": True},
    {"cluster": (1, 2)},
    {"swap": True, "bM": 48, "bN": 128, "threads": 128},
    {"swap": True, "split_k": 2, "bM": 64},
]


@parametrized("config", [*WITH_RESIDUAL, {"split_k": 4, "bN": 16}], fast=WITH_RESIDUAL, ids=str)
def test_residual(config):
    kernel = kernel_of("gemm.py:linear_residual", GUARDS, HALF, **{**CONFIG, **config})
    assert Beside(kernel, SM90A).run(DIMS) == []


@pytest.mark.parametrize("dims", [{"M": 70, "N": 136}, {"M": 130, "N": 200}, {"M": 130, "N": 40}], ids=str)
def test_pairs_that_cross_at_an_odd_end(dims):
    kernel = kernel_of(
        "gemm.py:matmul", GUARDS, HALF | {"trans_B": True}, **{**CONFIG, "bN": 72, "cluster": 2}
    )
    assert Beside(kernel, SM90A).run({**dims, "K": 200}) == []


def test_rows_of_groups():
    guards = {"tokens": Guard(), "N": Guard(div=8), "K": Guard(div=8), "G": Guard()}
    kernel = kernel_of("grouped.py:linear_grouped", guards, HALF, **CONFIG)
    inputs = load_entry("grouped.py:linear_grouped_inputs", KERNELS)
    beside = Beside(kernel, SM90A, Author(inputs=inputs))
    assert beside.run({"tokens": 200, "N": 72, "K": 72, "G": 2}) == []


def test_scales_of_blocks_that_tiles_cut():
    guards = {"M": Guard(), "N": Guard(div=16), "K": Guard(div=16)}
    config = {"bM": 64, "bN": 96, "num_stages": 2, "threads": 128}
    kernel = kernel_of("fp8.py:linear_fp8_blocks", guards, {}, **config)
    inputs = load_entry("fp8.py:linear_fp8_blocks_inputs", KERNELS)
    assert Beside(kernel, SM90A, Author(inputs=inputs)).run({"M": 70, "N": 208, "K": 272}) == []


def ragged(size: int, **tile: int):
    """Attention over sequences back to back."""
    guards = {**dict.fromkeys(("tokens", "keys", "H", "Hkv", "B"), Guard()), "D": Guard(eq=size)}
    args = {"dtype": "float16", "causal": True}
    config = {"bM": 64, "bN": 64, "threads": 128, **tile}
    return kernel_of("attention_varlen.py:attention_varlen", guards, args, **config)


def uneven(dims, rng):
    """Sequences without queries, without keys, and with queries that see none."""
    shapes = ((dims["tokens"], 1, dims["D"]), *[(dims["keys"], 1, dims["D"])] * 2)
    q, k, v = (rng.standard_normal(shape) for shape in shapes)
    bounds = [0, 0, 200, 205, 390], [0, 10, 15, 150, 150]
    return [q, k, v, *(np.array(each, np.int32) for each in bounds), 200]


TALL = {"bM": 192, "bN": 128, "threads": 384}
ONE_STAGE = {"bM": 128, "bN": 256, "threads": 256, "num_stages": 1}


@parametrized(
    ("size", "tile"),
    [(64, {}), (64, TALL), (128, TALL), (128, ONE_STAGE)],
    fast=[(64, {}), (128, TALL)],
    ids=str,
)
def test_tiles_without_a_trip(size, tile):
    dims = {"tokens": 390, "keys": 150, "H": 1, "Hkv": 1, "B": 4, "D": size}
    assert Beside(ragged(size, **tile), SM90A, Author(inputs=uneven)).run(dims) == []


def test_tiles_whose_trips_only_memory_knows_are_one_section():
    """Two blocks of queries times all positions that 32 bits can number is more than 32 bits can number."""
    guards = dict.fromkeys(("batch_size", "UQ", "UKV"), Guard())
    sizes = {"heads": 1, "groups": 1, "dim": 64}
    families = Path(__file__).parents[3] / "kernels"
    entry = load_entry("attention_forward.py:gqa_varlen_fwd", families)
    inputs = load_entry("attention_forward.py:gqa_varlen_fwd_inputs", families)
    config = {"block_M": 64, "block_N": 64, "num_stages": 2, "threads": 128}
    guards |= {name: Guard(eq=size) for name, size in sizes.items()}
    kernel = elaborate(entry, name="ragged", dims=guards, args={}, config=config)
    assert lower(kernel, SM90A, until="assign_roles").launches[-1].strategy is not None
    author = Author(inputs=lambda dims, rng: inputs(dims, rng, groups=1))
    assert Beside(kernel, SM90A, author).run({**sizes, "batch_size": 1, "UQ": 80, "UKV": 90}) == []


def test_tiles_without_a_trip_given_back_before_all_warps_have_them():
    """Warps that no product brings together may fall back by a round of the ring."""

    def hasty(stmt):
        return replace(stmt, meets=False) if isinstance(stmt, RingRelease) else stmt

    def changed(launch, roles):
        return with_roles(launch, replace(roles, consumer=tuple(map(hasty, roles.consumer))))

    changed_kernel = rewrite_roles(lower(ragged(64), SM90A), AttentionRoles, changed)
    made = lower_kernel(changed_kernel, SM90A, marks=True)
    dims = {"tokens": 390, "keys": 150, "H": 1, "Hkv": 1, "B": 4, "D": 64}
    with pytest.raises(EmulationError, match="nothing that orders it behind the wait of warp 1"):
        Beside(ragged(64), SM90A, Author(inputs=uneven), lowered=made).run(dims)


def failure(lowered, kernel=None) -> str:
    with pytest.raises(EmulationError) as found:
        Beside(kernel or product(), SM90A, lowered=lowered).run(DIMS)
    return str(found.value)


def line_of(lowered, kernel, dims) -> str:
    """The line of the kernel's file that an error names."""
    with pytest.raises(EmulationError) as found:
        Beside(kernel, SM90A, lowered=lowered).run(dims)
    place = found.value.place
    assert place is not None
    assert place.line is not None
    return Path(place.file).read_text().splitlines()[place.line - 1]


@pytest.mark.parametrize(
    ("text", "which", "line"),
    [
        ("cp_async_bulk_tensor_g2s", 0, "T.gemm(As, Bs"),  # consumers wait for ever
        ("mbarrier_wait", 0, "T.gemm(As, Bs"),
        ("mbarrier_wait", 1, "T.copy(A["),
        ("wgmma_wait_group", 1, "T.copy(acc, C["),
    ],
)
def test_errors_name_the_line_of_the_kernel(text, which, line):
    assert line in line_of(without(product(), SM90A, text, which), product(), DIMS)


def test_errors_of_attention_and_of_packed_weights_name_lines():
    for name in ("attention_dense_float16", "linear_packed_w4a16"):
        variant = variants(MANIFESTS[0], name, "sm_90a")[0]
        kernel = elaborate_variant(variant).kernel
        beside = Beside(kernel, SM90A, known_authors(MANIFESTS[0])[name])
        beside.emulated = EmulatedKernel(
            kernel, SM90A, lowered=without(kernel, SM90A, "cp_async_bulk_tensor_g2s")
        )
        with pytest.raises(EmulationError) as found:
            beside.run(next(beside.cases(1)))
        assert found.value.place is not None, name


def test_missing_arrival_is_a_deadlock():
    text = failure(without(product(), SM90A, "mbarrier_arrive arrive", which=0))
    assert "deadlock" in text
    assert "1 of 1 arrivals" in text
    assert "mbarrier_wait" in text


def test_missing_bytes_are_a_deadlock():
    text = failure(without(product(), SM90A, "cp_async_bulk_tensor_g2s"))
    assert "deadlock" in text
    assert f"{(DIMS['M'] - 64) * 128} bytes missing" in text  # of the tile that ends beyond A


def other_phase(stmt):
    return with_args(stmt, lambda args: [args[0], tirx.bitwise_xor(args[1], tirx.const(1, "int32"))])


def test_wrong_phase_of_a_consumer():
    text = failure(replacing(product(), SM90A, "mbarrier_wait", other_phase, which=0))
    assert "deadlock" in text
    assert "warps 0 to 3 wait" in text


def test_wrong_phase_of_the_producer():
    text = failure(replacing(product(), SM90A, "mbarrier_wait", other_phase, which=1))
    assert "deadlock" in text
    assert "parity 0" in text


def test_missing_wait_of_a_consumer():
    text = failure(without(product(), SM90A, "mbarrier_wait", which=0))
    assert "race: wgmma of warps 0 to 3" in text


def test_missing_wait_of_the_producer():
    text = failure(without(product(), SM90A, "mbarrier_wait", which=1))
    assert "race: a bulk copy to the mbarrier" in text


def test_missing_wait_for_the_accumulator():
    kernel = product()
    made = without(kernel, SM90A, "wgmma_wait_group", which=1)
    text = failure(made, kernel)
    assert "while an asynchronous product works on it" in text


def test_early_release_of_a_stage():
    def all_done(stmt):
        return with_args(stmt, lambda args: [tirx.const(2, "int32"), *args[1:]])

    text = failure(replacing(product(), SM90A, "wgmma_wait_group", all_done, which=0))
    assert "wgmma of warps 0 to 3 read" in text or "asynchronous product" in text


def test_missing_fence_of_registers():
    text = failure(without(product(), SM90A, "wgmma_fence"))
    assert "no wgmma.fence" in text


def test_missing_proxy_fence():
    kernel = kernel_of("gemm.py:matmul", GUARDS, HALF, **CONFIG)
    assert "with no proxy fence between" in failure(without(kernel, SM90A, "fence_proxy"), kernel)


def test_missing_fence_of_barriers():
    kernel, count = product(), iter(range(100))

    def change(stmt):
        name = call_name(stmt)
        gone = "fence_mbarrier_init" in name or ("fence_proxy" in name and next(count) == 0)
        return NOTHING if gone else None

    assert "no fence has made visible" in failure(edited(kernel, SM90A, change), kernel)


def test_box_with_a_wrong_coordinate_writes_wrong_results():
    def beyond(stmt):
        return with_args(stmt, lambda args: [*args[:3], args[3] + tirx.const(64, "int32"), *args[4:]])

    made = replacing(product(), SM90A, "cp_async_bulk_tensor_g2s", beyond)
    assert Beside(product(), SM90A, lowered=made).run(DIMS) != []


def test_box_out_of_shared_memory():
    def beyond(stmt):
        return with_args(stmt, lambda args: [args[0] + tirx.const(1 << 16, "uint32"), *args[1:]])

    text = failure(replacing(product(), SM90A, "cp_async_bulk_tensor_g2s", beyond))
    assert "of shared memory, which has" in text


def test_box_between_chunks():
    def beside(stmt):
        return with_args(stmt, lambda args: [*args[:2], args[2] + tirx.const(1, "int32"), *args[3:]])

    text = failure(replacing(product(), SM90A, "cp_async_bulk_tensor_g2s", beside))
    assert "into its rows, which is no multiple of 16 bytes" in text


def test_misaligned_box():
    def beside(stmt):
        return with_args(stmt, lambda args: [args[0] + tirx.const(16, "uint32"), *args[1:]])

    text = failure(replacing(product(), SM90A, "cp_async_bulk_tensor_g2s", beside))
    assert "no multiple of 128" in text


def test_wrong_count_of_a_named_barrier():
    def fewer(stmt):
        return with_args(stmt, lambda args: [args[0], tirx.const(96, "uint32"), *args[2:]])

    text = failure(replacing(product(pingpong=False), SM90A, "bar_sync_count", fewer))
    assert "barrier 6 is for 96 threads, but 128 have come" in text


def test_registers_that_are_not_there():
    kernel = product(bM=128, threads=256)

    def more(stmt):
        return with_args(stmt, lambda args: [tirx.const(240, "int32"), *args[1:]])

    text = failure(replacing(kernel, SM90A, "setmaxnreg inc", more), kernel)
    assert "deadlock" in text
    assert "registers" in text


def test_stores_that_outlive_the_block():
    kernel = product()
    made = replacing(kernel, SM90A, "cp_async_bulk_wait_group", lambda stmt: NOTHING, None)
    text = failure(made, kernel)
    assert "bulk store of thread 0" in text


def test_reads_before_the_launch_in_front_has_ended():
    manifest, name = MANIFESTS[0], "decode_paged_float16"
    variant = variants(manifest, name, "sm_90a")[0]
    kernel = elaborate_variant(replace(variant, config={**variant.config, "pdl": True})).kernel
    author = known_authors(manifest)[name]
    beside = Beside(kernel, SM90A, author)
    (dims,) = beside.cases(1)
    assert beside.run(dims) == []
    made = replacing(kernel, SM90A, "griddepcontrol wait", lambda stmt: NOTHING, None)
    with pytest.raises(EmulationError, match="which an earlier launch wrote"):
        Beside(kernel, SM90A, author, lowered=made).run(dims)


def test_cluster_that_does_not_wait_at_the_end(monkeypatch):
    monkeypatch.setattr(products, "await_release", lambda ctx, position: None)
    text = failure(None, product(cluster=2))
    assert "after that block has ended" in text
