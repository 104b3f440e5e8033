/* The environment, read once per process and ignored under setuid. */
#include "settings.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"
#include "status.h"
#include "system/system.h"

static settings current;
static system_once settings_once = SYSTEM_ONCE;
static atomic_bool settings_ready;

static const char* environment(const char* name) {
  const char* value = system_is_elevated() ? NULL : getenv(name);
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

static void settings_read(void) {
  read_log_level();
  current.cpu = environment("TILEC_CPU");
  read_threads();
  read_forced();
  atomic_store_explicit(&settings_ready, true, memory_order_release);
}

LOCAL const settings* settings_get(void) {
  if (UNLIKELY(!atomic_load_explicit(&settings_ready, memory_order_acquire)))
    system_run_once(&settings_once, settings_read);
  return &current;
}
