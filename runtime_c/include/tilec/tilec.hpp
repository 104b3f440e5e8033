/* tilec.hpp: what the <name>.hpp of every library shares. Header-only, C++17, no symbols of its own.
 *
 * Every kernel has two forms. `llm::matmul(A, B, C)` throws tilec::error. `llm::matmul(std::nothrow, A, B, C)`
 * returns a tilec::expected, allocates nothing and throws nothing. Tensors are views: they own nothing and must
 * outlive the call alone (on CUDA: the work that it queued). */
#ifndef TILEC_TILEC_HPP_
#define TILEC_TILEC_HPP_
#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 201703L
#error "tilec.hpp needs C++17: compile with -std=c++17 or newer; the library's C header has no such need"
#endif
#include <tilec/tilec.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace tilec {
inline namespace v1 {

/* ---- failures ---- */

/* A call failed; what() is the library's last_error(). */
class error : public std::runtime_error {
 public:
  error(tilec_status status, const char* text) : std::runtime_error(text), status_(status) {}
  tilec_status status() const noexcept { return status_; }

 private:
  tilec_status status_;
};

/* Why a call failed. `text` is valid until this thread's next failing call of the same library. */
struct failure {
  tilec_status status;
  const char* text;
};

/* A value or a failure. value() throws tilec::error instead of a failure. */
template <class T>
class [[nodiscard]] expected {
 public:
  expected(T value) noexcept : value_(value), failure_{TILEC_OK, ""} {}
  expected(failure why) noexcept : value_(), failure_(why) {}
  bool has_value() const noexcept { return failure_.status == TILEC_OK; }
  explicit operator bool() const noexcept { return has_value(); }
  const T& operator*() const noexcept { return value_; } /* where there is one */
  const failure& error() const noexcept { return failure_; }
  const T& value() const {
    if (!has_value()) throw tilec::error(failure_.status, failure_.text);
    return value_;
  }

 private:
  static_assert(std::is_scalar<T>::value, "values are copied and made from nothing");
  T value_;
  failure failure_;
};

template <>
class [[nodiscard]] expected<void> {
 public:
  expected() noexcept : failure_{TILEC_OK, ""} {}
  expected(failure why) noexcept : failure_(why) {}
  bool has_value() const noexcept { return failure_.status == TILEC_OK; }
  explicit operator bool() const noexcept { return has_value(); }
  const failure& error() const noexcept { return failure_; }
  void value() const {
    if (!has_value()) throw tilec::error(failure_.status, failure_.text);
  }

 private:
  failure failure_;
};

/* ---- tensors ---- */

namespace detail {

/* Whether a view of U serves as a view of T: the same type, with const added, or void. */
template <class U, class T>
constexpr bool views_as = std::is_convertible<U*, T*>::value &&
                          (std::is_void<T>::value || std::is_same<std::remove_const_t<U>, std::remove_const_t<T>>::value);

}  // namespace detail

/* A view of elements of type T: where the first one is, extents, strides in elements. T is void (or const void)
 * where C++ has no type of the elements: float16, bfloat16, float8, 4-bit integers. */
template <class T, std::size_t Rank>
class tensor {
 public:
  using shape_type = std::array<std::int64_t, Rank>;

  /* Row-major contiguous. */
  tensor(T* data, const shape_type& shape) noexcept : data_(data), shape_(shape), strides_() {
    std::int64_t step = 1; /* wraps on absurd extents, which the call refuses */
    for (std::size_t axis = Rank; axis-- > 0;) {
      strides_[axis] = step;
      step = static_cast<std::int64_t>(static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(shape[axis]));
    }
  }

  tensor(T* data, const shape_type& shape, const shape_type& strides) noexcept
      : data_(data), shape_(shape), strides_(strides) {}

  /* All elements of an array, std::array, std::vector, std::span, ... */
  template <class C, class E = std::remove_pointer_t<decltype(std::data(std::declval<C&>()))>,
            class = std::enable_if_t<Rank == 1 && !std::is_void<T>::value && detail::views_as<E, T>>,
            class = decltype(std::size(std::declval<C&>()))>
  tensor(C&& elements) noexcept
      : tensor(std::data(elements), shape_type{{static_cast<std::int64_t>(std::size(elements))}}) {}

  /* T to const T, anything to void. */
  template <class U, class = std::enable_if_t<!std::is_same<U, T>::value && detail::views_as<U, T>>>
  tensor(const tensor<U, Rank>& other) noexcept : tensor(other.data(), other.shape(), other.strides()) {}

  T* data() const noexcept { return data_; }
  const shape_type& shape() const noexcept { return shape_; }
  const shape_type& strides() const noexcept { return strides_; }

 private:
  T* data_;
  shape_type shape_, strides_;
};

/* A view of elements that lie one behind the other. */
template <class T>
using span = tensor<T, 1>;

/* ---- how a call runs ---- */

/* A tilec_exec with everything at its default. */
inline tilec_exec make_exec(DLDevice device = DLDevice{kDLCPU, 0}) noexcept {
  tilec_exec exec = {};
  exec.struct_size = sizeof(exec);
  exec.device = device;
  return exec;
}

/* Memory for exec->workspace on the CPU, freed with the object. Two calls at the same time need two. */
class workspace {
 public:
  static constexpr std::size_t alignment = 64;

  /* Throws std::bad_alloc. */
  explicit workspace(std::size_t size)
      : data_(size ? ::operator new(size, std::align_val_t(alignment)) : nullptr), size_(size) {}
  workspace(workspace&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, std::size_t(0))) {}
  workspace& operator=(workspace&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~workspace() { ::operator delete(data_, std::align_val_t(alignment)); }

  void* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

  /* Makes calls with `exec` use this memory, which must outlive them. */
  void lend(tilec_exec& exec) const noexcept {
    exec.workspace = data_;
    exec.workspace_size = size_;
  }

 private:
  void* data_;
  std::size_t size_;
};

/* The blocks of a launch, for threads of the caller: iterations [begin, end) by worker number `worker`. */
class task {
 public:
  task(tilec_task run, void* closure) noexcept : run_(run), closure_(closure) {}
  void operator()(std::uint32_t worker, std::int64_t begin, std::int64_t end) const { run_(closure_, worker, begin, end); }

 private:
  tilec_task run_;
  void* closure_;
};

namespace detail {

/* A tilec_parallel_for whose pool is a Pool. */
template <class Pool>
tilec_status run_on(void* pool, std::int64_t n, std::int64_t grain, tilec_task run, void* closure) noexcept {
  try {
    (*static_cast<Pool*>(pool))(n, grain, task(run, closure));
    return TILEC_OK;
  } catch (...) {
    return TILEC_ERR_PARTIAL;
  }
}

}  // namespace detail

/* Makes calls with `exec` run on threads of the caller, which are `workers` at a time at most (on one, the calling
 * thread alone). `pool(n, grain, run)` has these call `run(worker, begin, end)` for all of [0, n) once, in pieces of about
 * `grain`, with worker < workers and no number used by two threads at a time, and returns behind the last one. It must
 * outlive the calls. An exception that leaves it, and iterations that it skips, make the call TILEC_ERR_PARTIAL. */
template <class Pool>
void lend(Pool& pool, std::uint32_t workers, tilec_exec& exec) noexcept {
  exec.parallel_for = detail::run_on<Pool>;
  exec.pool = &pool;
  exec.num_workers = workers;
}

/* ---- what serves a call, without a call ---- */

/* Dims in the order of their first appearance in the shapes of a kernel's parameters. */
using dims = std::initializer_list<std::int64_t>;

namespace detail {

/* The kernel of that name with so many dims. */
inline expected<const tilec_kernel*> find(const tilec_library& library, const char* name, std::size_t num_dims) noexcept {
  const tilec_kernel* const kernel = library.find(name);
  if (!kernel) return failure{TILEC_ERR_ARGUMENT, "the library has no kernel of that name"};
  if (kernel->num_dims != num_dims) return failure{TILEC_ERR_ARGUMENT, "the kernel has another number of dims"};
  return kernel;
}

}  // namespace detail

/* The variant that would serve `kernel` for these dims on a device: `tilec::select(llm::library(), "matmul", {M, K, N})`.
 * It may go into exec.variant. */
inline expected<const tilec_variant*> select(const tilec_library& library, const char* kernel, dims values,
                                             DLDevice device = DLDevice{kDLCPU, 0}) noexcept {
  const expected<const tilec_kernel*> found = detail::find(library, kernel, values.size());
  if (!found) return found.error();
  const tilec_variant* variant = nullptr;
  const tilec_status status = library.select(*found, device, values.begin(), nullptr, &variant);
  if (status != TILEC_OK) return failure{status, library.last_error()};
  return variant;
}

/* A line for each variant in the order of dispatch: taken, or why not; or why nothing can be asked. Throws std::bad_alloc. */
inline std::string explain(const tilec_library& library, const char* kernel, dims values,
                           DLDevice device = DLDevice{kDLCPU, 0}) {
  const expected<const tilec_kernel*> found = detail::find(library, kernel, values.size());
  if (!found) return found.error().text;
  std::string text(library.explain(*found, device, values.begin(), nullptr, nullptr, 0), '\0');
  library.explain(*found, device, values.begin(), nullptr, &text[0], text.size() + 1); /* its NUL is there already */
  return text;
}

/* Makes first calls on a device and this thread as cheap as later ones, of every kernel. */
inline expected<void> preload(const tilec_library& library, DLDevice device = DLDevice{kDLCPU, 0}) noexcept {
  const tilec_status status = library.preload(nullptr, device);
  if (status != TILEC_OK) return failure{status, library.last_error()};
  return {};
}

/* ---- what generated functions call ---- */

namespace detail {

/* A tensor as the generic door wants it; borrows the view's extents and strides. */
class tensor_argument {
 public:
  template <class T, std::size_t Rank>
  tensor_argument(const tensor<T, Rank>& view, DLDataType dtype, const tilec_exec* exec) noexcept : tensor_() {
    tensor_.data = const_cast<void*>(static_cast<const void*>(view.data()));
    tensor_.device = exec ? exec->device : DLDevice{kDLCPU, 0};
    tensor_.ndim = static_cast<std::int32_t>(Rank);
    tensor_.dtype = dtype;
    tensor_.shape = const_cast<std::int64_t*>(view.shape().data());
    tensor_.strides = const_cast<std::int64_t*>(view.strides().data());
  }

  operator tilec_arg() noexcept {
    tilec_arg arg = {};
    arg.tag = TILEC_ARG_TENSOR;
    arg.v.tensor = &tensor_;
    return arg;
  }

 private:
  DLTensor tensor_;
};

/* A scalar or a dim as the generic door wants it. */
template <class T>
tilec_arg scalar_argument(T value) noexcept {
  tilec_arg arg = {};
  if constexpr (std::is_floating_point<T>::value) {
    arg.tag = TILEC_ARG_FLOAT;
    arg.v.f = value;
  } else {
    arg.tag = std::is_same<T, bool>::value ? TILEC_ARG_BOOL : TILEC_ARG_INT;
    arg.v.i = static_cast<std::int64_t>(value);
  }
  return arg;
}

/* Calls the kernel through the generic door, which validates everything. */
template <class... Args>
expected<void> launch(const tilec_library& library, const tilec_kernel* kernel, const tilec_exec* exec,
                      Args&&... args) noexcept {
  const std::array<tilec_arg, sizeof...(Args)> list = {{static_cast<tilec_arg>(args)...}};
  const tilec_status status = library.launch(kernel, exec, list.data(), list.size());
  if (status != TILEC_OK) return failure{status, library.last_error()};
  return {};
}

}  // namespace detail
}  // namespace v1
}  // namespace tilec
#endif
