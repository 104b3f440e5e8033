/* Statuses, the last error of each thread, and the log. */
#ifndef TILEC_STATUS_H_
#define TILEC_STATUS_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tilec/tilec.h>

#include "compiler.h"
#include "records.h"

LOCAL tilec_status fail(tilec_status status, const char* format, ...) PRINTF_LIKE(2, 3) __attribute__((cold));
LOCAL tilec_status fail_no_variant(const kernel_record* kernel, const int64_t* dims, const char* what);
LOCAL void text_append(char* out, size_t size, size_t* used, const char* format, ...) PRINTF_LIKE(4, 5);
LOCAL void log_line(int level, const char* format, ...) PRINTF_LIKE(2, 3);
LOCAL bool log_enabled(void);
LOCAL void set_log(tilec_log_fn log, void* user);

#endif
