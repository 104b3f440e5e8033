"""The runtime under Address-, UndefinedBehavior- and ThreadSanitizer, with the system's compiler.

The library, its kernels and the program are all instrumented; a report of a sanitizer ends the program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CC = shutil.which("cc")
FLAGS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread",),
}
BUILD = """
import sys
from pathlib import Path
from cuda_samples import cuda_spec
from samples import sample_spec
from tilec.package.write import write_package
from tilec.targets import native_host
for spec in (sample_spec(native_host()), cuda_spec(native_host())):
    write_package(spec, Path(sys.argv[1]) / spec.name)
"""
PROBE = '#include <stdio.h>\nint main(void) { return printf("%d", 3) - 1; }\n'


@dataclass(frozen=True)
class Instrumented:
    """A folder with both sample libraries, the stand-in driver, and how programs are compiled for them."""

    kind: str
    folder: Path
    compiler: tuple[str, ...]

    def run(self, program: str, library: str, *arguments: str, **environment: str) -> str:
        out = self.folder / Path(program).stem
        package = self.folder / library
        command = [
            *(*self.compiler, "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"),
            *("-I", str(package / "include"), str(HERE / "programs" / program), "-o", str(out)),
            *(str(package / "lib" / f"lib{library}.so"), f"-Wl,-rpath,{package / 'lib'}", "-lpthread"),
        ]
        check(command)
        env = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1", **environment}
        env["LD_LIBRARY_PATH"] = str(self.folder)
        return check([*fixed_addresses(self.kind), str(out), *arguments], env)


def check(command: list[str], env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=env)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


def fixed_addresses(kind: str) -> list[str]:
    """ThreadSanitizer of older compilers does not know how far kernels spread addresses today."""
    setarch = shutil.which("setarch")
    return [setarch, "-R"] if kind == "thread" and setarch else []


@pytest.fixture(scope="module", params=FLAGS)
def instrumented(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Instrumented:
    folder = tmp_path_factory.mktemp(request.param)
    if CC is None:
        pytest.skip("no C compiler (cc) beside zig, which has no such sanitizers")
    compiler = (CC, *FLAGS[request.param])
    (folder / "probe.c").write_text(PROBE)
    probe = [*compiler, str(folder / "probe.c"), "-o", str(folder / "probe")]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{CC} has no -fsanitize={request.param}")
    if (
        subprocess.run([*fixed_addresses(request.param), folder / "probe"], capture_output=True).returncode
        != 0
    ):
        pytest.skip(f"programs with -fsanitize={request.param} do not start here")
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "TILEC_CC": " ".join(compiler), "PYTHONPATH": paths}
    check([sys.executable, "-c", BUILD, str(folder)], env)
    driver = str(folder / "libcuda.so.1")
    check([*compiler, "-shared", "-fPIC", "-O1", str(HERE / "programs" / "fake_cuda.c"), "-o", driver])
    return Instrumented(request.param, folder, compiler)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_eight_threads_at_once(instrumented: Instrumented, threads: str) -> None:
    # A child of a process with threads cannot be looked at by ThreadSanitizer.
    arguments = ["fork"] if instrumented.kind == "address" else []
    assert instrumented.run("storm.c", "sample", *arguments, TILEC_NUM_THREADS=threads) == "ok\n"


def test_eight_threads_at_once_on_two_gpus(instrumented: Instrumented) -> None:
    leaks = "detect_leaks=0"  # those of the stand-in
    fake = {"FAKE_CUDA": "2 80 12090", "FAKE_CUDA_QUIET": "1", "ASAN_OPTIONS": leaks}
    assert instrumented.run("storm_cuda.c", "gpu_sample", **fake) == "ok\n"


def test_programs_of_the_other_tests(instrumented: Instrumented) -> None:
    # threads.c forks.
    programs = {"address": ("typed.c", "plan.c", "threads.c"), "thread": ("plan.c",)}
    for program in programs[instrumented.kind]:
        assert instrumented.run(program, "sample", TILEC_NUM_THREADS="2") == "ok\n", program
