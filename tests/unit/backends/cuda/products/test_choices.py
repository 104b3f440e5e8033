"""What products do where their config leaves schedule keys open."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.backends.cuda.matmul.nodes import MatmulRoles
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel, Launch
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

KERNELS = Path(__file__).parents[5] / "examples" / "kernels"
SM90A = parse_target("sm_90a")
OPEN = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}


def pinned(*sizes: int) -> dict[str, Guard]:
    """Dims of known sizes."""
    return {name: Guard(eq=size) for name, size in zip("MNK", sizes, strict=True)}


def product(dims: dict[str, Guard], entry: str = "matmul", **config: object) -> Kernel:
    """A product of examples/kernels/gemm.py."""
    found = load_entry(f"gemm.py:{entry}", KERNELS)
    return elaborate(found, name=entry, dims=dims, args={"dtype": "float16"}, config=config)


def launched(dims: dict[str, Guard], entry: str = "matmul", **config: object) -> Launch:
    """Its launch, with roles."""
    dtype = "int8" if entry.endswith("int8") else "float16"
    args = {} if dtype == "int8" else {"dtype": dtype}
    kernel = elaborate(
        load_entry(f"gemm.py:{entry}", KERNELS), name=entry, dims=dims, args=args, config=config
    )
    return lower(kernel, SM90A, until="assign_roles").launches[-1]


def turns(launch: Launch) -> bool:
    """Whether its warpgroups take turns."""
    return roles_of(launch, MatmulRoles).roles.pingpong


@pytest.mark.parametrize("threads", [128, 256])
@pytest.mark.parametrize("dims", [OPEN, pinned(4096, 4096, 4096)])
def test_blocks_with_several_tiles_take_turns(dims, threads):
    launch = launched(dims, threads=threads)
    assert turns(launch)
    assert (launch.threads, launch.schedule.pingpong) == ((384, 1, 1), True)
    lowered = to_tir(lower(product(dims, threads=threads), SM90A), SM90A).launches[0]
    assert "take turns at tiles" in lowered.notes[0]


@pytest.mark.parametrize(
    ("dims", "config"),
    [
        (pinned(1024, 1024, 1024), {}),  # 64 tiles
        ({**OPEN, "M": Guard(max=128), "N": Guard(max=4096)}, {}),
        (OPEN, {"pingpong": False}),
        (OPEN, {"persistent": False}),
        (OPEN, {"bN": 256, "threads": 256}),  # a warpgroup has no registers for the sums of a tile
        (OPEN, {"bM": 128, "bN": 16, "threads": 256}),  # loads are what it waits for
        (OPEN, {"bM": 64, "num_stages": 9}),  # stages leave no room for two staging buffers
        (OPEN, {"split_k": 2}),
        (OPEN, {"promote_k": 64, "threads": 256}),
        (
            {**OPEN, "M": Guard(max=64), "N": Guard()},
            {"bM": 64, "threads": 128},
        ),  # loaders leave too few registers
    ],
)
def test_others_do_not(dims, config):
    assert not turns(launched(dims, **config))


def test_an_epilogue_that_computes_keeps_registers_for_it():
    assert turns(launched(OPEN, bN=192, threads=256))
    assert not turns(launched(OPEN, "linear", bN=192, threads=256))
    assert turns(launched(OPEN, "linear", threads=256))


@pytest.mark.parametrize(
    ("sizes", "tile", "parts"),
    [
        ((128, 4096, 4096), (128, 128), 2),
        ((128, 4096, 4096), (128, 64), 2),
        ((1024, 1024, 4096), (128, 128), 2),
        ((128, 1024, 8192), (128, 64), 4),
        ((1024, 1024, 1024), (128, 128), 1),  # too few trips
        ((512, 1024, 3072), (128, 128), 2),
        ((512, 512, 8192), (64, 128), 2),
        ((512, 1024, 4096), (64, 128), 1),  # L2 has no more to give
        ((64, 4096, 4096), (64, 64), 1),
        ((8, 7168, 4096), (16, 128), 1),
        ((4096, 4096, 4096), (128, 128), 1),  # tiles for everybody
    ],
)
def test_few_deep_tiles_are_shared(sizes, tile, parts):
    rows, columns = tile
    launch = launched(pinned(*sizes), bM=rows, bN=columns)
    assert (launch.schedule.split_k or 1) == roles_of(launch, MatmulRoles).order.split == parts


@pytest.mark.parametrize(
    "config",
    [{"split_k": 1}, {"cluster": (1, 2)}, {"pingpong": False}, {"num_stages": 6}],  # stages take the room
)
def test_tiles_are_not_shared_where_something_else_is_asked_for(config):
    assert roles_of(launched(pinned(128, 4096, 4096), **config), MatmulRoles).order.split == 1


def test_open_dims_keep_tiles_whole():
    assert roles_of(launched({**OPEN, "M": Guard(max=128)}), MatmulRoles).order.split == 1
    known = {"M": Guard(max=128), "N": Guard(eq=4096), "K": Guard(div=8, min=4096)}
    assert roles_of(launched(known), MatmulRoles).order.split == 2
