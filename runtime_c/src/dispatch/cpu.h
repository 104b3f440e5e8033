/* The form of the detection table, which the build writes from tilec/targets.py for the library's
 * architecture. */
#ifndef TILEC_CPU_H_
#define TILEC_CPU_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler.h"

/* x86-64: the bits `mask` of register `word` (eax, ebx, ecx, edx) after CPUID. aarch64: on Linux of AT_HWCAP
 * (word 1) or AT_HWCAP2 (word 2); on Windows `word` is what IsProcessorFeaturePresent takes, on macOS `name`
 * what sysctlbyname does. */
typedef struct cpu_test {
  uint32_t leaf, subleaf, word, mask;
  const char* name;
} cpu_test;

/* `bit` is present when all tests hold, the features in `requires` are present, and the operating system
 * saves the register state in `xcr0` and grants this process the use of its component `permission`, where
 * that is not 0. */
typedef struct cpu_feature {
  uint64_t bit,
    requires,
  xcr0;
  uint32_t permission;
  const cpu_test* tests;
  uint32_t num_tests;
} cpu_feature;

/* A part of a target's name, "x86-64-v4" or "vnni", and the features that it stands for. */
typedef struct cpu_name {
  const char* text; /* NULL: the end of cpu_names, a table beside the one of features */
  uint64_t bit, needs;
  uint64_t levels; /* that it may follow; none of a level, which a name begins with */
} cpu_name;

/* The features that a machine of this target has; 0 where it is the name of none. */
LOCAL uint64_t cpu_named(const char* target);

/* The features that hold, of the table that is written before runtime.c: cpu_features[NUM_CPU_FEATURES].
 * Permission makes the frames of signals larger: it is asked for a feature that is `wanted` alone. */
LOCAL uint64_t cpu_detect(uint64_t wanted);

#endif
