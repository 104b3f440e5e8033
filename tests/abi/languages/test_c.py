"""Programs in C11 and C++17 against a built library, shared and static."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from linked import link
from samples import sample_spec

from tilec.package.write import BuildReport, write_package
from tilec.targets import native_host


@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
@pytest.mark.parametrize("flags", [("-std=c11",), ("-std=c++17", "-x", "c++")], ids=["c11", "c++17"])
def test_typed_door(program: Callable[..., Path], flags: tuple[str, ...], static: bool) -> None:
    made = program("typed.c", *flags, static=static)
    done = subprocess.run([made], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("ok\n", 0)


def test_plans(program: Callable[..., Path]) -> None:
    done = subprocess.run([program("plan.c", "-std=c11")], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("ok\n", 0)


TWO_LIBRARIES = """
#include <other.h>
#include <sample.h>
#include <string.h>
int main(void) {
  float a[2] = {1, 2}, c[2] = {0, 0};
  if (sample_add(NULL, a, a, c, 2) != TILEC_OK || c[1] != 4) return 1;
  if (other_add(NULL, a, c, c, -1) != TILEC_ERR_SHAPE || sample_last_error()[0] != '\\0') return 2;
  if (strcmp(sample_library()->name, "sample") != 0 || strcmp(other_library()->name, "other") != 0) return 3;
  return sample_check_build(OTHER_BUILD_ID) == TILEC_ERR_ABI ? 0 : 4;
}
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    """The same kernels under another name."""
    return write_package(sample_spec(native_host(), "other"), tmp_path_factory.mktemp("other"), static=True)


@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
def test_two_libraries_in_one_program(
    sample: BuildReport, other: BuildReport, tmp_path: Path, static: bool
) -> None:
    (tmp_path / "two.c").write_text(TWO_LIBRARIES)
    libraries = [each.archive if static else each.library for each in (sample, other)]
    flags: list[object] = [tmp_path / "two.c", "-o", tmp_path / "two", *libraries]
    for each in (sample, other):
        flags += [f"-I{each.out_dir / 'include'}", f"-Wl,-rpath,{each.library.parent}"]
    link(*flags, "-lpthread", "-ldl")
    assert subprocess.run([tmp_path / "two"], check=False).returncode == 0


@pytest.mark.parametrize("threads", ["1", "4"])
def test_libraries_that_come_and_go(
    program: Callable[..., Path], sample: BuildReport, other: BuildReport, threads: str
) -> None:
    """Opened and closed a thousand times beside each other, while threads call."""
    made = program("unload.c", "-std=gnu11", linked=False)
    command = [made, sample.library, other.library]
    env = {**os.environ, "TILEC_NUM_THREADS": threads}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert (done.stdout, done.returncode) == ("ok\n", 0)
