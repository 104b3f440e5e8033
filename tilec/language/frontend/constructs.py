"""Every construct of the tile language by family, with what was promised of it on GPUs and CPUs; of those
that exist and are not offered, what to write in their place.

This is the one list: the names that refuse calls, the table in docs/porting.md and the tests of every
construct are made of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilec.language.values.refusal import Refusal

#: Levels (M(ust), S(hould), I (accepted without meaning), R(efused)) on CUDA / on CPUs; of what is refused on
#: both the remedy; the names without the ``T.`` prefix.
FAMILIES: dict[str, tuple[str, ...]] = {
    "Programs and parameters": (
        "M/M: prim_func macro Ref Tensor StridedTensor Buffer ptr match_buffer make_tensor const "
        "dynamic symbolic Var empty dtype",
        "S/S: meta_class inline dyn index_to_coordinates SharedBuffer FragmentBuffer LocalBuffer",
    ),
    "Kernel frame": (
        "M/M: Kernel get_thread_extent get_thread_extents get_block_binding get_block_bindings "
        "get_block_extent get_block_extents",
        "M/S: get_thread_binding get_thread_bindings",
        "S/S: thread_binding thread_return get_cluster_dims get_cluster_size get_cluster_id get_cluster_ids "
        "get_cluster_extent get_cluster_extents block_rank_in_cluster",
        "S/I: ClusterKernel",
        "I/I: func_attr",
        "R/R: take the index from T.get_thread_binding: launch_thread env_thread",
        "R/R: write it in the kernel language: CUDASourceCodeKernel",
    ),
    "Memory": (
        "M/M: alloc_shared alloc_fragment alloc_var alloc_global reshape view",
        "M/S: alloc_local",
        "M/R: alloc_barrier",
        "S/R: alloc_cluster_barrier",
        "S/S: alloc_reducer alloc_buffer allocate decl_buffer access_ptr address_of tvm_access_ptr",
        "R/R: index the buffer itself: alloc_descriptor alloc_wgmma_desc alloc_tmem deallocate_tmem",
    ),
    "Data movement": (
        "M/M: copy async_copy fill clear im2col c2d_im2col",
        "S/S: transpose ldg32 ldg64 ldg128 ldg256 stg32 stg64 stg128 stg256 lds32 lds64 lds128 sts32 sts64 "
        "sts128 __ldg",
        "M/I: ptx_commit_group ptx_wait_group",
        "S/R: tma_copy copy_cluster tma_store_arrive tma_store_wait ptx_cp_async cp_async_barrier_noinc",
        "R/R: use T.copy: tma_gather4 tma_scatter4 tma_gather4_bytes tma_load_2sm tma_load "
        "create_tma_descriptor ptx_cp_async_bulk",
    ),
    "Matrix products": (
        "M/M: gemm gemm_v1 gemm_v2 GemmWarpPolicy",
        "S/S: dp4a",
        "S/R: wgmma_gemm wgmma_mma",
        "S/S: gemm_sp gemm_sp_v2 wgmma_gemm_sp",
        "S/S: gemm_blockscaled",
        "S/S: ptx_mma ptx_mma_sp ptx_ldmatrix mma_fill mma_store",
        "S/I: wait_wgmma warpgroup_arrive warpgroup_commit_batch warpgroup_wait warpgroup_fence_operand",
        "R/R: use T.gemm_blockscaled: mma_gemm_blockscaled tcgen05_gemm_blockscaled tcgen05_cp_warpx4 "
        "tcgen05_sf_warp_transpose make_blockscaled_gemm_layout",
        "R/R: use T.gemm: tcgen05_gemm tcgen05_mma_arrive tcgen05_before_thread_sync "
        "tcgen05_after_thread_sync tvm_mma_sync",
    ),
    "Reductions and scans": (
        "M/M: reduce reduce_sum reduce_max reduce_min reduce_absmax reduce_abssum reduce_bitand reduce_bitor "
        "reduce_bitxor cumsum cummax",
        "M/S: comm_reducer tvm_thread_allreduce attr",
        "S/S: reducer_init reducer_update finalize_reducer any_of all_of",
        "S/R: warp_reduce_sum warp_reduce_max warp_reduce_min warp_reduce_bitand warp_reduce_bitor",
    ),
    "Loops": (
        "M/M: Parallel Pipelined Persistent serial Serial unroll Unroll vectorized Vectorized grid",
        "S/S: parallel loop_break PersistentTileScheduler",
    ),
    "Atomics": (
        "M/M: atomic_add atomic_max atomic_min atomic_load atomic_store",
        "M/S: atomic_addx2 atomic_addx4",
        "S/S: atomic_or",
    ),
    "Mathematics": (
        "M/M: exp exp2 exp10 log log2 log10 log1p pow sqrt rsqrt sigmoid tanh erf sin cos tan asin acos atan "
        "atan2 sinh cosh asinh acosh atanh hypot floor ceil trunc nearbyint round max min abs fabs clamp "
        "if_then_else Select floordiv floormod truncdiv truncmod ceildiv cdiv align_up bitwise_and "
        "bitwise_or bitwise_xor bitwise_not shift_left shift_right popcount clz isnan isinf isfinite "
        "infinity max_value min_value copysign fmod ldexp nextafter fma fmul __exp __exp2 __exp10 __log "
        "__log2 __log10 __sin __cos __tan fast_rcp assume likely",
        "S/S: ieee_add ieee_sub ieee_mul ieee_fmaf ieee_frcp ieee_fsqrt ieee_frsqrt ieee_fdiv add2 sub2 mul2 "
        "fma2 max2 min2 abs2 __ffs __fns",
        "S/R: rng_init rng_rand rng_rand_float",
        "R/R: write the expression with ordinary operators: q_multiply_shift q_multiply_shift_per_axis "
        "call_llvm_intrin call_llvm_pure_intrin",
        "R/R: compute the values where the kernel is called and pass them as tensors: call_packed "
        "call_packed_lowered call_cpacked call_cpacked_lowered anylist_getitem anylist_resetitem "
        "anylist_setitem_call_packed anylist_setitem_call_cpacked TVMBackendAllocWorkspace "
        "TVMBackendFreeWorkspace",
    ),
    "Casts and vectors": (
        "M/M: cast Cast reinterpret",
        "S/S: Shuffle extract_lane Ramp Broadcast",
    ),
    "Foreign code": (
        "S/S: call_extern call_pure_extern import_source call_intrin",
        "M/M: evaluate",
    ),
    "Threads, warps and barriers": (
        "M/S: sync_threads get_lane_idx get_warp_idx get_warp_idx_sync get_warp_group_idx",
        "M/I: sync_warp",
        "S/S: shuffle_elect tvm_storage_sync",
        "M/R: shfl_sync shfl_xor shfl_down shfl_up any_sync all_sync ballot_sync ballot activemask "
        "mbarrier_arrive barrier_arrive ptx_arrive_barrier mbarrier_wait_parity barrier_wait",
        "M/I: fence_proxy_async",
        "S/R: tvm_warp_shuffle tvm_warp_shuffle_up tvm_warp_shuffle_down tvm_warp_activemask "
        "match_any_sync match_all_sync syncthreads_count syncthreads_and syncthreads_or named_barrier_arrive "
        "mbarrier_expect_tx mbarrier_arrive_expect_tx cluster_arrive_relaxed cluster_arrive "
        "cluster_wait cluster_sync sync_grid",
        "S/S: ws WarpSpecialize",
        "S/I: set_max_nreg inc_max_nreg dec_max_nreg",
        "I/I: ws_op WSSchedule WSRole WSPipeline WSInstr WSSync WSScope WSID annotate_ws_schedule "
        "annotate_ws_pipeline_depth no_set_max_nreg "
        "disable_warp_group_reg_alloc annotate_producer_reg_dealloc annotate_consumer_reg_alloc pdl_trigger "
        "pdl_sync",
        "R/R: leave it out: statements of a block see each other's effects in order: sync_global",
        "R/R: use T.alloc_barrier: create_list_of_mbarrier get_mbarrier",
        "R/R: write it in the kernel language: clc_try_cancel clc_try_cancel_multicast clc_is_canceled "
        "clc_get_first_ctaid_x",
    ),
    "Annotations": (
        "M/I: use_swizzle",
        "M/M: annotate_layout Layout Fragment annotate_safe_value annotate_restrict_buffers "
        "annotate_pass_configs annotate_compile_flags",
        "S/I: annotate_l2_hit_ratio annotate_min_blocks_per_sm",
        "S/S: get_swizzle_layout make_mma_swizzle_layout If Then Else While Assert",
        "I/I: annotate_padding block_attr sblock_attr",
        "R/R: write it in the kernel language: reads writes sblock init axis",
    ),
    "Spellings of TVM's script": (
        "S/S: let LetStmt bind Bind IntImm FloatImm Add Sub Mul Div Mod FloorDiv FloorMod Min Max EQ NE "
        "LT LE GT GE And Or Not BitwiseAnd BitwiseOr BitwiseXor BitwiseNot LShift RShift BufferLoad "
        "buffer_store broadcast ramp break_loop Break continue_loop Continue boolean meta_var "
        "tvm_warp_shuffle_xor",
        "R/R: bind the value in front, x = value, and use the name: Let",
        "R/R: use T.if_then_else: where",
        "R/R: write it in the kernel language: func_name func_ret arg buffer_decl target IterVar "
        "Range Call Reduce CommReducer Return vectorlow vectorhigh vectorcombine undef masked_load "
        "masked_store vscale start_profile_intrinsic end_profile_intrinsic",
        "R/R: compute the values where the kernel is called and pass them as tensors: tvm_call_packed "
        "tvm_call_cpacked tvm_call_packed_lowered tvm_call_cpacked_lowered call_ffi_kernel lookup_param "
        "isnullptr tvm_throw_last_error tvm_stack_alloca tvm_stack_make_shape tvm_stack_make_array "
        "tvm_tuple tvm_struct_get tvm_struct_set",
        "R/R: use T.gemm: tvm_load_matrix_sync tvm_bmma_sync tvm_fill_fragment tvm_store_matrix_sync",
    ),
    "Debugging": ("S/S: print device_assert",),
}


@dataclass(frozen=True)
class Promise:
    """One line: ``levels`` as "M/S", the ``names``, and where they are refused on both the ``remedy``."""

    levels: str
    names: tuple[str, ...]
    remedy: str = ""


def promises(family: str) -> Iterator[Promise]:
    """The lines of a family."""
    for line in FAMILIES[family]:
        promise, _, names = line.rpartition(": ")
        levels, _, remedy = promise.partition(": ")
        yield Promise(levels, tuple(names.split()), remedy)


#: What stands under the names that are refused.
NAMES: dict[str, Refusal] = {
    name: Refusal(f"T.{name}", each.remedy)
    for family in FAMILIES
    for each in promises(family)
    if each.remedy
    for name in each.names
}
