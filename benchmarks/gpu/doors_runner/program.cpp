// Calls of the library from C++: the typed door and the table, a workspace, a status; on a GPU by the driver alone.
// Prints what it found; a failure is its text and exit code 1.
#include <dlfcn.h>
#include <doors.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

[[noreturn]] void fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

void check(tilec_status status, const char* what) {
  if (status != TILEC_OK) fail(what, doors_last_error());
}

void require(bool holds, const char* what) {
  if (!holds) fail(what, "it does not hold");
}

// Memory and a stream: of the host, or of the first GPU by libcuda.so.1, whose functions return 0 for success.
class Device {
 public:
  explicit Device(bool cuda) {
    if (!cuda) return;
    driver_ = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver_ == nullptr) fail("no CUDA driver", dlerror());
    int device = 0;
    void* context = nullptr;
    call("cuInit", 0u);
    call("cuDeviceGet", &device, 0);
    call("cuDevicePrimaryCtxRetain", &context, device);
    call("cuCtxSetCurrent", context);
    call("cuStreamCreate", &stream_, 1u);
  }

  tilec_exec exec() const {
    tilec_exec made{};
    made.struct_size = sizeof made;
    made.device = {driver_ != nullptr ? kDLCUDA : kDLCPU, 0};
    made.stream = stream_;
    return made;
  }

  void* allocate(size_t bytes) {
    if (driver_ == nullptr) return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    unsigned long long address = 0;
    call("cuMemAlloc_v2", &address, bytes);
    return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  }

  float* upload(const std::vector<float>& values) {
    const size_t bytes = values.size() * sizeof(float);
    void* made = allocate(bytes);
    if (driver_ == nullptr) return static_cast<float*>(std::memcpy(made, values.data(), bytes));
    call("cuMemcpyHtoDAsync_v2", number(made), values.data(), bytes, stream_);
    return static_cast<float*>(made);
  }

  std::vector<float> download(const float* from, size_t count) {
    std::vector<float> values(count);
    if (driver_ == nullptr) {
      std::memcpy(values.data(), from, count * sizeof(float));
      return values;
    }
    call("cuMemcpyDtoHAsync_v2", values.data(), number(from), count * sizeof(float), stream_);
    call("cuStreamSynchronize", stream_);
    return values;
  }

 private:
  template <class... Args>
  void call(const char* name, Args... args) {
    const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(driver_, name));
    if (function == nullptr) fail(name, "the driver has no such function");
    const int result = function(args...);
    if (result == 0) return;
    std::fprintf(stderr, "%s: CUresult %d\n", name, result);
    std::exit(1);
  }

  static unsigned long long number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

  void* driver_ = nullptr;
  void* stream_ = nullptr;
};

bool near(float found, float wanted) { return std::fabs(found - wanted) <= 1e-4f * std::fabs(wanted) + 1e-5f; }

void call_typed(Device& device) {
  const int64_t n = 10007;
  std::vector<float> x(n), w(n);
  for (int64_t i = 0; i < n; i++) x[i] = 0.25f * static_cast<float>(i % 97), w[i] = 1.0f / static_cast<float>(1 + i % 13);
  const float* X = device.upload(x);
  const float* W = device.upload(w);
  float* Y = static_cast<float*>(device.allocate(n * sizeof(float)));
  const tilec_exec exec = device.exec();
  check(doors_product(&exec, X, W, 2.0f, Y, n), "product");
  const std::vector<float> found = device.download(Y, n);
  for (int64_t i = 0; i < n; i++) require(near(found[i], 2.0f * x[i] * w[i]), "product agrees");
}

void call_with_workspace(Device& device) {
  const int64_t m = 100, n = 333;
  std::vector<float> x(m * n);
  for (int64_t i = 0; i < m * n; i++) x[i] = static_cast<float>(i % 7);
  const float* X = device.upload(x);
  float* S = static_cast<float*>(device.allocate(n * sizeof(float)));
  tilec_exec exec = device.exec();
  check(doors_column_sums_workspace(&exec, m, n, &exec.workspace_size), "the size of a workspace");
  require(exec.workspace_size > 0, "column_sums has a workspace");
  exec.workspace = device.allocate(exec.workspace_size);
  check(doors_column_sums(&exec, X, S, m, n), "column_sums");
  const std::vector<float> found = device.download(S, n);
  for (int64_t j = 0; j < n; j++) {
    float sum = 0;
    for (int64_t i = 0; i < m; i++) sum += x[i * n + j];
    require(near(found[j], sum), "column_sums agrees");
  }
}

void call_by_table(Device& device) {
  const tilec_library* library = doors_library();
  const tilec_kernel* kernel = library->find("doubled");
  float* X = device.upload({1, 2, 3});
  tilec_exec exec = device.exec();
  int64_t n = 3;
  DLTensor tensor{X, exec.device, 1, {kDLFloat, 32, 1}, &n, nullptr, 0};
  tilec_arg arg{};
  arg.tag = TILEC_ARG_TENSOR;
  arg.v.tensor = &tensor;
  const tilec_variant* variant = nullptr;
  check(library->preload(kernel, exec.device), "preload");
  check(library->select(kernel, exec.device, &n, nullptr, &variant), "select");
  check(library->launch(kernel, &exec, &arg, 1), "launch");
  require(device.download(X, 3) == std::vector<float>{2, 4, 6}, "doubled agrees");
  tensor.dtype.code = kDLInt;
  require(library->launch(kernel, &exec, &arg, 1) == TILEC_ERR_DTYPE, "another type is refused");
  std::printf("variants for %s\n", variant->arch);
}

}  // namespace

int main(int argc, char** argv) {
  check(doors_check_build(DOORS_BUILD_ID), "header and library");
  Device device(argc > 1 && std::strcmp(argv[1], "cuda") == 0);
  call_typed(device);
  call_with_workspace(device);
  call_by_table(device);
}
