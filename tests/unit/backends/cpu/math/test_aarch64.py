"""aarch64 code, cross-compiled by zig and run by qemu's user mode where that is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_accuracy import CASES, PERIODIC, SPECIAL
from vector_harness import elementwise, lowered, ulp_error

from tilec.backends.cpu.codegen.objects import compile_kernel
from tilec.codegen.linkers import SharedLibrary
from tilec.codegen.toolchain import find_toolchain
from tilec.settings import read_settings
from tilec.targets import parse_host, parse_target

QEMU = shutil.which("qemu-aarch64")
NAMES = tuple(CASES)
#: Without a C library, which zig would compile first: for half a minute where its cache is empty.
PROGRAM = """
#include <stdint.h>
%s
typedef void (*function)(const float *, float *, int64_t);
static const function functions[] = {%s};
enum { COUNT = %d, READ = 63, WRITE = 64, EXIT = 93 };
static float x[COUNT], out[COUNT];
static long ask(long number, long first, long second, long third) {
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = first;
  register long x1 __asm__("x1") = second, x2 __asm__("x2") = third;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
static void move(long number, int file, char *data) {
  for (long done = 0, now; done < (long)sizeof(x); done += now)
    if ((now = ask(number, file, (long)(data + done), sizeof(x) - done)) <= 0) ask(EXIT, 1, 0, 0);
}
void _start(void) {
  move(READ, 0, (char *)x);
  for (unsigned f = 0; f < sizeof(functions) / sizeof(functions[0]); f++) {
    functions[f](x, out, COUNT);
    move(WRITE, 1, (char *)out);
  }
  ask(EXIT, 0, 0, 0);
}
"""
COUNT = 4096


@pytest.fixture
def toolchain():
    if read_settings().cc:
        pytest.skip("TILEC_CC is set; cross-building needs zig")
    return find_toolchain(parse_host("aarch64-linux-gnu"))


def _program(toolchain, folder: Path, target: str) -> Path:
    """An executable without a loader and a C library, so that qemu needs no aarch64 system around it."""
    image = compile_kernel(lowered(*(elementwise(name) for name in NAMES)), parse_target(target), "demo")
    (folder / "code.o").write_bytes(image.code)
    symbols = [launch.symbol for launch in image.launches]
    declared = "\n".join(f"void {symbol}(const float *, float *, int64_t);" for symbol in symbols)
    (folder / "main.c").write_text(PROGRAM % (declared, ", ".join(symbols), COUNT))
    driver = [part.replace(toolchain.host.triple, "aarch64-linux-musl") for part in toolchain.driver]
    bare = ("-static", "-nostdlib", "-ffreestanding")
    command = [*driver, "-O1", *bare, "main.c", "code.o", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "program"


@pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 (package qemu-user) is not installed")
@pytest.mark.parametrize("target", ["aarch64", "aarch64+dotprod+fp16+bf16+i8mm"])
def test_error_in_ulp_on_aarch64(toolchain, tmp_path, target):
    x = np.random.default_rng(5).normal(0, 20, COUNT).astype(np.float32)
    x[: SPECIAL.size] = SPECIAL
    program = _program(toolchain, tmp_path, target)
    done = subprocess.run(
        [QEMU, str(program)], input=x.tobytes(), capture_output=True, check=True, timeout=60
    )
    results = np.frombuffer(done.stdout, dtype=np.float32).reshape(len(NAMES), x.size)
    for name, got in zip(NAMES, results, strict=True):
        reference, _, limit = CASES[name]
        usable = ~(np.abs(x) > PERIODIC.get(name, np.inf))
        if name == "sigmoid":
            usable &= ~(x < -87.3)
        with np.errstate(all="ignore"):
            error = ulp_error(got, reference(x.astype(np.float64)))[usable]
        assert error.max() <= limit, f"{name}: {error.max():.2f} ULP"


def test_shared_library_for_aarch64(toolchain, tmp_path):
    image = compile_kernel(lowered(elementwise("exp")), parse_target("aarch64"), "demo")
    (tmp_path / "code.o").write_bytes(image.code)
    output = tmp_path / "libdemo.so"
    toolchain.link_shared([tmp_path / "code.o"], SharedLibrary(output, output.name, ("demo_*",)))
    header = output.read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == 183, "the ELF machine is not EM_AARCH64"
