/* What a library is made of, as constant data: the generated tables are arrays of these records. */
#ifndef TILEC_RECORDS_H_
#define TILEC_RECORDS_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"

enum {
  CPU_ALIGN = 64,  /* workspace, slices, scratch */
  PARAM_ALIGN = 16 /* at least tensor_align of every family, and tilec_param.align_bytes of every parameter */
};

/* One parameter of a call: a tensor's first element, or a scalar widened to 64 bits. */
typedef union tilec_value {
  void* ptr;
  int64_t i;
  double f;
} tilec_value;

/* What a launch reads; the same for all of its blocks. */
typedef struct call_frame {
  const tilec_value* params; /* kernel order */
  const int64_t* dims;
  void* const* slices;
} call_frame;

typedef void (*entry_fn)(void); /* the real signature is known to invoke_fn alone */
typedef void (*invoke_fn)(entry_fn, const call_frame*, void* scratch, int64_t begin, int64_t end);

/* Evaluates generated integer texts into out; false if one overflows or divides by zero. */
typedef bool (*texts_fn)(const tilec_value* params, const int64_t* dims, int64_t* out);

/* Microseconds that several variants are expected to take, each with the number of its variant in the last
 * bits (costs.h), in any order and some more than once: at most COSTS_OUT. The least of them is returned.
 * `share`: what one multiprocessor, or worker, is of the device; `bits`: what the processor has. */
typedef float (*costs_fn)(const int64_t* dims, float share, uint64_t bits, float* out);

/* A variant as dispatch tries it, without a look at its record. Its guards are all of the variant's; in a
 * bucket none where it demands no more than the pinned values that led to it. */
typedef struct candidate {
  uint32_t variant;     /* index into kernel_record.variants */
  uint32_t first_guard; /* index into kernel_record.guards */
  uint16_t num_guards;
  uint16_t last; /* of its bucket, or of its list of rivals */
} candidate;

typedef struct variant_record {
  tilec_variant info;
  const entry_fn* entries; /* one per launch, where its family has entries */
  invoke_fn invoke;        /* of the entries */
  void* code;              /* what its family launches it by, where it has none */
  texts_fn grids;          /* three extents per launch */
  texts_fn slice_bytes;    /* of dims alone; NULL without slices */
  uint64_t scratch_bytes;  /* per worker, the largest of its launches */
  uint32_t arch;           /* index into library_record.archs */
  uint32_t num_slices;
  texts_fn fits;           /* whether the code's indices hold what these dims make; NULL: always */
  const char* needs;       /* the condition that `fits` evaluates */
  bool takes_num_sms;      /* its code and texts take one value behind the dims: launch_dims */
  const costs_fn* costs;   /* of the schedules of its list with the same guards, the same function for each
                              level of processors; NULL: no other schedule serves any of its calls */
  uint32_t choice;         /* which of these it is */
  const candidate* rivals; /* behind it, schedules of its list whose other guards may hold, too, the first
                              of those with the same ones for all; NULL: there are none */
  uint64_t starts;         /* bit i: some of these demand that parameter i is aligned, which it does not */
} variant_record;

/* Variants of one architecture that pin the same dims. A perfect hash (hash and displace) of the pinned
 * values gives the bucket of variants that share them; without pins there is one bucket. */
typedef struct pin_set {
  const uint8_t* pins;           /* dim indices */
  const uint16_t* displacements; /* 1 << displacement_bits entries */
  const uint16_t* slots;         /* 1 << slot_bits buckets: their first candidates */
  const uint64_t* hashes;        /* of the pinned values, per candidate, and one for empty slots */
  const int64_t* keys;           /* the pinned values, per candidate; those of an empty slot match no dims */
  const candidate* candidates;   /* bucket by bucket, in dispatch order */
  uint32_t num_pins;
  uint8_t displacement_bits, slot_bits;
} pin_set;

typedef struct arch_table {
  const pin_set* sets;
  uint32_t num_sets;
} arch_table; /* most pins first */

typedef struct param_record {
  const tilec_param* info;
  uint32_t first_extent; /* into what kernel_record.extents writes */
  uint32_t first_stride; /* meaningful where info->strides is set */
  bool begins_anywhere;  /* on devices, too; else at multiples of device_family.tensor_align */
} param_record;

/* How a dim is read from the arguments: (value - add) * div / mul of an extent, a stride or a scalar. */
enum { BIND_SHAPE, BIND_STRIDE, BIND_SCALAR, BIND_CONSTANT, BIND_NONE };
typedef struct dim_record {
  int64_t limit;         /* largest value that the kernel's index arithmetic holds */
  int64_t add, mul, div; /* BIND_CONSTANT: add is the value */
  uint32_t bind, param, axis;
  uint32_t reserved0;
} dim_record;

typedef struct kernel_record {
  tilec_kernel info;
  const variant_record* variants; /* dispatch order */
  const param_record* params;
  const dim_record* dims;
  const arch_table* tables;  /* one per architecture of the library */
  const tilec_guard* guards; /* of all variants */
  texts_fn extents;
  uint64_t tensors;     /* bit i: parameter i is a tensor; a warm call need not look at the parameters */
  uint64_t dim_limit;   /* the smallest of all dims' limits: a warm call need not look at the dims either */
  uint64_t overlapping; /* bit i: parameter i may share memory with the others that have a bit here */
} kernel_record;

typedef struct arch_record {
  const char* name;
  uint64_t needs;       /* feature bits of a CPU */
  uint32_t device_type; /* of its family */
  uint32_t facts[4];    /* what its family asks of a device, in its own terms */
} arch_record;

typedef struct library_record {
  tilec_library info;
  const kernel_record* kernels; /* sorted by name */
  const arch_record* archs;     /* best first */
  uint32_t num_archs;
} library_record;

/* Defined by the generated tables. */
LINKED_DATA const library_record this_library;

#endif
