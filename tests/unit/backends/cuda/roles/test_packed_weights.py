"""Packed weights converted in registers: packings that are known, launches that fit, forms, images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from breadth import parametrized
from told import no_roles
from tvm import tirx
from tvm.ir import Var
from variant_code import compile_variant

import tilec.language as T
from tilec.backends.cuda.codegen.images import source
from tilec.backends.cuda.packed_weights.nodes import PackedProduct
from tilec.backends.cuda.packed_weights.packing import Packing, packing_of
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel, Pipelined, Stmt
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[5] / "examples" / "kernels"
SM90A = parse_target("sm_90a")
DIMS = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=128)}


def packed(bits: int = 4, dtype: str = "float16", dims: dict[str, Guard] | None = None, **config) -> Kernel:
    """The kernel of examples/kernels/quantised_packed.py."""
    return elaborate(
        load_entry("quantised_packed.py:linear_packed", KERNELS),
        name="packed",
        dims=dims or DIMS,
        args={"bits": bits, "dtype": dtype},
        config={"bM": 16, "bN": 128, "bK": 256, "num_stages": 4, "threads": 256, **config},
    )


def product(kernel: Kernel):
    """The product of packed weights of the first launch, or why there is none."""
    launch = lower(kernel, SM90A, until="assign_roles").launches[0]
    return roles_of(launch, PackedProduct) if launch.strategy is not None else str(no_roles(launch))


def analysed(bits: int, at, zero: int = 0, depth: int = 128, dtype: str = "uint8") -> Packing:
    """The packing of weights of ``bits`` bits of which weight k lies at place ``at(k)``."""
    tile = tirx.decl_buffer((64, depth), dtype, name="tile", scope="shared.dyn")
    row, column = Var("row", "int32"), Var("column", "int32")
    place = at(column)
    load = tirx.BufferLoad(tile, [row, place // 2 if bits == 4 else place])
    number = tirx.Cast("int32", load)
    if bits == 4:
        number = tirx.bitwise_and(tirx.shift_right(number, place % 2 * 4), tirx.const(15, "int32"))
    return packing_of(number - zero, load, column, depth)


def lane_major(k):
    """All weights of a lane's quarter one after the other, pairs 16 bits apart."""
    return k // 2 % 4 * 32 + k // 32 * 8 + k // 16 % 2 * 2 + k // 8 % 2 + k % 2 * 4


