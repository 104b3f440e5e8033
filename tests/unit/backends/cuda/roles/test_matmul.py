"""Products whose warps have roles: what is taken, what is left alone and why, forms, image properties."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from breadth import parametrized
from told import no_roles
from variant_code import compile_variant

from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.matmul.nodes import MatmulRoles
from tilec.backends.cuda.warp_roles.nodes import TileStore, TmaLoad
from tilec.backends.cuda.warp_roles.ring import tile_layout
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import CompileError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Alloc, Kernel, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[5] / "examples" / "kernels"
SM90A, SM80 = parse_target("sm_90a"), parse_target("sm_80")
DYNAMIC = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
CONFIG = {"bM": 128, "bN": 256, "bK": 64, "num_stages": 4, "threads": 256}


def gemm(
    entry: str = "matmul", dims: dict[str, Guard] | None = None, dtype: str = "float16", **config: object
) -> Kernel:
    """A kernel of examples/kernels/gemm.py."""
    return elaborate(
        load_entry(f"gemm.py:{entry}", KERNELS),
        name=entry,
        dims=dims or DYNAMIC,
        args={"dtype": dtype},
        config={**CONFIG, **config},
    )


def reason(kernel: Kernel) -> str | None:
    """Why the first launch keeps the older strategy; None where it has roles."""
    launch = lower(kernel, SM90A, until="assign_roles").launches[0]
    assert (launch.strategy is None) == (no_roles(launch) is not None)
    return no_roles(launch)


@pytest.mark.parametrize("stage", ["assign_roles", "plan_ring", "select_tma", "select_wgmma"])
def test_forms_of_a_product(golden, stage):
    golden(format_kernel(lower(gemm(), SM90A, until=stage)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dtype": "float32"}, "wgmma has no product of float32"),
        (
            {"bM": 64, "swap": False, "pingpong": False},
            "64 rows are no multiple of 64 for each of 2 warpgroups",
        ),
        ({"bK": 48}, "rows of 48 float16 in A are no multiple of 128 bytes"),
        ({"threads": 64}, "64 threads are not one or two warpgroups"),
        (
            {"swap": True, "bN": 64, "pingpong": False},
            "64 rows are no multiple of 64 for each of 2 warpgroups",
        ),
        ({"split_k": 16}, "16 blocks form no cluster"),
        ({"split_k": 2, "pingpong": True, "bM": 64}, "warpgroups that take turns do not split K"),
        ({"min_blocks_per_sm": 2}, "min_blocks_per_sm asks for 2 blocks on a multiprocessor"),
        ({"promote_k": 128, "bN": 128}, "sums cannot leave after 128 steps of K, a stage has 64"),
    ],
)
def test_launches_that_do_not_fit_say_why(change, said):
    assert said in str(reason(gemm(**change)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bM": 256}, "256 accumulator registers a thread are more than 208"),
        ({"pingpong": True}, "256 accumulator registers a thread are more than 208"),
        ({"promote_k": 64}, "256 accumulator registers a thread are more than 208"),
        ({"num_stages": 3, "split_k": 2}, "stages and parts of 278528 bytes are more than a block's 232448"),
    ],
)
def test_configs_that_are_too_large_are_refused(change, said):
    with pytest.raises(CompileError, match=said):
        lower(gemm(**change), SM90A)


@pytest.mark.parametrize(("asked", "fitting"), [({"num_stages": 5}, 4), ({"num_stages": 4, "bK": 128}, 2)])
def test_stages_beyond_what_fits_are_left_out(asked, fitting):
    (launch,) = lower(gemm(**asked), SM90A, until="plan_ring").launches
    assert {int(tile.shape[0]) for tile in map(_tile_of, walk(launch.body)) if tile is not None} == {fitting}
    note = f"{fitting} stages in place of {asked['num_stages']}"
    assert any(note in each for each in launch.notes)


def _tile_of(stmt):
    return stmt.buffer if isinstance(stmt, Alloc) and stmt.buffer.scope() == "shared.dyn" else None


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"entry": "linear"},
        {"entry": "linear_residual"},
        {"dtype": "bfloat16"},
        {"threads": 128, "bM": 64, "bN": 128, "bK": 128, "num_stages": 2},
        {"bM": 16, "bN": 128, "bK": 128, "swap": True},
        {"bN": 128, "pingpong": True},
        {"dims": {"M": Guard(eq=4096), "N": Guard(eq=4096), "K": Guard(eq=4096)}},
    ],
)
def test_products_get_roles(change):
    assert reason(gemm(**change)) is None


def test_pairs_share_the_larger_operand_of_unaligned_rows():
    odd = dict.fromkeys("MNK", Guard(eq=5000))
    found = roles_of(lower(gemm(dims=odd), SM90A).launches[0], MatmulRoles)
    assert (found.order.pair, found.order.cluster) == (1, 2)
    shared = {
        str(stmt.map.buffer.name): (stmt.shared, stmt.map.box)
        for stmt in walk((found,))
        if isinstance(stmt, TmaLoad)
    }
    assert shared == {"A": (False, (64, 64)), "B": (True, (32, 64))}
    launch = to_tir(lower(gemm(dims=odd), SM90A), SM90A).launches[0]
    assert (launch.cluster, launch.grid) == ((2, 1, 1), ("(20) * (((40) + 1) // 2 * 2)",))


def test_swapped_products_store_their_transpose():
    found = roles_of(lower(gemm(bM=16, bN=128, bK=128, swap=True), SM90A).launches[0], MatmulRoles)
    (store,) = (stmt for stmt in found.consumer if isinstance(stmt, TileStore))
    assert (store.turned, store.extents, store.rows, store.columns) == (True, (128, 16), 64, 16)
    assert store.map is not None
    assert (store.map.box, store.map.swizzle) == ((16, 64), 128)


@pytest.mark.parametrize(
    ("columns", "buffer", "chunks"),
    [(152, 32, (0, 32, 64, 96, 120)), (160, 32, (0, 32, 64, 96, 128)), (24, 16, (0, 8)), (8, 0, ())],
)
def test_the_last_chunk_of_a_stored_tile_may_overlap(columns, buffer, chunks):
    found = roles_of(lower(gemm(bM=256, bN=columns, num_stages=3), SM90A).launches[0], MatmulRoles)
    (store,) = (stmt for stmt in found.consumer if isinstance(stmt, TileStore))
    assert (store.columns, store.chunks if store.map else ()) == (buffer, chunks)


@pytest.mark.parametrize(
    ("config", "early"),
    [
        ({"pdl": True, "constant": ("B",)}, {"B"}),
        ({"pdl": True}, set()),
        ({"constant": ("B",)}, set()),
        ({"pdl": True, "constant": ("B",), "cluster": (2, 1)}, set()),
    ],
)
def test_what_no_launch_in_flight_writes_is_loaded_early(config, early):
    lowered = lower(gemm(**config), SM90A)
    found = roles_of(lowered.launches[0], MatmulRoles)
    loads = [stmt for stmt in walk((found,)) if isinstance(stmt, TmaLoad)]
    assert {str(stmt.map.buffer.name) for stmt in loads if stmt.early} == early
    made = to_tir(lowered, SM90A)
    text = cuda.source(made, SM90A, "k")
    forms = 2  # of early loads: those of whole tiles, and of one that ends beyond A
    assert text.count("griddepcontrol_wait();") == 1 + forms * bool(early)
    said = [note.split()[2] for note in made.launches[0].notes if note.startswith("B read")]
    assert said == (["before" if early else "behind"] if "constant" in config else [])


def test_pairs_cross_where_everything_comes_in_halves(golden):
    golden(
        format_kernel(lower(gemm(bM=256, bN=152, num_stages=3, cluster=(2, 1)), SM90A, until="select_wgmma"))
    )


def test_swapped_products_read_a_residual_in_boxes_and_a_bias_once_a_row():
    kernel = gemm("linear_residual", bM=16, bN=128, bK=128, swap=True)
    found = roles_of(lower(kernel, SM90A).launches[0], MatmulRoles)
    (store,) = (stmt for stmt in found.consumer if isinstance(stmt, TileStore))
    assert store.residual is not None
    assert (store.residual.buffer.name, store.residual.box) == ("R", (16, 64))
    text = cuda.source(to_tir(lower(kernel, SM90A), SM90A), SM90A, "k")
    assert (text.count("R_ptr["), text.count("= bias_ptr[")) == (0, 2)


def test_blocks_of_a_cluster_share_the_trips_of_a_tile(golden):
    kernel = gemm(bM=128, bN=64, threads=128, num_stages=7, swap=True, split_k=2, evict_first=["B"])
    golden(format_kernel(lower(kernel, SM90A, until="select_wgmma")))
    launch = to_tir(lower(kernel, SM90A), SM90A).launches[0]
    assert (launch.cluster, launch.grid[0][-4:]) == ((2, 1, 1), " * 2")


def test_unaligned_rows_of_one_block_are_gathered(golden):
    kernel = gemm(dims={"M": Guard(max=128), "N": Guard(max=128), "K": Guard()}, bN=128)
    golden(format_kernel(lower(kernel, SM90A, until="select_wgmma")))
    launch = to_tir(lower(kernel, SM90A), SM90A).launches[0]
    assert (launch.threads, launch.tensor_maps) == ((512, 1, 1), ())
    assert "unaligned rows without TMA" in launch.notes[0]


def test_aligned_operands_beside_gathered_ones_come_by_tma():
    kernel = gemm(dims={**DYNAMIC, "M": Guard(max=128), "N": Guard()}, bN=128)
    launch = to_tir(lower(kernel, SM90A), SM90A).launches[0]
    assert [found.tensor for found in launch.tensor_maps] == [0]


def test_loaders_leave_fewer_registers_to_consumers():
    kernel = gemm(dims={"M": Guard(max=128), "N": Guard(max=256), "K": Guard()}, bN=256)
    assert "128 accumulator registers a thread leave too few to load unaligned rows" in str(reason(kernel))
    assert lower(kernel, SM90A)


@pytest.mark.parametrize("change", [{"bM": 256, "bN": 128}, {"bN": 256}, {"bN": 128, "promote_k": 64}])
def test_warpgroups_share_the_rows_that_the_one_asked_for_cannot_hold(change):
    launch = to_tir(lower(gemm(**{**change, "threads": 128}), SM90A), SM90A).launches[0]
    assert "one producer and 2 consumer warpgroups, wgmma" in " ".join(launch.notes)


def test_few_rows_are_swapped_unless_the_config_forbids_it():
    few = {"bM": 16, "bN": 128, "bK": 128}
    launch = to_tir(lower(gemm(**few), SM90A), SM90A).launches[0]
    assert "operands swapped" in launch.notes[0]
    assert "16 rows are no multiple of 64" in str(reason(gemm(**few, swap=False)))


def grouped(**config: object) -> Kernel:
    """The product of examples/kernels/grouped.py."""
    dims = {"tokens": Guard(), "N": Guard(div=8), "K": Guard(div=8), "G": Guard()}
    return elaborate(
        load_entry("grouped.py:linear_grouped", KERNELS),
        name="grouped",
        dims=dims,
        args={"dtype": "float16"},
        config={**CONFIG, "bN": 128, **config},
    )


def test_blocks_of_grouped_products_look_their_rows_up(golden):
    golden(format_kernel(lower(grouped(), SM90A, until="select_wgmma")))


def test_grouped_products_are_not_swapped():
    assert "a branch, or scales of its sums" in str(reason(grouped(swap=True)))


def test_blocks_that_look_their_tiles_up_do_not_share_them():
    alone = reason(grouped(split_k=2, num_stages=2))
    assert "blocks that look their tiles up take them one by one" in str(alone)


def test_warpgroups_take_turns_at_tiles_that_blocks_look_up():
    assert roles_of(lower(grouped(), SM90A).launches[0], MatmulRoles).roles.pingpong


def test_residuals_come_through_the_staging_buffers():
    found = roles_of(lower(gemm("linear_residual"), SM90A).launches[0], MatmulRoles)
    (store,) = (stmt for stmt in found.consumer if isinstance(stmt, TileStore))
    assert store.residual is not None
    assert (str(store.residual.buffer.name), store.residual.box, store.buffers) == ("R", (64, 64), 2)
    maps = to_tir(lower(gemm("linear_residual"), SM90A), SM90A).launches[0].tensor_maps
    assert [each.tensor for each in maps] == [0, 0, 1, 4, 3]


def test_staging_shrinks_to_what_the_ring_leaves():
    kernel = gemm("linear", bM=256, bN=160, dims=dict.fromkeys("MNK", Guard(eq=4096)))
    found = roles_of(lower(kernel, SM90A).launches[0], MatmulRoles)
    (store,) = (stmt for stmt in found.consumer if isinstance(stmt, TileStore))
    assert (store.buffers, store.columns, store.rows) == (1, 32, 128)


def test_other_targets_keep_their_strategy():
    launch = lower(gemm(bN=128), SM80).launches[0]
    assert launch.strategy is None
    assert no_roles(launch) is None


BEHIND = """
kernel("two")
A = tensor(float16, (128, 64), ("128", "64"), access="in")
B = tensor(float16, (64, 128), ("64", "128"), access="in")
C = tensor(float16, (128, 128), ("128", "128"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    As = alloc(float16, (128, 64), "shared.dyn")
    Bs = alloc(float16, (64, 128), "shared.dyn")
    acc = alloc(float32, (128, 128), "local.fragment")
    fill(acc[0:+128, 0:+128], {start})
    for ko in pipelined(0, 1, num_stages=2):
        copy({a}[0:+128, ko * 64:+64], As[0:+128, 0:+64])
        copy(B[ko * 64:+64, 0:+128], Bs[0:+64, 0:+128])
        gemm(As[0:+128, 0:+64], Bs[0:+64, 0:+128], acc[0:+128, 0:+128], clear=False)
    for i, j in parallel(128, 128):
        C[i, j] = {value}
"""


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"start": "1.0"}, "does not start at zero"),
        ({"value": "cast(float16, acc[i, 127 - j])"}, "reads acc across elements"),
        ({"value": "cast(float16, cos(acc[i, j]))"}, "calls cos"),
        ({"value": "cast(float16, acc[i, j]) + As[i, i]"}, "its epilogue uses As"),
        ({"a": "C"}, "C is written by the launch"),
    ],
)
def test_constructs_that_have_no_code_here_are_left_alone(parts, said):
    given = {"start": "0.0", "a": "A", "value": "cast(float16, acc[i, j])", **parts}
    assert said in str(reason(parse_kernel(BEHIND.format(**given))))


def test_unaligned_results_leave_without_tma():
    kernel = gemm(dims={**DYNAMIC, "N": Guard(div=4)}, entry="linear")
    lowered = to_tir(lower(kernel, SM90A), SM90A)
    assert "stores of staged rows by threads" in lowered.launches[0].notes[0]
    assert {found.tensor for found in lowered.launches[0].tensor_maps} == {0, 1}


def test_tensor_maps_are_data():
    lowered = to_tir(lower(gemm(), SM90A), SM90A)
    a, rest, b, c = lowered.launches[0].tensor_maps
    assert (rest.tensor, rest.rest) == (0, 128)
    assert (a.extents, a.strides, a.box, a.swizzle) == (("K", "M"), ("(K) * 2",), (64, 128), 128)
    assert (b.extents, b.box) == (("N", "K"), (64, 64))
    assert (c.tensor, c.box, c.swizzle) == (2, (64, 64), 128)
    assert lowered.launches[0].blocks_per_unit == 1


EIGHT_BITS = """
kernel("narrow")
A = tensor(float8_e4m3fn, (128, 256), ("128", "256"), access="in")
B = tensor(float8_e4m3fn, (128, 256), ("128", "256"), access="in")
C = tensor(float32, (128, 128), ("128", "128"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    As = alloc(float8_e4m3fn, (128, 128), "shared.dyn")
    Bs = alloc(float8_e4m3fn, (128, 128), "shared.dyn")
    acc = alloc(float32, (128, 128), "local.fragment")
    fill(acc[0:+128, 0:+128], 0.0)
    for ko in pipelined(0, 2, num_stages=2):
        copy(A[0:+128, ko * 128:+128], As[0:+128, 0:+128])
        copy(B[0:+128, ko * 128:+128], Bs[0:+128, 0:+128])
        gemm(As[0:+128, 0:+128], Bs[0:+128, 0:+128], acc[0:+128, 0:+128], trans_b=True, clear=False)
    copy(acc[0:+128, 0:+128], C[0:+128, 0:+128])
"""


BATCHED = """
kernel("batched")
Z = dim(int32)
A = tensor(float16, (Z, 300, 64), ("Z", "300", "64"), access="in")
B = tensor(float16, (Z, 256, 64), ("Z", "256", "64"), access="in")
C = tensor(float16, (Z, 300, 256), ("Z", "300", "256"), access="out")
with launch(2, 3, Z, threads=(256, 1, 1), hints={"cluster_dims": (1, 2, 1), "use_swizzle": (4, "column")}) as (bx, by, bz):
    As = alloc(float16, (128, 64), "shared.dyn")
    Bs = alloc(float16, (128, 64), "shared.dyn")
    acc = alloc(float32, (128, 128), "local.fragment")
    fill(acc[0:+128, 0:+128], 0.0)
    for ko in pipelined(0, 1, num_stages=2):
        copy(A[bz:+1, by * 128:+128, ko * 64:+64], As[0:+128, 0:+64])
        copy(B[bz:+1, bx * 128:+128, ko * 64:+64], Bs[0:+128, 0:+64])
        gemm(As[0:+128, 0:+64], Bs[0:+128, 0:+64], acc[0:+128, 0:+128], trans_b=True, clear=False)
    copy(acc[0:+128, 0:+128], C[bz:+1, by * 128:+128, bx * 128:+128])
"""  # noqa: E501


def test_batches_hints_and_odd_counts_of_tiles():
    lowered = to_tir(lower(parse_kernel(BATCHED), SM90A), SM90A).launches[0]
    assert lowered.grid == ("(2) * (((3) + 1) // 2 * 2) * (Z)",)
    assert lowered.cluster == (2, 1, 1)
    a, rest, *others = lowered.tensor_maps
    assert (a.box, rest.box, rest.rest) == ((64, 128, 1), (64, 128, 1), 128)
    assert [found.box for found in others] == [(64, 64, 1), (32, 128, 1)]
    assert "bands of 4, operands multicast" in lowered.notes[-1]


def test_sums_of_8_bit_products_are_announced():
    lowered = to_tir(lower(parse_kernel(EIGHT_BITS), SM90A), SM90A)
    assert any("fewer bits than float32" in note for note in lowered.launches[0].notes)


def test_8_bit_operands_must_run_along_k():
    across = EIGHT_BITS.replace("trans_b=True, ", "")
    assert "B of float8_e4m3fn must be contiguous along K" in str(reason(parse_kernel(across)))


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 16, 64), "float16"), ((2, 16, 192), "bfloat16"), ((1, 8, 256), "float8_e4m3fn")]
)
def test_tile_layouts_are_bijective(shape, dtype):
    layout = tile_layout(shape, dtype)
    assert layout.shape == shape
    places = [layout.offset(index) for index in itertools.product(*map(range, shape))]
    assert sorted(places) == list(range(len(places)))


def test_eight_rows_of_a_tile_meet_every_bank_once():
    layout = tile_layout((1, 64, 64), "float16")
    chunks = {layout.offset((0, row, 8)) * 2 % 128 // 16 for row in range(8)}
    assert chunks == set(range(8))


@pytest.mark.nvrtc
@parametrized(
    ("entry", "columns"),
    [("matmul", 256), ("linear_residual", 256), ("linear_silu_mul", 128)],
    fast=[("linear_residual", 256), ("linear_silu_mul", 128)],
)
def test_images_use_the_instructions_and_spill_nothing(entry, columns):
    """Those of two products are as wide together."""
    image = compile_variant(gemm(entry, bN=columns), SM90A, "k")
    (launch,) = image.launches
    assert launch.threads == (384, 1, 1)
    assert launch.gpu is not None
    assert (launch.gpu.spills, launch.gpu.registers) == (0, 168)
    text = cuda.assembly(to_tir(lower(gemm(entry, bN=columns), SM90A), SM90A), SM90A, "k")
    assert "wgmma.mma_async.sync.aligned.m64n256k16" in text
    assert "cp.async.bulk.tensor.2d.shared" in text
    assert "cp.async.bulk.tensor.2d.global" in text
    for part in ("setmaxnreg.dec", "stmatrix.sync", "mbarrier.try_wait"):
        assert part in text


@pytest.mark.nvrtc
def test_blocks_get_the_registers_that_they_hand_on():
    image = compile_variant(gemm(bN=64, num_stages=2), SM90A, "k")
    assert image.launches[0].gpu is not None
    assert image.launches[0].gpu.registers == 168
    lowered = to_tir(lower(gemm(bN=64, num_stages=2), SM90A), SM90A)
    greedy = tuple(replace(launch, entry_registers=176) for launch in lowered.launches)
    with pytest.raises(CompileError, match="168 registers a thread at launch, the code hands on 176"):
        cuda.compile_kernel(replace(lowered, launches=greedy), SM90A, "k")


@pytest.mark.parametrize(("cluster", "said"), [((4, 1), True), ((2, 1), False), (1, False)])
def test_clusters_that_are_not_formed_are_said(cluster, said):
    (launch,) = to_tir(lower(gemm(cluster=cluster), SM90A), SM90A).launches
    assert any(note.startswith("clusters of 4 x 1 have no effect") for note in launch.notes) == said
