"""The T namespace: ``import tilec.language as T``.

Importing it is light: dtype objects are strings, and TVM is loaded by the first kernel that is elaborated.
Names that the language has and tilec does not offer yet raise `UnsupportedError` when they are called; other
names raise AttributeError with the nearest valid one.
"""

from __future__ import annotations

from typing import Any

from tilec.language.control.block_forms import Else, If, Then, While
from tilec.language.control.jumps import loop_break
from tilec.language.control.lets import let
from tilec.language.control.loops import Parallel, Pipelined, grid, serial, unroll, vectorized
from tilec.language.frontend import constructs, script_names
from tilec.language.frontend.compile_options import annotate_compile_flags, annotate_pass_configs
from tilec.language.frontend.meta_classes import inline, meta_class
from tilec.language.frontend.programs import Ref, macro, prim_func
from tilec.language.threads import hints, lanes, warp_groups
from tilec.language.threads.barrier_copies import copy_cluster, tma_copy
from tilec.language.threads.barriers import (
    alloc_barrier,
    alloc_cluster_barrier,
    cp_async_barrier_noinc,
    dec_max_nreg,
    inc_max_nreg,
    mbarrier_arrive,
    mbarrier_arrive_expect_tx,
    mbarrier_expect_tx,
    mbarrier_wait_parity,
    named_barrier_arrive,
    set_max_nreg,
    wait_wgmma,
    warpgroup_wait,
)
from tilec.language.threads.clusters import (
    ClusterKernel,
    block_rank_in_cluster,
    cluster_arrive,
    cluster_arrive_relaxed,
    cluster_sync,
    cluster_wait,
    get_cluster_dims,
    get_cluster_extent,
    get_cluster_extents,
    get_cluster_id,
    get_cluster_ids,
    get_cluster_size,
)
from tilec.language.threads.debugging import Assert, device_assert, print_
from tilec.language.threads.fragment_instructions import (
    mma_fill,
    mma_store,
    ptx_ldmatrix,
    ptx_mma,
    ptx_mma_sp,
)
from tilec.language.threads.hints import (
    annotate_l2_hit_ratio,
    annotate_layout,
    annotate_min_blocks_per_sm,
    annotate_restrict_buffers,
    annotate_safe_value,
    pdl_sync,
    pdl_trigger,
    use_swizzle,
)
from tilec.language.threads.indices import (
    get_lane_idx,
    get_thread_binding,
    get_thread_bindings,
    get_warp_group_idx,
    get_warp_idx,
    shuffle_elect,
    sync_grid,
    sync_threads,
    sync_warp,
    thread_binding,
    thread_return,
    tvm_storage_sync,
)
from tilec.language.threads.lanes import (
    activemask,
    all_sync,
    any_sync,
    ballot,
    ballot_sync,
    match_all_sync,
    match_any_sync,
    shfl_down,
    shfl_sync,
    shfl_up,
    shfl_xor,
    syncthreads_and,
    syncthreads_count,
    syncthreads_or,
    tvm_warp_activemask,
    tvm_warp_shuffle,
    tvm_warp_shuffle_down,
    tvm_warp_shuffle_up,
)
from tilec.language.threads.launches import (
    Kernel,
    get_block_binding,
    get_block_bindings,
    get_block_extent,
    get_block_extents,
    get_thread_extent,
    get_thread_extents,
)
from tilec.language.threads.random import random_numbers
from tilec.language.threads.thread_reductions import Attr, comm_reducer, tvm_thread_allreduce
from tilec.language.threads.warp_groups import ws
from tilec.language.tiles.layout_builders import get_swizzle_layout, make_mma_swizzle_layout
from tilec.language.tiles.memory import (
    slice_stores,  # noqa: F401  defines what slices do
    vector_memory,
)
from tilec.language.tiles.memory.allocations import (
    alloc_buffer,
    alloc_fragment,
    alloc_global,
    alloc_local,
    alloc_shared,
    alloc_var,
    allocate,
)
from tilec.language.tiles.memory.allocations import alloc_buffer as decl_buffer
from tilec.language.tiles.memory.element_pointers import access_ptr, address_of, ptx_cp_async
from tilec.language.tiles.memory.reshape import reshape, view
from tilec.language.tiles.operations import foreign
from tilec.language.tiles.operations.atomics import (
    atomic_add,
    atomic_addx2,
    atomic_addx4,
    atomic_load,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_store,
)
from tilec.language.tiles.operations.copies import async_copy, clear, copy, fill
from tilec.language.tiles.operations.products import gemm, gemm_sp, wgmma_gemm
from tilec.language.tiles.operations.rearrange import im2col, transpose
from tilec.language.tiles.operations.reducers import (
    all_of,
    alloc_reducer,
    any_of,
    finalize_reducer,
    reducer_init,
    reducer_update,
)
from tilec.language.tiles.operations.reductions import (
    cummax,
    cumsum,
    reduce,
    reduce_absmax,
    reduce_abssum,
    reduce_bitand,
    reduce_bitor,
    reduce_bitxor,
    reduce_max,
    reduce_min,
    reduce_sum,
)
from tilec.language.tiles.operations.scaled_products import gemm_blockscaled
from tilec.language.tiles.operations.warp_policies import GemmWarpPolicy
from tilec.language.tiles.parameters.pointers import handle, make_tensor, match_buffer, ptr
from tilec.language.tiles.parameters.proxies import FragmentBuffer, LocalBuffer, SharedBuffer
from tilec.language.tiles.parameters.signatures import Buffer_ as Buffer
from tilec.language.tiles.parameters.signatures import StridedTensor, Tensor, Var, const, dynamic, empty
from tilec.language.tiles.parameters.tensor_specs import dyn
from tilec.language.tiles.persistent import Persistent
from tilec.language.tiles.tile_scheduler import PersistentTileScheduler
from tilec.language.values import scalars
from tilec.language.values.functions import intrinsics, next_after, pairs
from tilec.language.values.kernel.annotations import WSID
from tilec.language.values.layouts.layout import Fragment, Layout
from tilec.language.values.other_names import INSTEAD
from tilec.language.values.scalars import dtype
from tilec.packages import find_aliases
from tilec.spelling import nearest

