/* How many CPUs the control groups of a file grant below a folder: quota GROUPS ROOT. */
#define _GNU_SOURCE
#define MAX_WORKERS 1024
#include "system/system_cpus.c"

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  printf("%u\n", (unsigned)quota_cpus(argv[1], argv[2]));
  return 0;
}
