/* Statuses, the last error of each thread, and the log. */
#include "status.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "doors.h"
#include "keep.h"

enum { MESSAGE_SIZE = 1024 };

/* A failing thread owns one of these on the heap. A call that no variant serves is an answer that engines ask
 * for: it is kept as numbers and becomes text when it is read. */
typedef struct error_state {
  const kernel_record* missed; /* NULL: message is written */
  const char* what;
  int64_t dims[MAX_DIMS];
  char message[MESSAGE_SIZE];
} error_state;

static struct {
  _Atomic(tilec_log_fn) log;
  _Atomic(void*) user;
} log_sink;

/* NULL if there is no memory for it. */
static error_state* error_begin(void) {
  mine.failed = true;
  if (mine.error) return mine.error;
  mine.error = malloc(sizeof(error_state));
  if (mine.error) thread_keep();
  return mine.error;
}

LOCAL tilec_status fail(tilec_status status, const char* format, ...) {
  error_state* error = error_begin();
  if (!error) return status;
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, MESSAGE_SIZE, format, args);
  va_end(args);
  error->missed = NULL;
  log_line(TILEC_LOG_ERROR, "%s: %s", tilec_status_name(status), error->message);
  return status;
}

LOCAL tilec_status fail_no_variant(const kernel_record* kernel, const int64_t* dims, const char* what) {
  error_state* error = error_begin();
  if (!error) return TILEC_ERR_NO_VARIANT;
  error->missed = kernel;
  error->what = what;
  for (uint32_t i = 0; i < kernel->info.num_dims; i++) error->dims[i] = dims[i];
  if (log_enabled())
    log_line(TILEC_LOG_ERROR, "%s: %s", tilec_status_name(TILEC_ERR_NO_VARIANT), tilec_last_error());
  return TILEC_ERR_NO_VARIANT;
}

static void describe_missed(error_state* error) {
  const tilec_kernel* kernel = &error->missed->info;
  size_t used = 0;
  text_append(error->message, MESSAGE_SIZE, &used, "%s: %s admits", kernel->name, error->what);
  for (uint32_t i = 0; i < kernel->num_dims; i++) {
    text_append(error->message, MESSAGE_SIZE, &used, "%s %s = %lld", i ? "," : "", kernel->dim_names[i],
                (long long)error->dims[i]);
  }
  text_append(error->message, MESSAGE_SIZE, &used, "; explain() gives the reasons");
  error->missed = NULL;
}

LINKED const char* tilec_last_error(void) {
  if (!mine.failed) return "";
  if (!mine.error) return "out of memory while describing an error";
  if (mine.error->missed) describe_missed(mine.error);
  return mine.error->message;
}

LOCAL void text_append(char* out, size_t size, size_t* used, const char* format, ...) {
  va_list args;
  va_start(args, format);
  size_t left = *used < size ? size - *used : 0;
  int length = vsnprintf(left ? out + *used : NULL, left, format, args);
  va_end(args);
  if (length > 0) *used += (size_t)length;
}

LINKED const char* tilec_status_name(tilec_status status) {
#define NAME(value) \
  case value: return #value
  switch (status) {
    NAME(TILEC_OK);
    NAME(TILEC_ERR_ARGUMENT);
    NAME(TILEC_ERR_DTYPE);
    NAME(TILEC_ERR_SHAPE);
    NAME(TILEC_ERR_LAYOUT);
    NAME(TILEC_ERR_DEVICE);
    NAME(TILEC_ERR_ABI);
    NAME(TILEC_ERR_WORKSPACE);
    NAME(TILEC_ERR_NO_ARCH);
    NAME(TILEC_ERR_NO_VARIANT);
    NAME(TILEC_ERR_NO_DRIVER);
    NAME(TILEC_ERR_DRIVER_TOO_OLD);
    NAME(TILEC_ERR_DRIVER);
    NAME(TILEC_ERR_NOT_PRELOADED);
    NAME(TILEC_ERR_PARTIAL);
    NAME(TILEC_ERR_ASSERT);
    NAME(TILEC_ERR_INTERNAL);
    default: return "unknown tilec_status";
  }
#undef NAME
}

LOCAL bool log_enabled(void) { return atomic_load_explicit(&log_sink.log, memory_order_acquire) != NULL; }

LOCAL void log_line(int level, const char* format, ...) {
  tilec_log_fn log = atomic_load_explicit(&log_sink.log, memory_order_acquire);
  if (!log) return;
  char line[MESSAGE_SIZE];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof(line), format, args);
  va_end(args);
  log(atomic_load_explicit(&log_sink.user, memory_order_relaxed), level, line);
}

LOCAL void set_log(tilec_log_fn log, void* user) {
  atomic_store_explicit(&log_sink.log, NULL, memory_order_release);
  atomic_store_explicit(&log_sink.user, user, memory_order_relaxed);
  atomic_store_explicit(&log_sink.log, log, memory_order_release);
}
