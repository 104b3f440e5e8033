#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "device.hpp"
#include "foreign.hpp"

namespace llama {
namespace {

using Address = unsigned long long;  // CUdeviceptr
constexpr unsigned kNonBlocking = 1, kRelaxed = 2;  // CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED
constexpr std::size_t kStaging = std::size_t{16} << 20, kMarks = 8;

Address address(const void* memory) { return reinterpret_cast<Address>(memory); }

class Driver {
 public:
  Driver() { call("cuInit", 0U); }

  // Throws std::runtime_error with the driver's name of the error.
  template <typename... Arguments>
  void call(const char* name, Arguments... arguments) const {
    const int result = library_.call<int>(name, arguments...);
    if (result == 0) return;
    const char* error = nullptr;
    library_.call<int>("cuGetErrorName", result, &error);
    throw std::runtime_error(std::string(name) + " failed: " + (error != nullptr ? error : std::to_string(result)));
  }

 private:
  Foreign library_{"libcuda.so.1", "--device cuda: no CUDA driver"};
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int number) {
    int handle = 0;
    void* context = nullptr;
    driver_.call("cuDeviceGet", &handle, number);
    driver_.call("cuDevicePrimaryCtxRetain", &context, handle);  // until the process ends, and all memory with it
    driver_.call("cuCtxSetCurrent", context);
    driver_.call("cuStreamCreate", &stream_, kNonBlocking);
    for (void*& mark : marks_) driver_.call("cuEventCreate", &mark, 0U);
    staging_ = static_cast<char*>(allocate_host(kStaging));
    exec_.struct_size = sizeof exec_;
    exec_.device = DLDevice{kDLCUDA, number};
    exec_.stream = stream_;
  }

  void* allocate(std::size_t bytes) override {
    Address made = 0;
    driver_.call("cuMemAlloc_v2", &made, std::max<std::size_t>(bytes, 1));
    return reinterpret_cast<void*>(made);
  }

  void* allocate_host(std::size_t bytes) override {
    void* made = nullptr;
    driver_.call("cuMemAllocHost_v2", &made, bytes);
    return made;
  }

  // Through host memory that the device reads when its work so far is done; waits for that once all of it has been used.
  void upload(void* to, const void* from, std::size_t bytes) override {
    for (std::size_t done = 0, size = 0; done < bytes; done += size, staged_ += size) {
      if (staged_ == kStaging) driver_.call("cuStreamSynchronize", stream_), staged_ = 0;
      size = std::min(bytes - done, kStaging - staged_);
      std::memcpy(staging_ + staged_, static_cast<const char*>(from) + done, size);
      driver_.call("cuMemcpyHtoDAsync_v2", address(to) + done, static_cast<const void*>(staging_ + staged_), size, stream_);
    }
  }

  void download(void* to, const void* from, std::size_t bytes) override {
    fetch(to, from, bytes);
    driver_.call("cuStreamSynchronize", stream_);
  }

  void fetch(void* to, const void* from, std::size_t bytes) override {
    driver_.call("cuMemcpyDtoHAsync_v2", to, address(from), bytes, stream_);
  }

  const tilec_exec& exec() const override { return exec_; }
  std::int64_t ahead() const override { return 1; }

  std::int64_t mark() override {
    driver_.call("cuEventRecord", event(marked_), stream_);
    return marked_++;
  }

  void wait(std::int64_t mark) override { driver_.call("cuEventSynchronize", event(mark)); }

  double seconds(std::int64_t from, std::int64_t to) override {
    float milliseconds = 0;
    driver_.call("cuEventElapsedTime", &milliseconds, event(from), event(to));
    return milliseconds * 1e-3;
  }

  std::function<void()> record(const std::function<void()>& work) override {
    void *graph = nullptr, *made = nullptr;
    driver_.call("cuStreamBeginCapture_v2", stream_, kRelaxed);
    work();
    driver_.call("cuStreamEndCapture", stream_, &graph);
    driver_.call("cuGraphInstantiateWithFlags", &made, graph, 0ULL);
    return [this, made] { driver_.call("cuGraphLaunch", made, stream_); };
  }

 private:
  void* event(std::int64_t mark) const { return marks_[static_cast<std::size_t>(mark) % kMarks]; }

  Driver driver_;
  tilec_exec exec_{};
  void* stream_ = nullptr;
  char* staging_ = nullptr;
  std::size_t staged_ = 0;  // bytes of it in use
  std::int64_t marked_ = 0;
  std::array<void*, kMarks> marks_{};
};

}  // namespace

std::unique_ptr<Device> make_cuda(int number) { return std::make_unique<CudaDevice>(number); }

}  // namespace llama
