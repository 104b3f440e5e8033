"""Latency of one typed call of a kernel with many variants and an empty body, from C, by dispatch class.

    python tools/bench_dispatch.py [VARIANTS]

Exact: a hit in the hash of pinned dims. Guarded: served by the last of eight guarded variants. Fallback:
served by the variant without guards. Miss: no variant of a second kernel, without fallback, admits the dims.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tilec.codegen.image import Image, LaunchCode
from tilec.codegen.toolchain import find_toolchain
from tilec.ir.guards import Guard
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, ParamRecord, VariantRecord
from tilec.package.write import write_package
from tilec.targets import native_host, native_target

ENTRY = """
#include <stdint.h>
void bench_entry(float* a, int64_t m, int64_t n, int64_t k, void* scratch, int64_t begin, int64_t end) {}
"""

PROGRAM = """
#include <bench.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHAPES = 4096, ROUNDS = 200, BATCHES = 31 };
typedef tilec_status (*door)(const tilec_exec*, float*, int64_t, int64_t, int64_t);
static int64_t shapes[SHAPES][3];
static float tensor[16];

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  return (*(const double*)a > *(const double*)b) - (*(const double*)a < *(const double*)b);
}

static void measure(const char* name, door call, tilec_status wanted) {
  double times[BATCHES];
  tilec_exec exec;
  memset(&exec, 0, sizeof(exec));
  exec.struct_size = sizeof(exec);
  exec.device.device_type = kDLCPU;
  exec.flags = TILEC_EXEC_SERIAL;
  for (int batch = 0; batch < BATCHES; batch++) {
    double start = now();
    for (int i = 0; i < ROUNDS * SHAPES / BATCHES; i++) {
      const int64_t* dims = shapes[i % SHAPES];
      if (call(&exec, tensor, dims[0], dims[1], dims[2]) != wanted) abort();
    }
    times[batch] = (now() - start) / (ROUNDS * SHAPES / BATCHES);
  }
  qsort(times, BATCHES, sizeof(double), ascending);
  printf("%-10s %6.1f ns median, %6.1f best\\n", name, times[BATCHES / 2], times[0]);
}

int main(void) {
  for (int i = 0; i < SHAPES; i++) {
    shapes[i][0] = 1 + rand() % 50;
    shapes[i][1] = 128 * (1 + rand() % WIDTHS);
    shapes[i][2] = 4096;
  }
  measure("exact", bench_all, TILEC_OK);
  for (int i = 0; i < SHAPES; i++) shapes[i][0] = 8 * (1 + 2 * (rand() % 99)), shapes[i][2] = 77;
  measure("guarded", bench_all, TILEC_OK);
  for (int i = 0; i < SHAPES; i++) shapes[i][0] = 1 + 2 * (rand() % 5000);
  measure("fallback", bench_all, TILEC_OK);
  measure("miss", bench_closed, TILEC_ERR_NO_VARIANT);
  return 0;
}
"""


def main(variants: int) -> None:
    """Builds the library and the program in a temporary folder and runs it."""
    toolchain = find_toolchain()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec = _spec(variants, _image(folder))
        package = write_package(spec, folder / "package")
        (folder / "bench.c").write_text(PROGRAM)
        command = [
            *toolchain.driver,
            "-O2",
            f"-DWIDTHS={variants // 50}",
            "-I",
            str(folder / "package/include"),
        ]
        command += [str(folder / "bench.c"), str(package.library), f"-Wl,-rpath,{package.library.parent}"]
        subprocess.run([*command, "-o", str(folder / "bench")], check=True)
        sys.stdout.write(f"{package.variants} variants, library of {package.size // 1024} KiB\n")
        sys.stdout.flush()
        subprocess.run([folder / "bench"], check=True)


def _image(folder: Path) -> Image:
    source = folder / "entry.c"
    source.write_text(ENTRY)
    (made,) = find_toolchain().compile([source], folder)
    code = made.read_bytes()
    launch = LaunchCode("bench_entry", ("M",), (1, 1, 1))
    return Image(native_target().level, code, hashlib.sha256(code).hexdigest(), (launch,))


def _spec(variants: int, image: Image) -> PackageSpec:
    exact = [{"M": m, "N": 128 * n, "K": 4096} for n in range(1, variants // 50 + 1) for m in range(1, 51)]
    pinned = [tuple((name, Guard(eq=value)) for name, value in dims.items()) for dims in exact]
    guarded = [(("M", Guard(div=2**power)),) for power in range(10, 2, -1)]
    closed = _kernel("closed", [*pinned, *guarded], image)
    everything = _kernel("all", [*pinned, *guarded, ()], image)
    return PackageSpec("bench", "0", native_host(), (everything, closed))


def _kernel(name: str, guards: list[tuple[tuple[str, Guard], ...]], image: Image) -> KernelRecord:
    params = (ParamRecord("a", "tensor", "float32", "inout", extents=("4",)),)
    records = tuple(VariantRecord(image.target, each, image) for each in guards)
    return KernelRecord(name, params, tuple(DimRecord(dim) for dim in "MNK"), records)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
