/* Statuses, the last error of each thread, and the log. */
#include "internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { MESSAGE_SIZE = 1024 };

/* A failing thread owns one heap buffer, so that a library takes one pointer of static TLS and not a
 * kilobyte. */
static _Thread_local char* thread_message;
static _Thread_local bool thread_failed;
static pthread_key_t message_key;
static pthread_once_t message_once = PTHREAD_ONCE_INIT;
static bool message_key_made;

static struct {
  _Atomic(tilec_log_fn) log;
  _Atomic(void*) user;
} log_sink;

static void make_message_key(void) { message_key_made = pthread_key_create(&message_key, free) == 0; }

static char* message_buffer(void) {
  if (thread_message) return thread_message;
  pthread_once(&message_once, make_message_key);
  char* buffer = message_key_made ? malloc(MESSAGE_SIZE) : NULL;
  if (!buffer) return NULL;
  if (pthread_setspecific(message_key, buffer) != 0) {
    free(buffer);
    return NULL;
  }
  return thread_message = buffer;
}

LOCAL tilec_status fail(tilec_status status, const char* format, ...) {
  char* message = message_buffer();
  thread_failed = true;
  if (!message) return status;
  va_list args;
  va_start(args, format);
  vsnprintf(message, MESSAGE_SIZE, format, args);
  va_end(args);
  log_line(TILEC_LOG_ERROR, "%s: %s", status_name(status), message);
  return status;
}

LOCAL const char* last_error(void) {
  if (!thread_failed) return "";
  return thread_message ? thread_message : "out of memory while describing an error";
}

LOCAL const char* status_name(tilec_status status) {
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
