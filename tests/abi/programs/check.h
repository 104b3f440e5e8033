/* What a failed condition of a test program says; it ends the function that it stands in. */
#pragma once
#include <sample.h>
#include <stdio.h>

#define CHECK(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      printf("line %d: %s; last error: %s\n", __LINE__, #condition, sample_last_error()); \
      return 1;                                                                           \
    }                                                                                     \
  } while (0)
