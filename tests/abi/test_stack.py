"""What a call takes of the stack: kernels with large tiles run in a thread with the documented size."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from linked import link

from tilec.build import build
from tilec.sizes import evaluate_size
from tilec.targets import native_target

ROOT = Path(__file__).parents[2]
MANIFEST = """
edition = 1
[package]
name = "deep"
[targets]
cpu = ["{level}"]
[[kernel]]
name = "matmul"
source = "{kernels}/gemm.py:matmul"
dims = {{ M = "dynamic", N = "dynamic", K = "dynamic" }}
config = {{ bM = 64, bN = 64, bK = 32 }}
[[kernel]]
name = "softmax"
source = "{kernels}/softmax.py:softmax"
dims = {{ M = "dynamic", N = "dynamic", ldx = "dynamic" }}
[[kernel]]
name = "attention"
source = "{kernels}/attention.py:attention_dense"
args = {{ dtype = "float32" }}
fallback = "none"
[kernel.dims]
B = "dynamic"
Sq = "dynamic"
Sk = "dynamic"
H = "dynamic"
Hkv = "dynamic"
D = 64
q_batch = "%8"
q_row = "%8"
kv_batch = "%8"
kv_row = "%8"
"""
SIZES = {"M": 70, "N": 130, "K": 65, "B": 1, "Sq": 70, "Sk": 130, "H": 2, "Hkv": 2, "D": 64}
SIZES |= {"ldx": 130, "q_row": 128, "q_batch": 70 * 128, "kv_row": 128, "kv_batch": 130 * 128}
#: Runs every kernel of a library on one thread, first as it is, then on a small stack.
CALLS = """
import ctypes, json, sys
import numpy as np
library = ctypes.CDLL(sys.argv[1])
small = ctypes.CDLL(sys.argv[2]).on_small_stack
small.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
found = {}
for name, shapes, dims in json.loads(sys.argv[3]):
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    passed = (ctypes.c_long * 16)(0, *(array.ctypes.data for array in arrays), *dims)
    function = ctypes.cast(getattr(library, "deep_" + name), ctypes.c_void_p)
    found[name] = [small(function, passed, size) for size in (1 << 20, int(sys.argv[4]))]
print(json.dumps(found))
"""


def documented_bytes() -> int:
    """What docs/abi.md promises to be enough."""
    said = re.search(r"(\d+) KiB of stack", (ROOT / "docs" / "abi.md").read_text())
    assert said is not None
    return int(said.group(1)) * 1024


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stack") / "small_stack.so"
    source = ROOT / "tests" / "abi" / "programs" / "small_stack.c"
    link("-shared", "-fPIC", source, "-o", out, "-lpthread")
    return out


def calls(metadata: Path) -> list[tuple[str, list[list[int]], list[int]]]:
    """Name, shapes of the tensors and dims of every kernel."""
    kernels = json.loads(metadata.read_text())["kernels"]
    return [
        (
            kernel["name"],
            [[evaluate_size(extent, SIZES) for extent in param["extents"]] for param in kernel["params"]],
            [SIZES[dim["name"]] for dim in kernel["dims"]],
        )
        for kernel in kernels
    ]


def test_calls_fit_the_documented_stack(helper: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "deep.toml"
    manifest.write_text(MANIFEST.format(level=native_target().level, kernels=ROOT / "examples" / "kernels"))
    library = build(manifest, tmp_path / "out").report.library
    listed = json.dumps(calls(tmp_path / "out" / "metadata.json"))
    command = [sys.executable, "-c", CALLS, str(library), str(helper), listed, str(documented_bytes())]
    env = {"TILEC_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, f"a call ran over the end of its stack: {done.returncode} {done.stderr}"
    assert json.loads(done.stdout) == {name: [0, 0] for name in ("matmul", "softmax", "attention")}
