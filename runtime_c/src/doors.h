/* What the generated tables have of the runtime: the functions behind their doors. */
#ifndef TILEC_DOORS_H_
#define TILEC_DOORS_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "records.h"

/* ---- status.c ---- */
LINKED const char* tilec_last_error(void);
LINKED const char* tilec_status_name(tilec_status status);

/* ---- call.c: the typed door ---- */
LINKED tilec_status tilec_call_kernel(const kernel_record* kernel, const tilec_exec* exec,
                                      const tilec_value* params, const int64_t* dims);
LINKED tilec_status tilec_call_workspace(const kernel_record* kernel, const tilec_variant* variant,
                                         const tilec_exec* exec, const int64_t* dims, size_t* out);

/* ---- tvm_ffi.c ---- */
/* Bit i of `outputs`: parameter i may be left out. `workspace`: some variant has slices. 0, or -1 with an
 * error raised in tvm-ffi, if one is in the process. */
LINKED int tilec_call_tvm_ffi(const kernel_record* kernel, uint64_t outputs, bool workspace,
                              const tilec_arg* args, int32_t num_args, tilec_arg* result);

/* ---- library.c: fields of tilec_library, and what tells builds apart ---- */
LINKED const tilec_kernel* tilec_library_find(const char* name);
LINKED tilec_status tilec_library_preload(const tilec_kernel* kernel, DLDevice device);
LINKED tilec_status tilec_library_select(const tilec_kernel* kernel, DLDevice device, const int64_t* dims,
                                         const uint32_t* min_align, const tilec_variant** out);
LINKED size_t tilec_library_explain(const tilec_kernel* kernel, DLDevice device, const int64_t* dims,
                                    const uint32_t* min_align, char* out, size_t size);
LINKED tilec_status tilec_library_workspace_size(const tilec_kernel* kernel, const tilec_variant* variant,
                                                 const tilec_exec* exec, const int64_t* dims, size_t* out);
LINKED tilec_status tilec_library_launch(const tilec_kernel* kernel, const tilec_exec* exec,
                                         const tilec_arg* args, size_t num_args);
LINKED void tilec_library_set_log(tilec_log_fn log, void* user);
LINKED tilec_status tilec_check_build(const char* build_id);

#endif
