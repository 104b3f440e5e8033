/* What the environment says. */
#ifndef TILEC_SETTINGS_H_
#define TILEC_SETTINGS_H_
#include "compiler.h"

#include <stdint.h>

enum { MAX_FORCED = 64 };
typedef struct settings {
  const char* cpu;      /* TILEC_CPU: the architecture to act as, NULL = the machine's own */
  uint32_t num_threads; /* TILEC_NUM_THREADS; 0 = every CPU this process may use */
  uint32_t num_forced;
  uint32_t forced[MAX_FORCED]; /* TILEC_FORCE_VARIANT: variant ids */
} settings;
LOCAL const settings* settings_get(void); /* reads the environment once */

#endif