def test_packing_is_known_by_what_it_does():
    found = analysed(4, lane_major, zero=8)
    assert (found.width, found.zero, found.signed, found.stride) == (4, 8, False, 1)
    for step, halves in enumerate(found.places):
        for half, place in enumerate(halves):
            assert (place.vector, place.word) == (0, step // 2)
            assert place.bits == (8 * (step % 2) + 4 * half, 8 * (step % 2) + 4 * half + 16)


def test_bytes_are_known_with_and_without_sign():
    def at(k):
        return k // 2 % 4 * 32 + k // 16 * 4 + k // 8 % 2 * 2 + k % 2

    signed, plain = analysed(8, at, dtype="int8"), analysed(8, at, zero=3)
    assert (signed.width, signed.zero, signed.signed, signed.stride) == (8, 128, True, 2)
    assert (plain.zero, plain.signed, plain.vectors) == (3, False, (0, 1))
    assert signed.places[5][1].bits == (16, 24)


def test_chunks_of_columns_are_alike():
    def by_chunk(at):
        return lambda k: k // 128 * 128 + at(k % 128)

    assert analysed(4, lane_major).chunk_stride == 4
    assert analysed(4, by_chunk(lane_major), depth=512).chunk_stride == 4
    assert (
        analysed(
            8, by_chunk(lambda k: k // 2 % 4 * 32 + k // 16 * 4 + k % 2 * 2 + k // 8 % 2), depth=256
        ).chunk_stride
        == 8
    )


def neighbours_together(k):
    """Like `lane_major`, but the two of a pair one after the other."""
    return lane_major(k) // 8 * 8 + lane_major(k) % 4 * 2 + lane_major(k) // 4 % 2


@pytest.mark.parametrize(
    ("bits", "at", "said"),
    [
        (4, lambda k: k, "do not lie together"),
        (4, neighbours_together, "16 bits apart"),
        (8, lambda k: k, "do not lie together"),
    ],
)  # fmt: skip
def test_scattered_weights_are_refused(bits, at, said):
    with pytest.raises(Unfit, match=said):
        analysed(bits, at)


def test_other_numbers_are_refused():
    tile = tirx.decl_buffer((64, 128), "uint8", name="tile", scope="shared.dyn")
    row, column = Var("row", "int32"), Var("column", "int32")
    load = tirx.BufferLoad(tile, [row, column])
    with pytest.raises(Unfit, match="neither bytes nor halves"):
        packing_of(tirx.Cast("int32", load) * 2, load, column, 128)


@pytest.mark.parametrize(("bits", "config"), [(4, {"scale_sums": True}), (8, {"bK": 128})], ids=["4", "8"])
def test_form(golden, bits, config):
    kernel = packed(bits, num_stages=3, **config)
    golden(format_kernel(lower(kernel, SM90A, until="assign_roles")))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"dims": {**DIMS, "N": Guard()}, "align": False},
            "rows of scales are not known to start at multiples of 16 bytes",
        ),
        ({"bN": 32}, "32 rows are no multiple of 64"),
        ({"bM": 12}, "12 columns are no multiple of 8"),
        ({"num_stages": 12}, "do not fit the shared memory"),
        ({"dtype": "float32"}, "wgmma has no product of float32"),
        ({"bM": 256, "threads": 512}, "leave too few"),
    ],
)
def test_launches_that_do_not_fit_say_why(change, said):
    assert said in str(product(packed(**change)))


def test_loops_in_front_are_told_from_the_loop_of_the_product():
    @T.prim_func
    def main(C: T.Tensor((32, 8), "int32")):
        with T.Kernel(1, threads=96):
            a, b = T.alloc_shared((32, 8), "int8"), T.alloc_shared((8, 8), "int8")
            acc = T.alloc_fragment((32, 8), "int32")
            for _ in T.Pipelined(3, num_stages=1):
                for i, j in T.Parallel(32, 8):
                    acc[i, j] = i + j
            for _ in T.Pipelined(1):
                for i, j in T.Parallel(32, 8):
                    a[i, j] = 1
                for i, j in T.Parallel(8, 8):
                    b[i, j] = 1
                T.gemm(a, b, acc, transpose_B=True)
            T.copy(acc, C)

    kernel = elaborate(main, name="plain", dims={}, args={}, config={}, open_dims=True)
    assert "copies, one conversion and one product" in product(kernel)


def test_scales_in_rows_of_any_length_are_aligned_first():
    aligned, launch = lower(packed(dims={**DIMS, "N": Guard()}), SM90A, until="assign_roles").launches
    assert aligned.strategy is None
    assert str(roles_of(launch, PackedProduct).scale.buffer.name) == "steps"


def test_a_tensor_that_is_written_is_not_loaded_ahead():
    text = format_kernel(packed(dims={**DIMS, "N": Guard(div=128)}))
    kernel = parse_kernel(
        text.replace("C[by * 16 + i, bx * 128 + j_1] =", "A[by * 16 + i, bx * 128 + j_1] =")
    )
    assert "it writes a tensor that it loads" in product(kernel)


def test_more_warpgroups_than_rows_share_k():
    assert product(packed(bN=64, threads=256)).teams.depth == 2
    assert product(packed(bN=128, threads=512)).teams.depth == 2
    assert product(packed(bN=128, threads=256)).teams.depth == 1


def test_each_team_has_stages_of_its_own():
    assert product(packed(bN=64, num_stages=5)).stages == 4
    assert product(packed(bN=64, num_stages=2)).stages == 4
    assert product(packed(bN=128, num_stages=5)).stages == 5


def test_scales_may_multiply_sums():
    assert product(packed(scale_sums=True)).scales_sums
    assert not product(packed()).scales_sums
    assert product(packed(scale_sums=True, bK=128)).scales_sums