find_aliases(__name__)

__all__ = [
    "WSID",
    "Assert",
    "Buffer",
    "ClusterKernel",
    "Else",
    "Fragment",
    "FragmentBuffer",
    "GemmWarpPolicy",
    "If",
    "Kernel",
    "Layout",
    "LocalBuffer",
    "Parallel",
    "Persistent",
    "PersistentTileScheduler",
    "Pipelined",
    "Ref",
    "SharedBuffer",
    "StridedTensor",
    "Tensor",
    "Then",
    "Var",
    "While",
    "access_ptr",
    "activemask",
    "address_of",
    "all_of",
    "all_sync",
    "alloc_barrier",
    "alloc_buffer",
    "alloc_cluster_barrier",
    "alloc_fragment",
    "alloc_global",
    "alloc_local",
    "alloc_reducer",
    "alloc_shared",
    "alloc_var",
    "allocate",
    "dec_max_nreg",
    "decl_buffer",
    "get_swizzle_layout",
    "inc_max_nreg",
    "make_mma_swizzle_layout",
    "annotate_compile_flags",
    "annotate_l2_hit_ratio",
    "annotate_layout",
    "annotate_min_blocks_per_sm",
    "annotate_pass_configs",
    "annotate_restrict_buffers",
    "annotate_safe_value",
    "any_of",
    "any_sync",
    "async_copy",
    "atomic_add",
    "atomic_addx2",
    "atomic_addx4",
    "atomic_load",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_store",
    "ballot",
    "ballot_sync",
    "block_rank_in_cluster",
    "clear",
    "cluster_arrive",
    "cluster_arrive_relaxed",
    "cluster_sync",
    "cluster_wait",
    "comm_reducer",
    "const",
    "copy",
    "copy_cluster",
    "cp_async_barrier_noinc",
    "cummax",
    "cumsum",
    "device_assert",
    "dtype",
    "dyn",
    "dynamic",
    "empty",
    "fill",
    "finalize_reducer",
    "gemm",
    "gemm_blockscaled",
    "gemm_sp",
    "get_block_binding",
    "get_block_bindings",
    "get_block_extent",
    "get_block_extents",
    "get_cluster_dims",
    "get_cluster_extent",
    "get_cluster_extents",
    "get_cluster_id",
    "get_cluster_ids",
    "get_cluster_size",
    "get_lane_idx",
    "get_thread_binding",
    "get_thread_bindings",
    "get_thread_extent",
    "get_thread_extents",
    "get_warp_group_idx",
    "get_warp_idx",
    "grid",
    "handle",
    "im2col",
    "inline",
    "let",
    "loop_break",
    "macro",
    "make_tensor",
    "match_all_sync",
    "match_any_sync",
    "match_buffer",
    "mbarrier_arrive",
    "mbarrier_arrive_expect_tx",
    "mbarrier_expect_tx",
    "mbarrier_wait_parity",
    "mma_fill",
    "mma_store",
    "named_barrier_arrive",
    "meta_class",
    "pdl_sync",
    "pdl_trigger",
    "prim_func",
    "ptr",
    "ptx_cp_async",
    "ptx_ldmatrix",
    "ptx_mma",
    "ptx_mma_sp",
    "reduce",
    "reduce_absmax",
    "reduce_abssum",
    "reduce_bitand",
    "reduce_bitor",
    "reduce_bitxor",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
    "reducer_init",
    "reducer_update",
    "reshape",
    "serial",
    "set_max_nreg",
    "shfl_down",
    "shfl_sync",
    "shfl_up",
    "shfl_xor",
    "shuffle_elect",
    "sync_grid",
    "sync_threads",
    "sync_warp",
    "syncthreads_and",
    "syncthreads_count",
    "syncthreads_or",
    "thread_binding",
    "thread_return",
    "tma_copy",
    "transpose",
    "tvm_storage_sync",
    "tvm_thread_allreduce",
    "tvm_warp_activemask",
    "tvm_warp_shuffle",
    "tvm_warp_shuffle_down",
    "tvm_warp_shuffle_up",
    "unroll",
    "use_swizzle",
    "vectorized",
    "view",
    "wait_wgmma",
    "warpgroup_wait",
    "wgmma_gemm",
    "ws",
]

