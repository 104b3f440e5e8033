/* How many CPUs this process may use at once. */
#ifndef TILEC_CPUS_H_
#define TILEC_CPUS_H_
#include <stdbool.h>
#include <stdint.h>

#include "compiler.h"

/* By its binding and the time that its control groups grant; at least 1, at most MAX_WORKERS. */
LOCAL uint32_t cpus_of_process(void);

/* What the control groups of the file `groups` grant, which lie below the folder `root`; MAX_WORKERS where
 * nothing limits them. */
LOCAL uint32_t quota_cpus(const char* groups, const char* root);

#endif
