/* The driver of a family of devices: a library of the system, opened at the first call that needs it. */
#ifndef TILEC_DRIVER_H_
#define TILEC_DRIVER_H_
#include <stdatomic.h>
#include <stdbool.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "system/system.h"

typedef struct device_driver {
  const char* label; /* in messages: "HIP" */
  system_once once;
  system_mutex mutex;  /* around everything that is made once */
  atomic_bool started; /* it may hold threads and locks of this process */
  atomic_bool ready;
  bool forked; /* since it was started: this is a child */
  tilec_status status;
  char reason[256];
} device_driver;
#define DEVICE_DRIVER(name) {.label = (name), .once = SYSTEM_ONCE, .mutex = SYSTEM_MUTEX}

/* TILEC_OK once `work`, which calls driver_make_ready, has run in some thread and refused nothing; else what
 * it refused, or TILEC_ERR_DEVICE in a child that was forked after the driver was started. */
LOCAL tilec_status driver_open(device_driver* driver, void (*work)(void));
/* Runs `open_library` and notes whether it left the driver as it may be used. Once, from driver_open's
 * `work`. */
LOCAL void driver_make_ready(device_driver* driver, void (*open_library)(void));
/* Keeps why the driver cannot be used; of several refusals the last one counts. */
LOCAL void driver_refuse(device_driver* driver, tilec_status status, const char* format, ...)
    PRINTF_LIKE(3, 4);
/* In the child: whether driver_open refuses there from now on. What is known of devices is to be asked for
 * again then, so that all that needs one comes to driver_open. */
LOCAL bool driver_after_fork(device_driver* driver);

#endif