@pytest.mark.parametrize(
    ("config", "slices"),
    [
        ({"bK": 128}, 1),
        ({}, 2),
        ({"bK": 512, "num_stages": 3}, 4),
        ({"bM": 8}, 2),
        ({"bM": 24}, 0),
        ({"bN": 256}, 0),
    ],
)
def test_few_columns_are_multiplied_by_warps(config, slices):
    assert product(packed(**config)).slices == slices


def test_the_road_of_a_product_says_how_it_multiplies():
    (launch,) = to_tir(lower(packed(), SM90A), SM90A).launches
    assert "mma.sync on weights of 4 bits converted in registers" in [
        road.instruction for road in launch.roads
    ]


def test_registers_leave_room_for_the_blocks_asked_for():
    def bounds(**config):
        return source(to_tir(lower(packed(bN=64, **config), SM90A), SM90A), SM90A, "packed")

    assert "__launch_bounds__(288, 2)" in bounds()
    assert "__launch_bounds__(288, 1)" in bounds(min_blocks_per_sm=1)


def test_blocks_go_in_bands():
    made = to_tir(lower(packed(group=8), SM90A), SM90A)
    assert "bands of 8" in made.launches[0].notes[0]
    assert "tilec_grid_y" in source(made, SM90A, "packed")
    assert "pairs of blocks go in no bands" in product(packed(group=8, cluster=[2, 1]))


def test_pairs_of_blocks_share_activations():
    found = product(packed(cluster=[2, 1], num_stages=3))
    assert [load.shared for load in found.loads] == [False, True, False]
    assert found.loads[1].map.box == (8, 64)
    assert found.cluster == 2
    assert product(packed()).cluster == 1
    assert "not clusters of (1, 2)" in product(packed(cluster=[1, 2]))
    assert "load nothing in common" in product(packed(cluster=[2, 1], bM=8))


def test_blocks_with_trips_of_their_own_share_nothing():
    kernel = packed(cluster=[2, 1])
    (launch,) = kernel.launches
    until = launch.block_vars[0] + 1

    def cut(stmt: Stmt) -> Stmt:
        return replace(stmt, stop=tirx.min(stmt.stop, until)) if isinstance(stmt, Pipelined) else stmt

    body = tuple(
        replace(launch, body=tuple(map(cut, launch.body))) if stmt is launch else stmt for stmt in kernel.body
    )
    assert "trips of their own" in product(replace(kernel, body=body))


def test_constant_tensors_are_read_early():
    found = product(packed(pdl=True, constant=["W", "scales"], evict_first=["W"]))
    assert [(load.early, load.evict) for load in found.loads] == [
        (True, "first"),
        (False, None),
        (True, None),
    ]


PACKED = [
    (4, "float16", {"scale_sums": True, "cluster": [2, 1]}),
    (4, "bfloat16", {"pdl": True}),
    (8, "float16", {"bK": 128}),
    (8, "bfloat16", {"scale_sums": True, "threads": 512}),
    (4, "float16", {"bM": 64, "scale_sums": True}),
    (8, "bfloat16", {"bM": 64, "bK": 128}),
]


@pytest.mark.nvrtc
@parametrized(("bits", "dtype", "config"), PACKED, fast=[PACKED[0], PACKED[5]])
def test_code_spills_nothing(bits, dtype, config):
    kernel = packed(bits, dtype, **{"num_stages": 3, **config})
    (launch,) = compile_variant(kernel, SM90A, "packed").launches
    assert launch.gpu is not None
    assert launch.gpu.spills == 0
    assert launch.gpu.registers <= 168


def test_packer_and_unpacker_are_inverse():
    module = (
        load_entry("quantised_packed.py:pack", KERNELS),
        load_entry("quantised_packed.py:unpack", KERNELS),
    )
    for bits in (4, 8):
        limit = 1 << bits - 1
        numbers = np.random.default_rng(0).integers(-limit, limit, (5, 256)).astype(np.int8)
        assert (module[1](module[0](numbers, bits), bits) == numbers).all()
