// The quickstart library from C++17, as examples/c/quickstart.c calls it from C:
//
//   quickstart n M N K < floats > floats
//
// stdin holds x[n], b[n], A[M][K], B[K][N] as raw float32; stdout gets y[n] = 2 x + b and C[M][N] = A B.
#include <quickstart.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

static std::vector<float> read_floats(std::int64_t count) {
  std::vector<float> data(static_cast<std::size_t>(count));
  if (std::fread(data.data(), sizeof(float), data.size(), stdin) != data.size()) {
    std::fprintf(stderr, "short input\n");
    std::exit(2);
  }
  return data;
}

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s n M N K\n", argv[0]);
    return 2;
  }
  const std::int64_t n = std::atoll(argv[1]), M = std::atoll(argv[2]), N = std::atoll(argv[3]), K = std::atoll(argv[4]);
  const std::vector<float> x = read_floats(n), b = read_floats(n), A = read_floats(M * K), B = read_floats(K * N);
  std::vector<float> y(x.size()), C(static_cast<std::size_t>(M * N));
  try {
    quickstart::check_build();
    quickstart::scale_add(x, b, 2.0f, y);
    quickstart::matmul({A.data(), {M, K}}, {B.data(), {K, N}}, {C.data(), {M, N}});
  } catch (const tilec::error& error) {
    std::fprintf(stderr, "status %d: %s\n", static_cast<int>(error.status()), error.what());
    return 1;
  }
  std::fwrite(y.data(), sizeof(float), y.size(), stdout);
  std::fwrite(C.data(), sizeof(float), C.size(), stdout);
  return 0;
}
