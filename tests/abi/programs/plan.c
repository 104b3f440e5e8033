/* What an engine asks ahead of time: select, explain, alignment, workspaces, the log. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

static const tilec_library *library;
static const DLDevice cpu = {kDLCPU, 0};

static int says(const char *text) { return strstr(sample_last_error(), text) != NULL; }

static tilec_exec serial(const tilec_variant *variant) {
  tilec_exec exec;
  memset(&exec, 0, sizeof(exec));
  exec.struct_size = sizeof(exec);
  exec.device = cpu;
  exec.flags = TILEC_EXEC_SERIAL;
  exec.variant = variant;
  return exec;
}

static int test_select_refuses(void) {
  const tilec_kernel *matmul = library->find("matmul"), *none = (const tilec_kernel *)((const char *)matmul + 8);
  const int64_t dims[3] = {5, 16, 8}, negative[3] = {5, -16, 8};
  const DLDevice gpu = {kDLCUDA, 0};
  const tilec_variant *found = NULL;
  CHECK(library->select(NULL, cpu, dims, NULL, &found) == TILEC_ERR_ARGUMENT && says("the kernel is NULL"));
  CHECK(library->select(none, cpu, dims, NULL, &found) == TILEC_ERR_ARGUMENT && says("of another library"));
  CHECK(library->select(matmul, cpu, NULL, NULL, &found) == TILEC_ERR_ARGUMENT && says("dims is NULL"));
  CHECK(library->select(matmul, cpu, dims, NULL, NULL) == TILEC_ERR_ARGUMENT && says("out is NULL"));
  CHECK(library->select(matmul, cpu, negative, NULL, &found) == TILEC_ERR_SHAPE && says("N = -16"));
  CHECK(library->select(matmul, gpu, dims, NULL, &found) == TILEC_ERR_NO_ARCH && found == NULL);
  return 0;
}

static int test_explain(void) {
  const tilec_kernel *matmul = library->find("matmul");
  const int64_t dims[3] = {5, 16, 8};
  char all[8192], some[32];
  size_t wanted = library->explain(matmul, cpu, dims, NULL, NULL, 0);
  CHECK(wanted > 100 && wanted < sizeof(all));
  CHECK(library->explain(matmul, cpu, dims, NULL, all, sizeof(all)) == wanted && strlen(all) == wanted);
  CHECK(library->explain(matmul, cpu, dims, NULL, all, wanted + 1) == wanted && strlen(all) == wanted);
  CHECK(strstr(all, ": taken\n") && strstr(all, "rejected: M = 5 is not 3\n"));
  memset(some, 'x', sizeof(some));
  CHECK(library->explain(matmul, cpu, dims, NULL, some, sizeof(some) - 1) == wanted);
  CHECK(strlen(some) == sizeof(some) - 2 && some[sizeof(some) - 1] == 'x' && strncmp(all, some, strlen(some)) == 0);
  return 0;
}

/* A plan made for tensors at multiples of 64 bytes is checked against the tensors that come. */
static int test_alignment(void) {
  static _Alignas(64) float a[32], c[32];
  const tilec_kernel *add = library->find("add");
  const int64_t n = 4;
  const uint32_t known[3] = {64, 4, 64};
  const tilec_variant *plain = NULL, *aligned = NULL;
  CHECK(library->select(add, cpu, &n, NULL, &plain) == TILEC_OK && plain->num_guards == 0);
  CHECK(library->select(add, cpu, &n, known, &aligned) == TILEC_OK && aligned->num_guards == 2);
  tilec_exec exec = serial(aligned);
  CHECK(sample_add(&exec, a, a, c, n) == TILEC_OK);
  CHECK(sample_add(&exec, a + 1, a, c, n) == TILEC_ERR_NO_VARIANT && says("a is not known to be aligned to 64 bytes"));
  CHECK(sample_add(&exec, a, a, c + 4, n) == TILEC_ERR_NO_VARIANT && says("c is not known to be aligned to 32 bytes"));
  exec.variant = plain;
  CHECK(sample_add(&exec, a + 1, a + 3, c + 5, n) == TILEC_OK);
  return 0;
}

