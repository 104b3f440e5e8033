/* How many CPUs this process may use at once: those it is bound to, and no more than the time that its
 * control groups grant it in each period. Threads beyond that would all be stopped in the middle of a call.
 */
#include "system/cpus.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 512 };

static uint32_t bound_cpus(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  int count = CPU_COUNT(&set);
  return count > 0 && count <= MAX_WORKERS ? (uint32_t)count : MAX_WORKERS;
}

static bool first_line(const char* path, char* line, int size) {
  FILE* file = fopen(path, "re");
  bool found = file && fgets(line, size, file);
  if (file) fclose(file);
  return found;
}

/* CPUs whose time a quota is, a part of one as a whole; MAX_WORKERS without a limit, which is no number in
 * the second version of control groups and -1 in the first. */
static uint32_t cpus_of(double quota, double period) {
  if (!(quota > 0) || !(period > 0) || quota > period * MAX_WORKERS) return MAX_WORKERS;
  uint32_t whole = (uint32_t)(quota / period);
  return whole + (whole * period < quota);
}

/* The limit of the group in `folder`: "QUOTA PERIOD" in one file, or each in its own. */
static uint32_t group_cpus(const char* folder) {
  char path[MAX_PATH + 32], line[64], *rest;
  snprintf(path, sizeof(path), "%s/cpu.max", folder);
  if (first_line(path, line, sizeof(line))) {
    double quota = strtod(line, &rest);
    return cpus_of(quota, strtod(rest, NULL));
  }
  snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
  if (!first_line(path, line, sizeof(line))) return MAX_WORKERS;
  double quota = strtod(line, NULL);
  snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
  return first_line(path, line, sizeof(line)) ? cpus_of(quota, strtod(line, NULL)) : MAX_WORKERS;
}

/* The least limit of the group `folder` and of those above it, up to the first `root_length` characters. */
static uint32_t limit_upwards(char* folder, size_t root_length) {
  uint32_t least = MAX_WORKERS;
  for (;;) {
    uint32_t own = group_cpus(folder);
    if (own < least) least = own;
    char* last = strrchr(folder, '/');
    if (!last || strlen(folder) <= root_length) return least;
    *last = '\0';
  }
}

static bool has_controller(const char* names) {
  const char* found = strstr(names, "cpu");
  for (; found; found = strstr(found + 1, "cpu")) {
    bool starts = found == names || found[-1] == ',';
    if (starts && (found[3] == ',' || found[3] == '\0')) return true;
  }
  return false;
}

/* One line of the list of groups, "ID:CONTROLLERS:PATH"; the second version has one group without names. */
static uint32_t limit_of_line(char* line, const char* root) {
  char folder[MAX_PATH];
  char* names = strchr(line, ':');
  char* path = names ? strchr(names + 1, ':') : NULL;
  if (!path) return MAX_WORKERS;
  *path++ = '\0';
  names++;
  path[strcspn(path, "\n")] = '\0';
  if (*names && !has_controller(names)) return MAX_WORKERS;
  if (strcmp(path, "/") == 0) path = "";
  int root_length = snprintf(folder, sizeof(folder), "%s%s", root, *names ? "/cpu" : "");
  if (root_length < 0 || (size_t)root_length + strlen(path) >= sizeof(folder)) return MAX_WORKERS;
  strcpy(folder + root_length, path);
  return limit_upwards(folder, (size_t)root_length);
}

LOCAL uint32_t quota_cpus(const char* groups, const char* root) {
  char line[MAX_PATH];
  uint32_t least = MAX_WORKERS;
  FILE* file = fopen(groups, "re");
  while (file && fgets(line, sizeof(line), file)) {
    uint32_t limit = limit_of_line(line, root);
    if (limit < least) least = limit;
  }
  if (file) fclose(file);
  return least;
}

LOCAL uint32_t cpus_of_process(void) {
  uint32_t bound = bound_cpus(), quota = quota_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
  return bound < quota ? bound : quota;
}
