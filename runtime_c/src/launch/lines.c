/* What kernels of debug builds call on the CPU: lines for people, and checks that fail. Of two archives in
 * one program one definition serves both, hence weak; a library leaves out what its kernels do not call. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler.h"
#include "keep.h"
#include "status.h"

enum { LINE_SIZE = 1024 };

/* The line that this thread is writing, on the heap like the last error. */
typedef struct line_state {
  size_t used;
  char text[LINE_SIZE];
} line_state;

static line_state* line_begin(void) {
  if (mine.line) return mine.line;
  mine.line = calloc(1, sizeof(line_state));
  if (mine.line) thread_keep();
  return mine.line;
}

#define LINE_PART(name, type, format)                                                 \
  KERNELS_CALL int32_t name(type part);                                               \
  KERNELS_CALL int32_t name(type part) {                                              \
    line_state* line = line_begin();                                                  \
    if (line) text_append(line->text, sizeof(line->text), &line->used, format, part); \
    return 0;                                                                         \
  }

LINE_PART(tilec_line_text, const char*, "%s")
LINE_PART(tilec_line_int64, int64_t, "%" PRId64)
LINE_PART(tilec_line_uint64, uint64_t, "%" PRIu64)
LINE_PART(tilec_line_float64, double, "%g")

/* To the library's log if it has one, else to stderr. */
KERNELS_CALL int32_t tilec_line_end(void);
KERNELS_CALL int32_t tilec_line_end(void) {
  line_state* line = line_begin();
  if (!line) return 0;
  if (log_enabled())
    log_line(TILEC_LOG_INFO, "%s", line->text);
  else
    fprintf(stderr, "%s\n", line->text);
  line->used = 0;
  line->text[0] = '\0';
  return 0;
}

/* The first check of a call that fails makes it fail; blocks run to their ends. */
KERNELS_CALL int32_t tilec_check_failed(const char* text);
KERNELS_CALL int32_t tilec_check_failed(const char* text) {
  const char* none = NULL;
  if (!mine.check) { /* a kernel of another archive */
    fprintf(stderr, "%s\n", text);
    abort();
  }
  atomic_compare_exchange_strong(mine.check, &none, text);
  return 0;
}
