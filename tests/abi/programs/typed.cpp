// The C++17 header: values, both forms of a failing call, a workspace with an owner, strides, two libraries.
#include <other.hpp>
#include <sample.hpp>

#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) {                                       \
      std::printf("line %d: %s\n", __LINE__, #condition);     \
      return 1;                                               \
    }                                                         \
  } while (0)

static_assert(!std::is_convertible<tilec::span<const float>, tilec::span<float>>::value, "const stays const");
static_assert(!std::is_convertible<tilec::span<double>, tilec::span<float>>::value, "element types agree");
static_assert(!std::is_convertible<std::vector<double>&, tilec::span<const float>>::value, "element types agree");
static_assert(!std::is_convertible<const std::vector<float>&, tilec::span<float>>::value, "const stays const");
static_assert(!std::is_convertible<tilec::tensor<float, 2>, tilec::tensor<float, 1>>::value, "ranks agree");
static_assert(std::is_convertible<tilec::span<float>, tilec::span<const void>>::value, "void takes anything");
static_assert(!std::is_copy_constructible<tilec::workspace>::value, "memory has one owner");

static bool contains(const char* text, const char* part) { return std::string(text).find(part) != std::string::npos; }

static int test_values() {
  const std::vector<float> a(100, 2.0f);
  float b[100], c[100];
  for (int i = 0; i < 100; i++) b[i] = static_cast<float>(i);
  sample::add(a, b, c);
  for (int i = 0; i < 100; i++) CHECK(c[i] == 2.0f + static_cast<float>(i));
  std::vector<float> sum(100);
  const tilec::span<float> view(c);
  sample::add(view, {b, {100}}, {sum.data(), {100}});
  CHECK(sum[99] == 2.0f + 2 * 99.0f);
  std::vector<float> left(5 * 8, 1.0f), right(8 * 16, 2.0f), product(5 * 16);
  sample::matmul({left.data(), {5, 8}}, {right.data(), {8, 16}}, {product.data(), {5, 16}}, 0.5f);
  for (float each : product) CHECK(each == 8.0f);
  const std::int8_t pairs[2] = {3, -4};
  std::int32_t whole[4];
  sample::mixed(pairs, whole, 4, true, 10, 2.0);
  CHECK(whole[0] == 26 && whole[1] == 26 && whole[2] == 12 && whole[3] == 12);
  return 0;
}

static int test_exceptions() {
  std::vector<float> a(4), b(3), c(4);
  try {
    sample::add(a, b, c);
    return 1;
  } catch (const tilec::error& caught) {
    CHECK(caught.status() == TILEC_ERR_SHAPE && contains(caught.what(), "add: "));
    CHECK(std::string(caught.what()) == sample_last_error());
  }
  try {
    sample::mixed({nullptr, {1}}, {nullptr, {2}}, 2, false, 0, 1.0);
    return 1;
  } catch (const std::runtime_error& caught) {
    CHECK(contains(caught.what(), "NULL"));
  }
  return 0;
}

static int test_expected() {
  std::vector<float> a(4, 1.0f), b(3), c(4);
  static_assert(noexcept(sample::add(std::nothrow, a, a, c)), "never throws");
  CHECK(sample::add(std::nothrow, a, a, c).has_value() && c[3] == 2.0f);
  const tilec::expected<void> done = sample::add(std::nothrow, a, b, c);
  CHECK(!done && done.error().status == TILEC_ERR_SHAPE && contains(done.error().text, "add: "));
  tilec_exec exec = tilec::make_exec(DLDevice{kDLCUDA, 0});
  CHECK(sample::add(std::nothrow, a, a, c, &exec).error().status == TILEC_ERR_NO_ARCH);
  CHECK(sample::add_workspace(std::nothrow, -1).error().status == TILEC_ERR_SHAPE);
  CHECK(*sample::add_workspace(std::nothrow, 64) == 0);
  const tilec::span<float> huge(a.data(), {INT64_MAX});
  CHECK(sample::add(std::nothrow, huge, huge, {c.data(), {INT64_MAX}}).error().status == TILEC_ERR_SHAPE);
  return 0;
}

static int test_workspace() {
  float x[2 * 4] = {1, 3, 0, 0, 2, 2, 0, 0}, y[2 * 2];
  const tilec::tensor<const float, 2> rows(x, {2, 2}, {4, 1});
  tilec_exec exec = tilec::make_exec();
  exec.workspace = y;
  CHECK(sample::normalize(std::nothrow, rows, {y, {2, 2}}, &exec).error().status == TILEC_ERR_WORKSPACE);
  exec.workspace = nullptr;
  tilec::workspace first(sample::normalize_workspace(2, 2, 4, &exec));
  CHECK(first.size() == 64 && reinterpret_cast<std::uintptr_t>(first.data()) % tilec::workspace::alignment == 0);
  tilec::workspace memory(std::move(first));
  CHECK(first.data() == nullptr && first.size() == 0 && memory.size() == 64);
  memory.lend(exec);
  sample::normalize(rows, {y, {2, 2}}, &exec);
  CHECK(y[0] == 0.25f && y[1] == 0.75f && y[2] == 0.5f && y[3] == 0.5f);
  memory = tilec::workspace(0);
  CHECK(memory.data() == nullptr);
  return 0;
}

