/* Counts what warm calls of every class do, select and typed door: "allocations locks files system-calls". */
#include "interpose.h"

#include "calls.h"

static const char* path;

static int call_all(void) {
  int right = 1;
  for (int which = 0; which < CLASSES; which++)
    for (int way = 0; way < WAYS; way++)
      for (int i = 0; i < SHAPES; i++) right &= call(way, which, i);
  return right;
}

static int load_and_call(void) {
  load(path);
  return call_all();
}

int main(int argc, char** argv) {
  path = argc == 2 ? argv[1] : "";
  return report_warm(load_and_call, call_all);
}
