/* The driver of a family of devices: a library of the system, opened at the first call that needs it, and
 * what is known of its devices. */
#ifndef TILEC_DRIVER_H_
#define TILEC_DRIVER_H_
#include <stdatomic.h>
#include <stdbool.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "devices/family.h"
#include "system/system.h"

typedef struct device_driver {
  const char* label; /* in messages: "HIP" */
  system_once once;
  system_mutex mutex;  /* around everything that is made once */
  atomic_bool started; /* it may hold threads and locks of this process */
  atomic_bool ready;
  bool forked;     /* since it was started: this is a child */
  int num_devices; /* once it is ready */
  tilec_status status;
  char reason[256];
} device_driver;
#define DEVICE_DRIVER(name) {.label = (name), .once = SYSTEM_ONCE, .mutex = SYSTEM_MUTEX}

/* One device: what the record that a family has of one begins with. */
typedef struct driver_device {
  _Alignas(64) _Atomic bool known; /* and of use: never so in a child that cannot use the driver */
  int number;
  arch_list archs;
} driver_device;

/* The devices that a driver has. */
typedef struct device_table {
  device_driver* driver;
  void (*open)(void); /* calls driver_make_ready */
  const char* noun;   /* in messages: "AMD GPU" */
  char* records;      /* one for each device there is room for, all zero but for what `read` left */
  size_t record_size;
  int room;
  /* Fills the record of device->number, once, under the driver's mutex. */
  tilec_status (*read)(driver_device* device);
} device_table;
#define DEVICE_RECORDS(array) \
  .records = (char*)(array), .record_size = sizeof(*(array)), .room = sizeof(array) / sizeof(*(array))

/* The record of a device, read when it is asked for first. TILEC_ERR_DEVICE where there is no such device,
 * and in a child that was forked after the driver was started; else what opening the driver refused, or
 * `read`. */
INLINE tilec_status driver_find(const device_table* table, int32_t number, driver_device** out);
INLINE tilec_status driver_archs(const device_table* table, int32_t number, const arch_list** out);
INLINE driver_device* driver_device_of(const arch_list* archs); /* whose list it is: one of driver_archs */
/* Runs `open_library` and notes whether it left the driver as it may be used. Once, from a table's `open`. */
LOCAL void driver_make_ready(device_driver* driver, void (*open_library)(void));
/* Keeps why the driver cannot be used; of several refusals the last one counts. */
LOCAL void driver_refuse(device_driver* driver, tilec_status status, const char* format, ...)
    PRINTF_LIKE(3, 4);
/* The list of architectures of a device that is read: none of this type of DLPack's yet. */
LOCAL arch_list* driver_begin_archs(driver_device* device, uint32_t device_type);
/* The library has no code for the device, of which the format says what it is: ", a gfx942". */
LOCAL void driver_no_code(driver_device* device, const char* format, ...) PRINTF_LIKE(2, 3);
/* In the child: forgets what is known of devices if the driver was started, so that all that needs one is
 * refused. */
LOCAL void driver_after_fork(const device_table* table);

#endif
