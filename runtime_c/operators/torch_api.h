/* The part of torch's stable C ABI that operators need, declared here so that a build needs no torch, and
 * found in the process when the operators are loaded (torch/csrc/inductor/aoti_torch/c/shim.h there). */
#ifndef TILEC_TORCH_API_H_
#define TILEC_TORCH_API_H_
#include <stdbool.h>
#include <stdint.h>

typedef struct torch_tensor torch_tensor;
typedef struct torch_library torch_library;
/* A boxed operator: takes its arguments from the stack, which are then its own, and leaves its results there.
 * A tensor is a pointer; floats are doubles, integers 64 bits, bools a byte. */
typedef void (*torch_function)(uint64_t* stack, uint64_t num_inputs, uint64_t num_outputs);

/* X(result, name behind aoti_torch_, parameters); an int32_t result is 0 for success. */
#define TORCH_FUNCTIONS(X)                                                                             \
  X(int32_t, library_init_fragment,                                                                    \
    (const char* space, const char* file, uint32_t line, torch_library** out))                         \
  X(int32_t, library_init_impl,                                                                        \
    (const char* space, const char* key, const char* file, uint32_t line, torch_library** out))        \
  X(int32_t, library_def, (torch_library * library, const char* schema))                               \
  X(int32_t, library_impl, (torch_library * library, const char* name, torch_function function))       \
  X(int32_t, get_data_ptr, (torch_tensor * tensor, void** out))                                        \
  X(int32_t, get_dim, (torch_tensor * tensor, int64_t* out))                                           \
  X(int32_t, get_sizes, (torch_tensor * tensor, int64_t** out))                                        \
  X(int32_t, get_strides, (torch_tensor * tensor, int64_t** out))                                      \
  X(int32_t, get_dtype, (torch_tensor * tensor, int32_t* out))                                         \
  X(int32_t, get_device_type, (torch_tensor * tensor, int32_t* out))                                   \
  X(int32_t, get_device_index, (torch_tensor * tensor, int32_t* out))                                  \
  X(int32_t, empty_strided,                                                                            \
    (int64_t axes, const int64_t* extents, const int64_t* strides, int32_t dtype, int32_t device_type, \
     int32_t device_index, torch_tensor** out))                                                        \
  X(int32_t, delete_tensor_object, (torch_tensor * tensor))                                            \
  X(int32_t, device_type_cuda, (void))                                                                 \
  X(void, check, (bool holds, const char* function, const char* file, uint32_t line, const char* message))

#define TORCH_MEMBER(result, name, parameters) result(*name) parameters;
typedef struct torch_api {
  TORCH_FUNCTIONS(TORCH_MEMBER)
  int32_t (*get_current_cuda_stream)(int32_t device_index, void** out); /* NULL: a torch without CUDA */
} torch_api;

#endif