static int test_two_libraries() {
  float a[2] = {1, 2}, b[2] = {0, 0}, c[2] = {0, 0};
  sample::check_build();
  other::check_build();
  CHECK(std::string(sample::library().name) == "sample" && std::string(other::library().name) == "other");
  const std::string before = sample_last_error();
  const tilec::expected<void> done = other::add(std::nothrow, a, a, {c, {-1}});
  CHECK(!done && done.error().text == other_last_error() && sample_last_error() == before);
  other::add(a, a, b);
  sample::add(a, b, c);
  CHECK(c[0] == 3 && c[1] == 6);
  return 0;
}

/* Threads made for each call, and how often that was. */
struct scoped_pool {
  std::uint32_t workers;
  int calls;

  void operator()(std::int64_t n, std::int64_t grain, const tilec::task& run) {
    std::atomic<std::int64_t> next{0};
    std::vector<std::thread> threads;
    for (std::uint32_t worker = 0; worker < workers; worker++)
      threads.emplace_back([&, worker] {
        for (std::int64_t at = next.fetch_add(grain); at < n; at = next.fetch_add(grain))
          run(worker, at, at + grain < n ? at + grain : n);
      });
    for (std::thread& thread : threads) thread.join();
    calls++;
  }
};

static int test_threads() {
  const std::vector<float> a(64 * 100 + 1, 2.0f);
  std::vector<float> c(a.size());
  tilec_exec exec = tilec::make_exec();
  scoped_pool pool{3, 0};
  tilec::lend(pool, pool.workers, exec);
  tilec::workspace memory(sample::add_workspace(static_cast<std::int64_t>(a.size()), &exec));
  CHECK(memory.size() > 0);
  memory.lend(exec);
  sample::add(a, a, c, &exec);
  for (float each : c) CHECK(each == 4.0f);
  CHECK(pool.calls == 1);
  auto fails = [](std::int64_t, std::int64_t, const tilec::task&) { throw std::runtime_error("no threads"); };
  tilec::lend(fails, 3, exec);
  CHECK(sample::add(std::nothrow, a, a, c, &exec).error().status == TILEC_ERR_PARTIAL);
  auto idle = [](std::int64_t, std::int64_t, const tilec::task&) {};
  tilec::lend(idle, 3, exec);
  CHECK(contains(sample::add(std::nothrow, a, a, c, &exec).error().text, "ran 0 of 101 blocks"));
  return 0;
}

static int test_questions() {
  const tilec_library& library = sample::library();
  const tilec_variant* const variant = tilec::select(library, "matmul", {3, 16, 8}).value();
  CHECK(variant->num_guards == 3 && variant->guards[0].kind == TILEC_GUARD_EQ && variant->guards[0].value == 3);
  const std::string said = tilec::explain(library, "matmul", {3, 16, 8});
  CHECK(contains(said.c_str(), ": taken") && said.find('\0') == std::string::npos);
  CHECK(tilec::select(library, "mixed", {3}).error().status == TILEC_ERR_NO_VARIANT);
  CHECK(contains(tilec::explain(library, "mixed", {3}).c_str(), "n = 3 is not a multiple of 2"));
  CHECK(contains(tilec::select(library, "matmul", {3, 16}).error().text, "another number of dims"));
  CHECK(contains(tilec::select(library, "none", {3, 16}).error().text, "no kernel of that name"));
  CHECK(contains(tilec::explain(library, "none", {}).c_str(), "no kernel of that name"));
  CHECK(tilec::select(library, "matmul", {3, 16, 8}, {kDLCUDA, 0}).error().status == TILEC_ERR_NO_ARCH);
  CHECK(tilec::preload(library).has_value());
  CHECK(tilec::preload(library, {kDLCUDA, 0}).error().status == TILEC_ERR_NO_ARCH);
  tilec_exec exec = tilec::make_exec();
  exec.variant = variant;
  const std::vector<float> a(3 * 8, 2.0f), b(8 * 16, 3.0f);
  std::vector<float> c(3 * 16);
  sample::matmul({a.data(), {3, 8}}, {b.data(), {8, 16}}, {c.data(), {3, 16}}, 0.5f, &exec);
  for (float each : c) CHECK(each == 24.0f);
  return 0;
}

int main() {
  const int failed = test_values() + test_exceptions() + test_expected() + test_workspace() + test_two_libraries() +
                     test_threads() + test_questions();
  std::printf(failed ? "failed\n" : "ok\n");
  return failed;
}
