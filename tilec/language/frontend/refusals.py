"""Names of the tile language that exist but are not offered yet: calling one is an error that names it."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.language.values.refusal import Refusal

#: Remedy -> names without the ``T.`` prefix.
_REFUSED: dict[str, str] = {
    "take the index from T.get_thread_binding": "launch_thread env_thread",
    "leave it out: statements of a block see each other's effects in order": ("sync_global"),
    "bind the value in front, x = value, and use the name": "Let",
    "use T.alloc_barrier": "create_list_of_mbarrier get_mbarrier",
    "use T.copy": (
        "tma_gather4 tma_scatter4 "
        "tma_gather4_bytes tma_load_2sm tma_load create_tma_descriptor ptx_cp_async_bulk"
    ),
    "index the buffer itself": ("alloc_descriptor alloc_wgmma_desc alloc_tmem deallocate_tmem"),
    "use T.gemm": (
        "gemm_blockscaled mma_gemm_blockscaled "
        "tcgen05_gemm tcgen05_gemm_blockscaled tcgen05_mma_arrive tcgen05_cp_warpx4 "
        "tcgen05_sf_warp_transpose tcgen05_before_thread_sync tcgen05_after_thread_sync "
        "make_blockscaled_gemm_layout ptx_mma_sp tvm_mma_sync "
        "tvm_load_matrix_sync tvm_bmma_sync tvm_fill_fragment tvm_store_matrix_sync"
    ),
    "write the expression with ordinary operators": (
        "q_multiply_shift q_multiply_shift_per_axis call_llvm_intrin call_llvm_pure_intrin"
    ),
    "compute the values where the kernel is called and pass them as tensors": (
        "call_packed call_packed_lowered call_cpacked call_cpacked_lowered tvm_call_packed "
        "tvm_call_cpacked tvm_call_packed_lowered tvm_call_cpacked_lowered call_ffi_kernel lookup_param "
        "isnullptr tvm_throw_last_error tvm_stack_alloca tvm_stack_make_shape tvm_stack_make_array "
        "tvm_tuple tvm_struct_get tvm_struct_set anylist_getitem anylist_resetitem "
        "anylist_setitem_call_packed anylist_setitem_call_cpacked TVMBackendAllocWorkspace "
        "TVMBackendFreeWorkspace"
    ),
    "write it in the kernel language": (
        ""
        "CUDASourceCodeKernel "
        "clc_try_cancel clc_try_cancel_multicast clc_is_canceled clc_get_first_ctaid_x "
        "reads writes sblock init axis func_name func_ret arg buffer_decl target where IterVar Range "
        "Call Reduce CommReducer Return vectorlow vectorhigh vectorcombine undef masked_load "
        "masked_store vscale start_profile_intrinsic end_profile_intrinsic"
    ),
}


def _rows() -> Iterator[tuple[str, Refusal]]:
    for remedy, names in _REFUSED.items():
        for name in names.split():
            yield name, Refusal(f"T.{name}", remedy)


NAMES: dict[str, Refusal] = dict(_rows())
