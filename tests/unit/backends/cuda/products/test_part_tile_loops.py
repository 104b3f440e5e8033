"""Which walks over whole tiles become launches of their own: each condition, broken."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.idioms.grids.part_tile_loops import PartTileLoops
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

KERNEL = """
kernel("small")
A = tensor(float16, (768, 64), ("768", "64"), access="in")
B = tensor(float16, (640, 64), ("640", "64"), access="in")
C = tensor(float32, (768, 640), ("768", "640"), access="inout")
done = tensor(int32, (8,), ("8",), access="inout")
with launch(8, threads=(128, 1, 1)) as (block,):
    a = alloc(float16, (64, 64), "shared.dyn")
    b = alloc(float16, (64, 64), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    at = alloc(int32, (1,), "local.var")
    for wave in serial(0, 14, 1):
        tile = wave * 8 + block
        {walked}
        copy(B[tile % 10 * 64:+64, 0:+64], b[0:+64, 0:+64])
        gemm(a[0:+64, 0:+64], b[0:+64, 0:+64], acc[0:+64, 0:+64], trans_b=True, clear=True)
        copy(acc[0:+64, 0:+64], C[{row}:+64, tile % 10 * 64:+64])
    at[0] = 0
    while {condition}:
        copy(A[704:+64, 0:+64], a[0:+64, 0:+64])
        copy(B[block * 64:+64, 0:+64], b[0:+64, 0:+64])
        {product}
        for i, j in parallel(64, 64):
            atomic_add(C[704 + i, block * 64 + j], acc[i, j])
        at[0] = at[0] + 1
"""
PRODUCT = "gemm(a[0:+64, 0:+64], b[0:+64, 0:+64], acc[0:+64, 0:+64], trans_b=True, clear={})"
FORM = {
    "walked": "copy(A[tile // 10 * 64:+64, 0:+64], a[0:+64, 0:+64])",
    "row": "tile // 10 * 64",
    "condition": "at[0] < 1",
    "product": PRODUCT.format(True),
}


@pytest.mark.parametrize(
    ("change", "launches"),
    [
        ({}, 2),
        ({"product": PRODUCT.format(False)}, 1),  # goes on with the sums of the walk
        ({"condition": "done[0] < 1"}, 1),  # waits for other blocks
        ({"row": "0"}, 1),  # tiles meet
        ({"walked": "at[0] = tile"}, 1),  # a tile of the trip before
        ({"product": "fill(acc[0:+64, 0:+64], 1.0)"}, 1),  # nothing to multiply is left
    ],
)
def test_walks_over_tiles_are_launches_where_nothing_of_them_is_needed(change: dict, launches: int) -> None:
    kernel = parse_kernel(KERNEL.format(**{**FORM, **change}))
    assert len(PartTileLoops().apply(kernel, parse_target("sm_90a")).launches) == launches
