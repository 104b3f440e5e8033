/* What the CPU and the operating system offer: evaluates the rows of the generated detection table. */
#include "dispatch/cpu.h"

#include <string.h>

#include "system/system.h"

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t enabled_state(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27))) return 0; /* OSXSAVE */
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static bool test_holds(const cpu_test* test) {
  unsigned out[4];
  if (!__get_cpuid_count(test->leaf, test->subleaf, &out[0], &out[1], &out[2], &out[3])) return false;
  return (out[test->word] & test->mask) == test->mask;
}

#elif defined(__aarch64__)
static uint64_t enabled_state(void) { return 0; }

static bool test_holds(const cpu_test* test) { return system_has(test); }

#else
#error "no CPU detection for this architecture"
#endif

/* The permission comes last: it is for good. */
static bool feature_present(const cpu_feature* feature, uint64_t found, uint64_t state, uint64_t wanted) {
  if (feature->requires & ~found) return false;
  if (feature->xcr0 & ~state) return false;
  for (uint32_t i = 0; i < feature->num_tests; i++) {
    if (!test_holds(&feature->tests[i])) return false;
  }
  if (!feature->permission) return true;
  return (feature->bit & wanted) && system_permits(feature->permission);
}

LOCAL uint64_t cpu_detect(uint64_t wanted) {
  uint64_t found = 0, state = enabled_state();
  for (uint32_t i = 0; i < NUM_CPU_FEATURES; i++) {
    const cpu_feature* feature = &cpu_features[i];
    if (feature_present(feature, found, state, wanted)) found |= feature->bit;
  }
  return found;
}

/* The part of a target's name that begins at `text`; NULL where it is none. */
static const cpu_name* part_at(const char* text) {
  size_t length = strcspn(text, "+");
  for (const cpu_name* name = cpu_names; name->text; name++) {
    if (strlen(name->text) == length && memcmp(name->text, text, length) == 0) return name;
  }
  return NULL;
}

LOCAL uint64_t cpu_named(const char* target) {
  const cpu_name* level = part_at(target);
  if (!level || level->levels) return 0;
  uint64_t all = level->needs;
  for (const char* rest = strchr(target, '+'); rest; rest = strchr(rest + 1, '+')) {
    const cpu_name* feature = part_at(rest + 1);
    if (!feature || !(feature->levels & level->bit)) return 0;
    all |= feature->needs;
  }
  return all;
}
