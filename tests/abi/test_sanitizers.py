"""The runtime under Address-, UndefinedBehavior- and ThreadSanitizer, with the system's compiler.

The library, its kernels and the program are all instrumented; a report of a sanitizer ends the program."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from fuzzing import ADDRESS, PROGRAMS, build_libraries, check, works

CC = shutil.which("cc")
FLAGS = {"address": ADDRESS, "thread": ("-fsanitize=thread",)}


@dataclass(frozen=True)
class Instrumented:
    """A folder with both sample libraries, the stand-in driver, and how programs are compiled for them."""

    kind: str
    folder: Path
    compiler: tuple[str, ...]

    def run(self, programs: str, library: str, *arguments: str, **environment: str) -> str:
        """What a program of one or more sources prints."""
        sources = [str(PROGRAMS / name) for name in programs.split()]
        out = self.folder / Path(sources[0]).stem
        package = self.folder / library
        command = [
            *(*self.compiler, "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"),
            *("-I", str(package / "include"), *sources, "-o", str(out)),
            *(str(package / "lib" / f"lib{library}.so"), f"-Wl,-rpath,{package / 'lib'}", "-lpthread"),
        ]
        check(command)
        env = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1", **environment}
        env["LD_LIBRARY_PATH"] = str(self.folder)
        return check([*fixed_addresses(self.kind), str(out), *arguments], env)


def fixed_addresses(kind: str) -> list[str]:
    """ThreadSanitizer of older compilers does not know how far kernels spread addresses today."""
    setarch = shutil.which("setarch")
    return [setarch, "-R"] if kind == "thread" and setarch else []


@pytest.fixture(scope="module", params=FLAGS)
def instrumented(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Instrumented:
    kind = request.param
    folder = tmp_path_factory.mktemp(kind)
    if CC is None:
        pytest.skip("no C compiler (cc) beside zig, which has no such sanitizers")
    compiler = (CC, *FLAGS[kind])
    if not works(compiler, folder, "int main(void) { return 0; }\n", fixed_addresses(kind)):
        pytest.skip(f"{CC} makes no programs with -fsanitize={kind} that run here")
    build_libraries(folder, compiler, "sample", "gpu_sample")
    driver = str(folder / "libcuda.so.1")
    check([*compiler, "-shared", "-fPIC", "-O1", PROGRAMS / "fake_cuda.c", "-o", driver])
    return Instrumented(kind, folder, compiler)


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "3"])
def test_eight_threads_at_once(instrumented: Instrumented, threads: str) -> None:
    # A child of a process with threads cannot be looked at by ThreadSanitizer.
    arguments = ["fork"] if instrumented.kind == "address" else []
    assert instrumented.run("storm.c", "sample", *arguments, TILEC_NUM_THREADS=threads) == "ok\n"


@pytest.mark.slow
def test_eight_threads_at_once_on_two_gpus(instrumented: Instrumented) -> None:
    leaks = "detect_leaks=0"  # those of the stand-in
    fake = {"FAKE_CUDA": "2 80 12090", "FAKE_CUDA_QUIET": "1", "ASAN_OPTIONS": leaks}
    assert instrumented.run("storm_cuda.c", "gpu_sample", **fake) == "ok\n"


def test_programs_of_the_other_tests(instrumented: Instrumented) -> None:
    # threads.c forks.
    programs = {"address": ("typed.c", "plan.c", "threads.c"), "thread": ("plan.c",)}
    for program in programs[instrumented.kind]:
        assert instrumented.run(program, "sample", TILEC_NUM_THREADS="2") == "ok\n", program


def test_random_calls_are_answered(instrumented: Instrumented) -> None:
    if instrumented.kind == "thread":
        return  # one thread
    said = instrumented.run("fuzz.c fuzz_random.c", "sample", "30000", TILEC_NUM_THREADS="1")
    assert int(said.split()[2]) > 1000, said
