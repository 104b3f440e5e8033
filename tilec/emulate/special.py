"""Special registers: where a thread stands, as source over a group."""

from __future__ import annotations

#: ``threadIdx.x`` and the like in C.
BUILTINS: dict[str, str] = {
    **{f"threadIdx.{axis}": f"place(g, 'thread', {i})" for i, axis in enumerate("xyz")},
    **{f"blockIdx.{axis}": f"g.block.index[{i}]" for i, axis in enumerate("xyz")},
    **{f"blockDim.{axis}": f"g.block.threads[{i}]" for i, axis in enumerate("xyz")},
    **{f"gridDim.{axis}": f"g.block.grid[{i}]" for i, axis in enumerate("xyz")},
}
#: The same in assembly.
SPECIAL: dict[str, str] = {
    **{f"tid.{axis}": BUILTINS[f"threadIdx.{axis}"] for axis in "xyz"},
    **{f"ctaid.{axis}": BUILTINS[f"blockIdx.{axis}"] for axis in "xyz"},
    **{f"ntid.{axis}": BUILTINS[f"blockDim.{axis}"] for axis in "xyz"},
    **{f"nctaid.{axis}": BUILTINS[f"gridDim.{axis}"] for axis in "xyz"},
    "laneid": "place(g, 'lane', 0)",
    "warpid": "place(g, 'warp', 0)",
    "cluster_ctarank": "g.block.rank",
    "cluster_nctarank": "len(g.block.cluster.blocks)",
    "cluster_ctaid.x": "g.block.rank",
    "cluster_nctaid.x": "len(g.block.cluster.blocks)",
}