static int test_foreign_variants(void) {
  static float a[16 * 16], b[16 * 16], c[16 * 16];
  const int64_t dims[3] = {3, 16, 8};
  const tilec_kernel *matmul = library->find("matmul");
  const tilec_variant *found = NULL, *other = library->find("add")->variants[0];
  tilec_exec exec;
  CHECK(library->select(matmul, cpu, dims, NULL, &found) == TILEC_OK);
  exec = serial(found);
  CHECK(sample_matmul(&exec, a, b, c, 1, 3, 16, 8) == TILEC_OK);
  CHECK(sample_matmul(&exec, a, b, c, 1, 4, 16, 8) == TILEC_ERR_NO_VARIANT && says("M = 4 is not 3"));
  const tilec_variant copy = *found;
  const tilec_variant *const foreign[] = {other, &copy, (const tilec_variant *)((const char *)found + 4),
                                          (const tilec_variant *)(uintptr_t)8};
  for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++) {
    size_t size = 7;
    exec = serial(foreign[i]);
    CHECK(sample_matmul(&exec, a, b, c, 1, 3, 16, 8) == TILEC_ERR_ARGUMENT && says("another kernel or library"));
    CHECK(sample_matmul_workspace(&exec, 3, 16, 8, &size) == TILEC_ERR_ARGUMENT && size == 7);
    CHECK(library->workspace_size(matmul, foreign[i], NULL, dims, &size) == TILEC_ERR_ARGUMENT);
  }
  return 0;
}

static int test_workspace_of_the_planned_variant(void) {
  const int64_t dims[3] = {17, 2, 4};
  const tilec_kernel *normalize = library->find("normalize");
  const tilec_variant *found = NULL;
  size_t size = 0, typed = 0;
  CHECK(library->select(normalize, cpu, dims, NULL, &found) == TILEC_OK);
  tilec_exec exec = serial(found);
  CHECK(library->workspace_size(normalize, found, &exec, dims, &size) == TILEC_OK && size == 128);
  CHECK(sample_normalize_workspace(&exec, 17, 2, 4, &typed) == TILEC_OK && typed == size);
  CHECK(library->workspace_size(normalize, NULL, NULL, dims, &typed) == TILEC_OK && typed == size);
  CHECK(library->workspace_size(normalize, NULL, NULL, NULL, &size) == TILEC_ERR_ARGUMENT);
  return 0;
}

typedef struct seen { int count, level; char text[256]; } seen;

static void remember(void *user, int level, const char *message) {
  seen *last = user;
  last->count++;
  last->level = level;
  snprintf(last->text, sizeof(last->text), "%s", message);
}

static int test_log(void) {
  static float a[4], c[4];
  seen last = {0, -1, ""};
  tilec_exec exec = serial(NULL);
  library->set_log(remember, &last);
  CHECK(sample_add(&exec, a, a, c, -1) == TILEC_ERR_SHAPE && last.count == 1 && last.level == TILEC_LOG_ERROR);
  CHECK(strstr(last.text, "TILEC_ERR_SHAPE: add: dim N = -1") == last.text);
  CHECK(sample_add(&exec, a, a, c, 4) == TILEC_OK && last.count == 2 && last.level == TILEC_LOG_DEBUG);
  CHECK(strstr(last.text, "add: variant ") == last.text && strstr(last.text, "1 workers"));
  library->set_log(NULL, NULL);
  CHECK(sample_add(&exec, a, a, c, -1) == TILEC_ERR_SHAPE && last.count == 2);
  return 0;
}

int main(void) {
  library = sample_library();
  int failed = test_select_refuses() + test_explain() + test_alignment() + test_foreign_variants() +
               test_workspace_of_the_planned_variant() + test_log();
  printf(failed ? "failed\n" : "ok\n");
  return failed;
}
