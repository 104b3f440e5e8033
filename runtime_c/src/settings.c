/* The environment, read once per process and ignored under setuid, and which architectures it leaves usable.
 */
#include "internal.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

static settings current;
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static atomic_bool settings_ready;

static const char* environment(const char* name) {
  const char* value = getauxval(AT_SECURE) ? NULL : getenv(name);
  return value && *value ? value : NULL;
}

static void print_log(void* user, int level, const char* message) {
  static const char* const names[] = {"error", "warn", "info", "debug"};
  if (level <= (int)(intptr_t)user)
    fprintf(stderr, "tilec %s: %s: %s\n", this_library.info.name, names[level], message);
}

static void read_log_level(void) {
  static const char* const names[] = {"error", "warn", "info", "debug"};
  const char* text = environment("TILEC_LOG");
  for (int level = 0; text && level < 4; level++) {
    if (strcmp(text, names[level]) == 0) set_log(print_log, (void*)(intptr_t)level);
  }
}

static void read_threads(void) {
  const char* text = environment("TILEC_NUM_THREADS");
  if (!text) return;
  char* end;
  long count = strtol(text, &end, 10);
  if (*end == '\0' && count >= 1 && count <= MAX_WORKERS)
    current.num_threads = (uint32_t)count;
  else
    log_line(TILEC_LOG_WARN, "TILEC_NUM_THREADS=%s is ignored: it must be 1 to %d", text, MAX_WORKERS);
}

static bool has_variant(uint32_t id) {
  for (uint32_t k = 0; k < this_library.info.num_kernels; k++) {
    const kernel_record* kernel = &this_library.kernels[k];
    for (uint32_t v = 0; v < kernel->info.num_variants; v++) {
      if (kernel->variants[v].info.id == id) return true;
    }
  }
  return false;
}

static void force(unsigned long id) {
  if (id > UINT32_MAX || !has_variant((uint32_t)id))
    log_line(TILEC_LOG_WARN, "TILEC_FORCE_VARIANT: this library has no variant %lu", id);
  else
    current.forced[current.num_forced++] = (uint32_t)id;
}

static void read_forced(void) {
  const char* text = environment("TILEC_FORCE_VARIANT");
  while (text && isdigit((unsigned char)*text) && current.num_forced < MAX_FORCED) {
    char* end;
    force(strtoul(text, &end, 10));
    text = *end == ',' ? end + 1 : end;
  }
  if (text && *text)
    log_line(TILEC_LOG_WARN, "TILEC_FORCE_VARIANT: ignored from %s on; write ids with commas", text);
}

/* The features that TILEC_CPU leaves of those the machine has; the reason says why it leaves none. */
static uint64_t limited_features(uint64_t machine) {
  if (!current.cpu) return machine;
  for (uint32_t i = 0; i < this_library.num_archs; i++) {
    const arch_record* arch = &this_library.archs[i];
    if (arch->device_type != kDLCPU || strcmp(arch->name, current.cpu) != 0) continue;
    if ((arch->needs & ~machine) == 0) return arch->needs;
    snprintf(current.cpu_archs.reason, sizeof(current.cpu_archs.reason),
             "this CPU lacks what TILEC_CPU=%s needs", current.cpu);
    return 0;
  }
  size_t used = 0, size = sizeof(current.cpu_archs.reason);
  text_append(current.cpu_archs.reason, size, &used,
              "TILEC_CPU=%s names no architecture of this library:", current.cpu);
  for (uint32_t i = 0; i < this_library.num_archs; i++) {
    if (this_library.archs[i].device_type == kDLCPU)
      text_append(current.cpu_archs.reason, size, &used, " %s", this_library.archs[i].name);
  }
  return 0;
}

static bool has_cpu_code(void) {
  for (uint32_t i = 0; i < this_library.num_archs; i++) {
    if (this_library.archs[i].device_type == kDLCPU) return true;
  }
  return false;
}

static void find_usable(void) {
  arch_list* list = &current.cpu_archs;
  list->device_type = kDLCPU;
  snprintf(list->reason, sizeof(list->reason), "%s",
           has_cpu_code() ? "every architecture in the library needs features that this CPU lacks"
                          : "the library has no code for CPUs, and the tensors are in host memory");
  uint64_t features = limited_features(cpu_detect());
  for (uint32_t i = 0; i < this_library.num_archs; i++) {
    const arch_record* arch = &this_library.archs[i];
    if (arch->device_type == kDLCPU && !(arch->needs & ~features)) list->archs[list->count++] = (uint8_t)i;
  }
  if (list->count == 0) list->status = TILEC_ERR_NO_ARCH;
  list->forced = current.num_forced > 0;
}

static void settings_read(void) {
  read_log_level();
  current.cpu = environment("TILEC_CPU");
  read_threads();
  read_forced();
  find_usable();
  threads_once();
  atomic_store_explicit(&settings_ready, true, memory_order_release);
}

LOCAL const settings* settings_get(void) {
  if (UNLIKELY(!atomic_load_explicit(&settings_ready, memory_order_acquire)))
    pthread_once(&settings_once, settings_read);
  return &current;
}
