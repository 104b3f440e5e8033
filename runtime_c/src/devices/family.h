/* Families of devices, and what of a library one device may run. */
#ifndef TILEC_FAMILY_H_
#define TILEC_FAMILY_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "records.h"

/* The architectures of the library that one device may run, best first; why none may, if so. */
typedef struct arch_list {
  uint32_t device_type;
  uint32_t count;
  tilec_status status;
  bool forced; /* TILEC_FORCE_VARIANT names variants */
  uint8_t archs[256];
  char reason[256];
} arch_list;

/* What the runtime does differently on the devices of one family. host.c has the one of CPUs; the file
 * that includes runtime.c lists the others that the library has code for in DEVICE_FAMILIES, as X(cuda), and
 * brings what defines <name>_family. */
typedef struct device_family {
  const char *title, *word; /* "CUDA"; what messages call a device: "GPU" */
  uint32_t device_type;     /* of DLPack */
  bool host;                /* blocks run on threads of this process: the pool's or the caller's */
  /* Tensors are given by DLTensors, whose data are the driver's objects and byte_offset counts in them; so
   * is a workspace such an object, and places in it are offsets. */
  bool handles;
  uint32_t memory_align; /* of workspaces and slices */
  uint32_t tensor_align; /* of tensors' first elements; 0: that of their type */
  tilec_status (*archs)(int32_t device, const arch_list** out);
  int64_t (*units)(const tilec_exec* exec); /* multiprocessors, once `archs` has answered; workers */
  tilec_status (*preload)(const kernel_record* only, int32_t device); /* NULL = every kernel */
  tilec_status (*run)(const kernel_record* kernel, const variant_record* variant, const arch_list* archs,
                      const tilec_exec* exec, const tilec_value* params, const int64_t* dims);
  void (*after_fork)(void); /* in the child; NULL where nothing is to do */
} device_family;
static const device_family cpu_family;
#define X(name) static const device_family name##_family;
DEVICE_FAMILIES
#undef X

INLINE const device_family* family_of(DLDevice device); /* that of CPUs for devices that no family has */
/* Where a tensor begins: its address, or how far into an object of the driver's. */
INLINE uintptr_t tensor_begin(DLDevice device, const void* tensor);
LOCAL const char* device_word(uint32_t device_type);
LOCAL void text_archs(char* out, size_t size, size_t* used, uint32_t device_type); /* "sm_80, sm_90a" */
LOCAL tilec_status check_archs(const char* name, const arch_list* archs); /* fails if the device runs none */
LOCAL bool arch_usable(const arch_list* archs, uint32_t arch);

#endif
