"""Any number of libraries in one process: thread locals do not come from the process's static block."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from breadth import parametrized

from tilec.elf import parse_library
from tilec.package.write import BuildReport

#: Loads copies of the library and calls each of them, in this thread and in one that ends: with an error, so
#: that a thread keeps something.
CHILD = """
import sys
import threading
from importlib import import_module
from pathlib import Path
import numpy as np
if sys.argv[2]:
    import_module(sys.argv[2])
from tilec.portable.loader import LaunchError, load

x = np.arange(64, dtype=np.float32).reshape(4, 16)
libraries = [load(path) for path in sorted(Path(sys.argv[1]).glob("*.so"))]
wrong = []

def work():
    for at, library in enumerate(libraries):
        if not np.allclose(library.normalize(x).sum(1), 1, atol=2e-3):
            wrong.append(f"{at}: a wrong result")
        try:
            library.matmul(x, x)
        except (LaunchError, ValueError) as error:
            if "matmul" not in str(error):
                wrong.append(f"{at}: {error}")
        else:
            wrong.append(f"{at}: no error")

work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(len(libraries), *wrong)
"""


@parametrized(("count", "first"), [(1100, ""), (500, "torch")], fast=[(1100, "")])
def test_they_load_and_run(sample: BuildReport, tmp_path: Path, count: int, first: str) -> None:
    """More than the 1024 keys of thread-specific data that a process has; and after torch."""
    if first and importlib.util.find_spec(first) is None:
        pytest.skip(f"{first} is not installed")
    for number in range(count):
        shutil.copyfile(sample.library, tmp_path / f"{number}.so")
    environment = {**os.environ, "TILEC_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD, str(tmp_path), first]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{count}\n"), done.stderr[-2000:]


def test_a_library_takes_none_of_the_static_block(sample: BuildReport) -> None:
    flags = dict(parse_library(sample.library.read_bytes()).tags).get(30, 0)  # DT_FLAGS
    assert not flags & 0x10  # DF_STATIC_TLS
