"""Launches of sm_90a whose rows stay in registers through several products: forms, refusals, images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from breadth import parametrized
from told import no_roles
from tvm import tirx
from variant_code import compile_variant

from tilec.backends.cuda.attention.assign.turned_operands import with_turned_operands
from tilec.backends.cuda.attention.nodes import (
    AsyncProduct,
    AttentionRoles,
    BoxStore,
    ProductsWait,
    RingPut,
    RingRelease,
    RingTurn,
    RowMask,
    TripLoop,
    Turn,
    ZeroRows,
)
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.nodes import ThreadLoop, TurnTile
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.exprs import dtype_of
from tilec.ir.guards import Guard
from tilec.ir.nodes import Bind, Gemm, If, Kernel, Pipelined, walk
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[5] / "examples" / "kernels"
IDIOMS = Path(__file__).parents[4] / "kernels" / "idioms"
SM90A = parse_target("sm_90a")
STRIDES = dict.fromkeys(("q_batch", "q_row", "kv_batch", "kv_row"), Guard(div=8))
SIZES = dict.fromkeys(("B", "Sq", "Sk", "H", "Hkv"), Guard())
TALL = {"bM": 192, "bN": 128, "threads": 384}
TILES = {128: {"bM": 128, "bN": 128, "threads": 256}, 64: TALL}


def attention(
    entry: str = "attention_dense",
    size: int = 128,
    dims: dict[str, Guard] | None = None,
    dtype: str = "float16",
    causal: bool = True,
    **config: int,
) -> Kernel:
    """A kernel of examples/kernels/attention.py with the tiles of a Hopper GPU."""
    return elaborate(
        load_entry(f"attention.py:{entry}", KERNELS),
        name=entry,
        dims={**SIZES, "D": Guard(eq=size), **STRIDES, **(dims or {})},
        args={"dtype": dtype, "causal": causal},
        config={**TILES.get(size, {}), **config},
    )


def small_attention(entry: str = "values_transposed", **config: int) -> Kernel:
    """Attention in float8, heads of 128."""
    dims = {"B": Guard(), "H": Guard(), "S": Guard(div=128), "D": Guard(eq=128)}
    return elaborate(
        load_entry(f"attention_fp8.py:{entry}", IDIOMS), name=entry, dims=dims, args={}, config=config
    )


def roles(kernel: Kernel, until: str | None = None) -> AttentionRoles:
    """The roles of the launch that has any."""
    (found,) = (
        launch for launch in lower(kernel, SM90A, until=until).launches if launch.strategy is not None
    )
    return roles_of(found, AttentionRoles)


@pytest.mark.parametrize("stage", ["assign_roles", "overlap_products", "split_masks", "place_waits"])
def test_forms_of_attention(golden, stage):
    golden(format_kernel(lower(attention("attention"), SM90A, until=stage)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bM": 96}, "S is no fragment of 128 rows"),
        ({"bM": 256}, "S is no fragment of 128 rows"),
        ({"bM": 96, "threads": 96}, "96 threads are not one to 3 warpgroups"),
        ({"bM": 192, "bN": 192, "threads": 384}, "registers a thread, more than"),
        ({"dtype": "float32"}, "wgmma has no product of float32"),
    ],
)
def test_launches_that_do_not_fit_say_why(change, said):
    (launch,) = lower(attention(**change), SM90A, until="assign_roles").launches
    assert launch.strategy is None
    assert said in str(no_roles(launch))


@pytest.mark.parametrize(("change", "warpgroups"), [({"bM": 64}, 1), ({"threads": 128}, 2)], ids=str)
def test_warpgroups_follow_from_rows(change, warpgroups):
    """Of 64 each, whatever threads are asked for."""
    assert roles(attention(**change)).roles.consumers == warpgroups


def test_products_overlap_and_nothing_stays_under_way():
    """In a rotated trip: both products are issued in one turn, the first is waited for with one under way."""
    (branch,) = (stmt for stmt in roles(attention()).consumer if isinstance(stmt, If))
    loops = [stmt for stmt in branch.then if isinstance(stmt, TripLoop)]
    assert len(loops) == 2, "trips with a mask, then the others"
    for loop in loops:
        order = [stmt for stmt in loop.body if isinstance(stmt, (AsyncProduct, ProductsWait, Turn))]
        kinds = [type(stmt).__name__ for stmt in order]
        assert kinds == ["Turn", "AsyncProduct", "AsyncProduct", "Turn", "ProductsWait", "ProductsWait"]
        assert [stmt.pending for stmt in order[-2:]] == [1, 0]


def test_products_take_registers_in_turn_where_few_are_left():
    """192 rows of 128: the operand of the last product lies where the next result comes."""
    found = roles(attention(**TALL))
    (branch,) = (stmt for stmt in found.consumer if isinstance(stmt, If))
    assert found.alone
    assert found.turns
    for loop in (stmt for stmt in branch.then if isinstance(stmt, TripLoop)):
        order = [stmt for stmt in loop.body if isinstance(stmt, (AsyncProduct, ProductsWait, Turn))]
        kinds = [type(stmt).__name__ for stmt in order]
        assert kinds == ["Turn", "AsyncProduct", "ProductsWait", "AsyncProduct", "Turn", "ProductsWait"]
        assert [stmt.pending for stmt in order if isinstance(stmt, ProductsWait)] == [0, 0]


@pytest.mark.parametrize("change", [TALL, {"bM": 128, "bN": 256, "threads": 256, "num_stages": 1}], ids=str)
def test_products_that_clear_rows_take_registers_in_turn_too(change):
    found = roles(attention("attention", **change))
    assert found.alone
    assert any(isinstance(stmt, ZeroRows) for stmt in walk(found.consumer))


def test_warps_meet_before_a_tile_that_no_product_may_have_read_goes_back():
    """Else one that has not seen its phase yet would miss it."""
    (queries,) = (stmt for stmt in roles(attention()).consumer if isinstance(stmt, RingRelease))
    assert queries.meets


def test_results_are_staged_where_queries_were_if_memory_is_short():
    kernel = attention(**TALL)
    found = roles(kernel)
    stages = {str(ring.source.name): ring.stages for ring in found.rings}
    assert stages == {"Qs": 2, "Ks": 2, "Vs": 2}
    (store,) = (stmt for stmt in found.consumer if isinstance(stmt, BoxStore))
    assert store.staging.same_as(found.rings[0].tile)
    assert isinstance(found.consumer[-1], RingRelease)
    assert found.consumer[-1].stored
    assert to_tir(lower(kernel, SM90A), SM90A).launches[-1].shared_bytes < 227 * 1024
    (apart,) = (stmt for stmt in roles(attention()).consumer if isinstance(stmt, BoxStore))
    assert str(apart.staging.name) == "O_staging"


@pytest.mark.parametrize(
    ("tiles", "together"),
    [
        ({"bM": 128, "bN": 64, "threads": 256}, 2),
        ({"bM": 64, "bN": 128, "threads": 128}, 2),
        ({"bM": 128, "bN": 128, "threads": 256}, 1),
        ({"bM": 192, "bN": 64, "threads": 384}, 1),
    ],
    ids=str,
)
def test_two_blocks_share_a_multiprocessor_that_holds_them(tiles, together):
    kernel = attention(size=64, **tiles)
    assert roles(kernel).together == together
    (launch,) = to_tir(lower(kernel, SM90A), SM90A).launches[-1:]
    assert launch.blocks_per_unit == together


def test_a_block_whose_products_want_more_registers_at_launch_is_alone():
    """Two blocks of 256 threads have 128 registers a thread there; the assembler wants 158 for m64n256."""
    assert roles(attention(size=256, bM=64, bN=64, threads=128)).together == 1


def test_only_cut_loops_have_masks():
    (branch,) = (stmt for stmt in roles(attention()).consumer if isinstance(stmt, If))
    masked, whole = (stmt for stmt in branch.then if isinstance(stmt, TripLoop))
    assert any(isinstance(stmt, RowMask) for stmt in masked.body)
    assert not any(isinstance(stmt, RowMask) for stmt in whole.body)


def test_rows_behind_a_length_are_cleared_where_values_end():
    found = roles(attention("attention"))
    assert sum(isinstance(stmt, ZeroRows) for stmt in walk(found.consumer)) == 2
    assert not any(isinstance(stmt, ZeroRows) for stmt in walk(roles(attention()).consumer))


def test_loads_follow_the_order_of_their_uses():
    puts = [
        str(stmt.ring.source.name) for stmt in walk(roles(attention()).producer) if isinstance(stmt, RingPut)
    ]
    assert puts == ["Qs", "Ks", "Ks", "Vs", "Vs"]


def test_uneven_tiles_are_handed_out_and_even_ones_are_not():
    causal, full = attention(), attention(causal=False)
    assert roles(causal).order.longest == 0
    assert [launch.threads[0] for launch in lower(causal, SM90A).launches] == [32, 384]
    assert to_tir(lower(causal, SM90A), SM90A).workspace == (("tile_counter", "4 * 1"),)
    assert roles(full).order.longest is None
    assert to_tir(lower(full, SM90A), SM90A).workspace == ()


@pytest.mark.parametrize("size", [128, 96, 72])
def test_results_leave_by_tma(size):
    found = roles(attention(size=size, bM=64, bN=64, threads=128))
    assert any(isinstance(stmt, BoxStore) for stmt in found.consumer)


IMAGES = [
    (True, "float16", "attention_dense", {}),
    (False, "bfloat16", "attention", {}),
    (True, "bfloat16", "attention_dense", TALL),
]


@pytest.mark.nvrtc
@parametrized(("causal", "dtype", "entry", "tiles"), IMAGES, fast=IMAGES[1:2])
def test_images_hold_all_fragments_in_registers(causal, dtype, entry, tiles):
    kernel = attention(entry, dtype=dtype, causal=causal, **tiles)
    lowered = to_tir(lower(kernel, SM90A), SM90A)
    launch = compile_variant(kernel, SM90A, "test").launches[-1]
    assert launch.gpu is not None
    assert launch.gpu.spills == 0
    assert launch.gpu.registers >= lowered.launches[-1].entry_registers > 0


def test_code_has_the_instructions():
    kernel = attention()
    text = cuda.source(to_tir(lower(kernel, SM90A), SM90A), SM90A, "test")
    for name in (
        "wgmma.mma_async",
        "cp.async.bulk.tensor.4d.shared",
        "cp.async.bulk.tensor.4d.global",
        "setmaxnreg",
    ):
        assert name in text


def test_turns_of_8_bit_products_last_until_these_are_complete():
    """They take half as long as the arithmetic between them."""
    (branch,) = (stmt for stmt in roles(small_attention()).consumer if isinstance(stmt, If))
    (loop,) = (stmt for stmt in branch.then if isinstance(stmt, TripLoop))
    order = [stmt for stmt in loop.body if isinstance(stmt, (AsyncProduct, ProductsWait, Turn))]
    kinds = [type(stmt).__name__ for stmt in order]
    assert kinds == ["Turn", "AsyncProduct", "AsyncProduct", "ProductsWait", "ProductsWait", "Turn"]


def test_values_of_8_bits_are_turned_by_warps_beside_the_one_that_loads():
    """Two warps; weights then go to the product as they lie, without a swap of lanes."""
    kernel = small_attention("values_turned")
    found = roles(kernel)
    (turn,) = (stmt for stmt in walk(found.turner) if isinstance(stmt, RingTurn))
    assert (str(turn.source.source.name), str(turn.ring.source.name)) == ("Vs", "Vs_turned")
    products = [stmt for stmt in walk(found.consumer) if isinstance(stmt, AsyncProduct)]
    assert {product.turned for product in products} == {False, True}
    text = cuda.source(to_tir(lower(kernel, SM90A), SM90A), SM90A, "test")
    assert "tilec_quad(" not in text
    assert text.count("tilec_turn(") == 1 + 16, "of 8 x 4 units a warp has half"
    launch = compile_variant(kernel, SM90A, "test").launches[-1]
    assert launch.gpu is not None
    assert launch.gpu.spills == 0


def test_values_that_others_read_are_not_turned():
    (launch,) = lower(small_attention("values_turned"), SM90A, until="mask_behind_products").launches
    (loop,) = (stmt for stmt in launch.body if isinstance(stmt, Pipelined))
    product = [stmt for stmt in loop.body if isinstance(stmt, Gemm)][-1]
    held = replace(product, a=replace(product.a, buffer=product.c.buffer))
    for stmts, turns in (((held,), 1), ((held, held), 0), ((product,), 0)):
        made = with_turned_operands((replace(loop, body=stmts),))
        assert sum(isinstance(stmt, TurnTile) for stmt in walk(made)) == turns


def test_a_mask_that_does_something_else_too_runs_in_few_trips():
    """Scores are scaled in all trips, and hidden in those behind the border."""
    (branch,) = (stmt for stmt in roles(small_attention("values_turned")).consumer if isinstance(stmt, If))
    loops = [stmt for stmt in branch.then if isinstance(stmt, TripLoop)]
    assert [sum(isinstance(stmt, RowMask) for stmt in loop.body) for loop in loops] == [0, 1]
    assert len({sum(isinstance(stmt, ThreadLoop) for stmt in loop.body) for loop in loops}) == 1


def test_weights_of_8_bits_are_rounded_in_pairs_and_held_as_words():
    """64 rows of 128 for a warpgroup: 16 words for each lane, of two pairs that lanes swap."""
    text = cuda.source(to_tir(lower(small_attention(), SM90A), SM90A), SM90A, "test")
    assert text.count("= tilec_quad(") == 2 * 16, "in the first trip and in the others"
    assert "tilec_pack_float8_e4m3fnx2(acc_s_ptr" in text


def test_schedule_keys_count_or_are_named():
    assert roles(attention()).turns
    assert not roles(attention(pingpong=False)).turns
    notes = to_tir(lower(attention(unroll=1), SM90A), SM90A).launches[-1].notes
    assert "unroll = 1 has no effect on attention" in notes


def test_trips_are_split_where_places_take_64_bits():
    """The border between trips with a mask and those without is of the loop's type."""
    lowered = lower(attention("attention", causal=False, bM=64, bN=64, threads=128, blocks=264), SM90A)
    borders = [stmt for stmt in walk(lowered.body) if isinstance(stmt, Bind) and stmt.var.name == "border"]
    assert {dtype_of(stmt.var) for stmt in borders} == {dtype_of(stmt.value) for stmt in borders} == {"int32"}
    assert any(isinstance(stmt.value, tirx.Cast) for stmt in borders)