#: Older and other spellings.
_ALIASES: dict[str, Any] = {
    "symbolic": dynamic,
    "print": print_,
    "Serial": serial,
    "Unroll": unroll,
    "Vectorized": vectorized,
    "parallel": Parallel,
    "gemm_v1": gemm,
    "gemm_v2": gemm,
    "gemm_sp_v2": gemm_sp,
    "wgmma_gemm_sp": gemm_sp,
    "c2d_im2col": im2col,
    "attr": Attr,
    "get_warp_idx_sync": get_warp_idx,
    "wgmma_mma": wgmma_gemm,
    "WarpSpecialize": ws,
    "barrier_arrive": mbarrier_arrive,
    "ptx_arrive_barrier": mbarrier_arrive,
    "barrier_wait": mbarrier_wait_parity,
}

_NAMES: dict[str, Any] = {
    **constructs.NAMES,
    **script_names.NAMES,
    **scalars.NAMES,
    **intrinsics.FUNCTIONS,
    **next_after.FUNCTIONS,
    **pairs.FUNCTIONS,
    **vector_memory.FUNCTIONS,
    **random_numbers.FUNCTIONS,
    **foreign.FUNCTIONS,
    **hints.SILENT,
    **lanes.REDUCTIONS,
    **warp_groups.HINTS,
    **_ALIASES,
}


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return _NAMES[name]
    raise AttributeError(f"the tile language has no T.{name}{_hint(name)}")


def _hint(name: str) -> str:
    """What may have been meant."""
    if name.startswith("_"):  # asked of every module, by whoever looks at it
        return ""
    if name in INSTEAD:
        return f"; use {INSTEAD[name]}"
    near = nearest(name, __dir__())
    return f"; did you mean T.{near}?" if near else ""


def __dir__() -> list[str]:
    return sorted({*__all__, *_NAMES})
