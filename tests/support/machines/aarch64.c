/* Reads a call from standard input as aarch64.py writes it: the kernel's number, how many arrays and their bytes, how
 * many dims and their values, blocks; then the arrays, the last of which it writes to standard output. */
#include <stddef.h>
#include <stdint.h>

#include "table.h"

enum { READ = 63, WRITE = 64, EXIT = 93, MOST = 8, ROOM = 32 << 20, SCRATCH = 8 << 20 };
static char room[ROOM] __attribute__((aligned(64))), scratch[SCRATCH] __attribute__((aligned(64)));

void* memcpy(void* to, const void* from, size_t count) {
  for (size_t i = 0; i < count; i++) ((char*)to)[i] = ((const char*)from)[i];
  return to;
}

void* memset(void* to, int value, size_t count) {
  for (size_t i = 0; i < count; i++) ((char*)to)[i] = (char)value;
  return to;
}

static long ask(long number, long first, long second, long third) {
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = first;
  register long x1 __asm__("x1") = second, x2 __asm__("x2") = third;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}

static void move(long number, int file, char* data, long count) {
  for (long done = 0, now; done < count; done += now)
    if ((now = ask(number, file, (long)(data + done), count - done)) <= 0) ask(EXIT, 1, 0, 0);
}

static int64_t next(void) {
  int64_t value;
  move(READ, 0, (char*)&value, sizeof(value));
  return value;
}

/* Pointers and dims are eight bytes each, in one row: registers first, then the stack. */
typedef void (*entry)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                      int64_t);

void _start(void) {
  int64_t kernel = next(), arrays = next(), bytes[MOST], values[2 * MOST] = {0};
  for (int64_t i = 0; i < arrays; i++) bytes[i] = next();
  int64_t dims = next(), count = arrays, used = 0;
  while (count < arrays + dims) values[count++] = next();
  values[count++] = (int64_t)scratch;
  values[count++] = 0;
  values[count++] = next();
  for (int64_t i = 0; i < arrays; i++) {
    values[i] = (int64_t)(room + used);
    move(READ, 0, room + used, bytes[i]);
    used += (bytes[i] + 127) / 64 * 64;
  }
  int64_t* v = values;
  ((entry)kernels[kernel])(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11]);
  move(WRITE, 1, (char*)values[arrays - 1], bytes[arrays - 1]);
  ask(EXIT, 0, 0, 0);
}
