"""Several products of one loop with roles of their own: what is taken, what is issued as one, what is not."""

from __future__ import annotations

from dataclasses import replace

import joint_products
import pytest
from breadth import parametrized
from told import no_roles

from tilec.backends.cuda.codegen.images import compile_kernel
from tilec.backends.cuda.matmul.match.launch import match
from tilec.backends.cuda.matmul.nodes import MatmulRoles, RingDrain
from tilec.backends.cuda.nodes import SideBySide
from tilec.backends.cuda.warp_roles.nodes import TileStore
from tilec.backends.cuda.warp_roles.ring import place_tiles, stage_bytes
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import UnsupportedError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Alloc, Copy, Gemm, Kernel, Launch, Pipelined, walk
from tilec.language.frontend.elaborate import elaborate
from tilec.lowering.passes.base import rewrite_launches
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
DIMS = {"M": Guard(), **dict.fromkeys("NLK", Guard(div=8))}


def kernel(name: str = "gated", args: dict[str, object] | None = None, **config: object) -> Kernel:
    dims = DIMS if name == "two_results" else {key: DIMS[key] for key in "MNK"}
    return elaborate(getattr(joint_products, name), name=name, dims=dims, args=args or {}, config=config)


def reason(made: Kernel) -> str | None:
    """Why the launch gets no roles of this kind, where it gets none."""
    return no_roles(lower(made, SM90A, until="assign_roles").launches[0])


def issued(made: Kernel) -> list[int]:
    """How many products each instruction of a trip has."""
    roles = roles_of(lower(made, SM90A).launches[0], MatmulRoles)
    drain = next(stmt for stmt in roles.consumer if isinstance(stmt, RingDrain))
    return [len(stmt.body) if isinstance(stmt, SideBySide) else 1 for stmt in drain.body]


@pytest.mark.parametrize(
    ("made", "products"),
    [
        (kernel(), [2]),
        (kernel(args={"along": False}), [2]),
        (kernel(args={"along": False}, bN=72), [1, 1]),  # of whole slabs no row is without a reader
        (kernel(bK=128), [1, 1]),  # rows of two slabs
        (kernel(bN=136), [1, 1]),  # 272 columns
        (kernel(bM=16), [1, 1]),  # transposed: one second operand
        (kernel("two_results"), [1, 1]),  # widths
        (kernel("complex_parts"), [1, 1, 1, 1]),  # operands in other order
    ],
)
def test_products_of_one_first_operand_are_one(made, products):
    assert issued(made) == products


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (kernel(bM=128, bN=256, threads=256), "256 accumulator registers a thread are more than 208"),
        (kernel(split_k=2), "blocks share the K of a single product alone"),
        (kernel(promote_k=64), "sums of several products stay in the tensor core"),
    ],
)
def test_what_does_not_fit_says_why(made, said):
    assert said in str(reason(made))


def test_parts_of_k_are_those_of_one_product():
    with pytest.raises(UnsupportedError, match="spread_k = 2: it has several products"):
        lower(kernel(spread_k=2), SM90A)


def changed(change) -> Kernel:
    """The gated product with another loop."""

    def with_loop(launch: Launch) -> Launch:
        body = (change(stmt) if isinstance(stmt, Pipelined) else stmt for stmt in launch.body)
        return replace(launch, body=tuple(body))

    return rewrite_launches(kernel(), with_loop)


def products(loop: Pipelined) -> tuple[tuple[Copy, ...], tuple[Gemm, ...]]:
    copies = tuple(stmt for stmt in loop.body if isinstance(stmt, Copy))
    return copies, tuple(stmt for stmt in loop.body if isinstance(stmt, Gemm))


def behind(loop: Pipelined) -> Pipelined:
    (a, g, u), (gate, up) = products(loop)
    return replace(loop, body=(a, g, gate, up, u))


def both_sides(loop: Pipelined) -> Pipelined:
    copies, (gate, up) = products(loop)
    return replace(loop, body=(*copies, gate, replace(up, a=gate.b)))


@pytest.mark.parametrize(
    ("change", "said"),
    [(behind, "the product comes first"), (both_sides, "Gs is a first and a second operand")],
)
def test_operands_are_there_before_their_products_and_on_one_side(change, said):
    with pytest.raises(Unfit, match=said):
        match(changed(change).launches[0])


def test_boxes_of_a_residual_wait_in_staging_buffers_of_one_epilogue():
    roles = roles_of(lower(kernel("two_results"), SM90A).launches[0], MatmulRoles)
    stores = [stmt for stmt in roles.consumer if isinstance(stmt, TileStore)]
    assert [stmt.extents for stmt in stores] == [(64, 128), (64, 64)]
    assert all(stmt.map is not None and stmt.residual is None for stmt in stores)


def test_tiles_of_one_instruction_lie_stage_by_stage():
    launch = lower(kernel(), SM90A).launches[0]
    a, g, u = (stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc) and stmt.layout)
    one, all_of_a = stage_bytes(g), stage_bytes(a) * int(a.shape[0])
    places, steps, end = place_tiles((a, g, u), [(g, u)])
    assert [places[tile] for tile in (a, g, u)] == [0, all_of_a, all_of_a + one]
    assert [steps[tile] for tile in (a, g, u)] == [stage_bytes(a), 2 * one, 2 * one]
    assert end == all_of_a + 2 * one * int(g.shape[0])


def test_what_is_one_is_said():
    launch = to_tir(lower(kernel(), SM90A), SM90A).launches[0]
    assert "products of As with Gs, Us are issued as one of 128 columns" in launch.notes


@pytest.mark.nvrtc
@parametrized(
    ("name", "config"),
    [
        ("gated", {"bM": 128, "bN": 128, "threads": 256}),  # one instruction of both
        ("gated", {"bM": 128, "bN": 192, "threads": 256}),  # 192 registers of sums
        ("complex_parts", {"bM": 128, "bN": 128, "threads": 256}),
        ("two_results", {"bM": 128, "bN": 128, "threads": 256}),
    ],
    fast=[("gated", {"bM": 128, "bN": 128, "threads": 256})],
)
def test_the_assembler_keeps_products_in_flight(name, config):
    """It says where it makes each wait for the one before, or spills sums."""
    made = lower(kernel(name, **config), SM90A)
    (launch,) = compile_kernel(to_tir(made, SM90A), SM90A, "k").launches
    assert "wgmma" in str(launch.notes)
    assert "slow: " not in str(launch.roads)
    assert launch.gpu is not None
    assert launch.gpu.spills == 0
