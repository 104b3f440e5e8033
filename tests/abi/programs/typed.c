/* The typed door and the public header; compiles as C11 and as C++17. */
#include "check.h"

#include <string.h>

static int says(const char *text) { return strstr(sample_last_error(), text) != NULL; }

static int test_add(void) {
  float a[100], b[100], c[100];
  for (int i = 0; i < 100; i++) {
    a[i] = (float)i;
    b[i] = 1.0f;
  }
  CHECK(sample_add(NULL, a, b, c, 100) == TILEC_OK);
  for (int i = 0; i < 100; i++) CHECK(c[i] == (float)i + 1.0f);
  CHECK(sample_add(NULL, NULL, NULL, NULL, 0) == TILEC_OK);
  CHECK(sample_add(NULL, NULL, b, c, 1) == TILEC_ERR_ARGUMENT && says("a is NULL"));
  CHECK(sample_add(NULL, a, b, c, -1) == TILEC_ERR_SHAPE && says("N = -1"));
  CHECK(sample_add(NULL, a, b, c, INT64_C(1) << 31) == TILEC_ERR_SHAPE && says("2146435071"));
  CHECK(sample_add(NULL, (float *)((char *)a + 2), b, c, 1) == TILEC_ERR_LAYOUT && says("aligned to 4"));
  return 0;
}

static int test_exec(void) {
  float a[1] = {1}, b[1] = {2}, c[1];
  tilec_exec exec;
  memset(&exec, 0, sizeof(exec));
  CHECK(sample_add(&exec, a, b, c, 1) == TILEC_ERR_ABI && says("struct_size"));
  exec.struct_size = sizeof(exec);
  exec.device.device_type = kDLCUDA;
  CHECK(sample_add(&exec, a, b, c, 1) == TILEC_ERR_NO_ARCH);
  exec.device.device_type = kDLCPU;
  exec.flags = 2;
  CHECK(sample_add(&exec, a, b, c, 1) == TILEC_ERR_ABI && says("flags"));
  exec.flags = TILEC_EXEC_SERIAL;
  CHECK(sample_add(&exec, a, b, c, 1) == TILEC_OK && c[0] == 3);
  exec.struct_size = sizeof(exec) + 64; /* of a later version of the header */
  CHECK(sample_add(&exec, a, b, c, 1) == TILEC_OK);
  return 0;
}

static int test_matmul(void) {
  float a[5 * 8], b[8 * 16], c[5 * 16];
  for (int i = 0; i < 5 * 8; i++) a[i] = (float)(i % 7);
  for (int i = 0; i < 8 * 16; i++) b[i] = (float)(i % 5);
  CHECK(sample_matmul(NULL, a, b, c, 0.5f, 5, 16, 8) == TILEC_OK);
  for (int i = 0; i < 5; i++) {
    for (int j = 0; j < 16; j++) {
      float sum = 0;
      for (int k = 0; k < 8; k++) sum += a[i * 8 + k] * b[k * 16 + j];
      CHECK(c[i * 16 + j] == 0.5f * sum);
    }
  }
  CHECK(sample_matmul(NULL, a, b, c, 1, 5, 15, 8) == TILEC_ERR_NO_VARIANT && says("N = 15"));
  return 0;
}

static int test_workspace(void) {
  char block[256], *memory = block + (64 - (uintptr_t)block % 64) % 64;
  float x[2 * 4] = {1, 3, 0, 0, 2, 2, 0, 0}, y[2 * 2];
  size_t size = 0;
  tilec_exec exec;
  memset(&exec, 0, sizeof(exec));
  exec.struct_size = sizeof(exec);
  exec.device.device_type = kDLCPU;
  CHECK(sample_normalize_workspace(&exec, 2, 2, 4, &size) == TILEC_OK && size == 64);
  CHECK(sample_normalize_workspace(&exec, 17, 2, 4, &size) == TILEC_OK && size == 128);
  CHECK(sample_normalize_workspace(&exec, 2, 2, 4, NULL) == TILEC_ERR_ARGUMENT);
  CHECK(sample_normalize_workspace(&exec, 2, 2, INT64_C(1) << 32, &size) == TILEC_OK && size == (size_t)1 << 35);
  CHECK(sample_normalize_workspace(&exec, 2, 2, INT64_C(1) << 60, &size) == TILEC_ERR_WORKSPACE && says("overflow"));
  CHECK(sample_normalize(&exec, x, y, 2, 2, 4) == TILEC_OK); /* in memory of this thread */
  CHECK(y[0] == 0.25f && y[1] == 0.75f && y[2] == 0.5f && y[3] == 0.5f);
  CHECK(sample_normalize(NULL, x, y, 2, 2, 4) == TILEC_OK);
  CHECK(sample_normalize(NULL, x, y, INT64_C(1) << 60, 2, 4) != TILEC_OK);
  exec.workspace = memory;
  exec.workspace_size = 63;
  CHECK(sample_normalize(&exec, x, y, 2, 2, 4) == TILEC_ERR_WORKSPACE && says("64 bytes"));
  exec.workspace = memory + 8;
  exec.workspace_size = 128;
  CHECK(sample_normalize(&exec, x, y, 2, 2, 4) == TILEC_ERR_WORKSPACE && says("aligned"));
  exec.workspace = memory;
  CHECK(sample_normalize(&exec, x, y, 2, 2, 4) == TILEC_OK);
  CHECK(y[0] == 0.25f && y[1] == 0.75f && y[2] == 0.5f && y[3] == 0.5f);
  return 0;
}

static int test_scalars(void) {
  const int8_t x[2] = {3, -4};
  int32_t y[4];
  CHECK(sample_mixed(NULL, x, y, 4, true, 10, 2.0) == TILEC_OK);
  CHECK(y[0] == 26 && y[1] == 26 && y[2] == 12 && y[3] == 12);
  CHECK(sample_mixed(NULL, x, y, 4, false, 10, 1.0) == TILEC_OK && y[0] == -3 && y[3] == 4);
  CHECK(sample_mixed(NULL, x, y, 3, false, 10, 1.0) == TILEC_ERR_NO_VARIANT);
  return 0;
}

static int test_library(void) {
  const tilec_library *library = sample_library();
  CHECK(library->struct_size == sizeof(tilec_library) && library->abi_version == TILEC_ABI_VERSION);
  CHECK(strcmp(library->name, "sample") == 0 && strcmp(library->build_id, SAMPLE_BUILD_ID) == 0);
  CHECK(sample_check_build(SAMPLE_BUILD_ID) == TILEC_OK);
  CHECK(sample_check_build("another") == TILEC_ERR_ABI && says("another"));
  CHECK(library->find("add") == library->kernels[0] && library->find("nothing") == NULL);
  CHECK(strcmp(library->status_name(TILEC_ERR_SHAPE), "TILEC_ERR_SHAPE") == 0);
  CHECK(library->metadata_json[0] == '{' && library->metadata_json[library->metadata_json_size - 1] == '}');
  return 0;
}

int main(void) {
  int failed = test_add() + test_exec() + test_matmul() + test_workspace() + test_scalars() + test_library();
  printf(failed ? "failed\n" : "ok\n");
  return failed;
}
