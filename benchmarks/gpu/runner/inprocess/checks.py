"""tilec in process on a machine with a GPU and TVM: compiles, tunes, and compares with torch.

    python3 checks.py [--device cpu] [NAME]...

Prints one JSON line for each check: its name, whether it is ok, seconds, and what was seen. Each wants a
process and a cache (TILEC_CACHE_DIR) of its own, and tilec's sources on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: After so many seconds a check says on stderr where it stands.
_LONG = 60
_CONFIGS, _PROCESSES, _ROUNDS = 64, 16, 3
DEVICE = "cuda"
Seen = dict[str, Any]


def machine() -> Seen:
    """What TVM finds here, and which tools compile."""
    import tvm
    from tvm.base import _LOADED_LIBS

    import tilec
    from tilec.backends.cuda.codegen.compilers import describe, find_compiler
    from tilec.codegen.toolchain import tool_versions

    return {
        "tilec": str(Path(tilec.__file__).parent),
        "python": sys.version.split()[0],
        "tvm's libraries": sorted(_LOADED_LIBS),
        "tvm sees a device": bool(tvm.cuda(0).exist),
        "cuda-bindings": _is_there("cuda.bindings"),
        "nvcc": shutil.which("nvcc"),
        "cuda compiler": describe(find_compiler()),
        "tools": tool_versions(),
    }


def report() -> Seen:
    """NVRTC's log of one source compiled twice: with its cache in the driver's, and as tilec asks."""
    from tilec.backends.cuda.codegen.compilers import Nvrtc, find_compiler

    compiler = find_compiler()
    if not isinstance(compiler, Nvrtc):
        return {"left out": "the compiler is no NVRTC"}
    sizes: dict[str, list[int]] = {}
    for name, version in (("with its cache", (0, 0)), ("without", compiler.version)):
        body = f"a[threadIdx.x] = {time.time_ns()};"
        compiler.version = version
        made = [compiler.compile(f"__global__ void k(float *a) {{ {body} }}", "sm_80") for _ in range(2)]
        sizes[name] = [len(each.log) for each in made]
    assert all(sizes["without"]), f"no report: {sizes}"
    return {"bytes of the log": sizes}


def jit() -> Seen:
    """`tilec.jit`, in both forms, against torch."""
    import kernels
    import torch

    torch.manual_seed(0)
    a, b = _operands(500, 264, 392)
    _close(kernels.matmul(500, 264, 392)(a, b), a @ b.T)
    x = torch.randn(100_003, device=DEVICE)
    _close(kernels.scale(x, 3.0), 3 * x)
    rows = torch.randn(77, 512, device=DEVICE)
    _close(kernels.softmax(77, 512)(rows), rows.softmax(1))
    bindings = [name for name in sys.modules if name.startswith("cuda.bindings.nvrtc")]
    return {"kernels": 3, "compilers of others that were loaded": bindings}


def compile() -> Seen:
    """`tilec.compile` of a function, and its sources."""
    import kernels

    import tilec

    kernel = tilec.compile(kernels.matmul.get_tir(256, 256, 256), out_idx=[-1], target=DEVICE)
    a, b = _operands(256, 256, 256)
    _close(kernel(a, b), a @ b.T)
    return {"characters of source": len(kernel.get_kernel_source())}


def par_compile() -> Seen:
    """Many configs in many processes, again and again from an empty cache; some of the kernels run."""
    import kernels

    tiles = list(itertools.product((64, 128), (32, 64, 96, 128), (32, 64), (1, 2, 3, 4)))[:_CONFIGS]
    configs = [(512, 384, 320, *tile) for tile in tiles]
    a, b = _operands(512, 384, 320)
    seen: Seen = {"configs": len(configs), "processes": _PROCESSES, "seconds of a round": [], "failed": []}
    for number in range(_ROUNDS):
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            os.environ["TILEC_CACHE_DIR"] = folder
            made = kernels.matmul.par_compile(configs, num_workers=_PROCESSES, ignore_error=True)
            seen["seconds of a round"].append(round(time.perf_counter() - begin, 1))
            print(f"round {number}: {seen['seconds of a round'][-1]} s", file=sys.stderr, flush=True)
            seen["failed"] += [
                str(each.message)[:600] for each in said if "not compiled" in str(each.message)
            ]
            for config, kernel in zip(configs, made, strict=True):
                if kernel is not None:
                    print(f"runs {config}", file=sys.stderr, flush=True)
                    _close(kernel(a, b), a @ b.T)
    assert not seen["failed"], json.dumps(seen)
    return seen


def autotune() -> Seen:
    """`tilec.autotune` over eight configs."""
    import kernels

    import tilec

    space = {"bM": [64, 128], "bN": [64, 128], "num_stages": [2, 4]}
    search = tilec.autotune(
        configs=space, ref_prog=lambda a, b: a @ b.T, warmup=3, rep=10, rtol=2e-2, atol=2e-2
    )
    kernel = search(kernels.matmul)(1024, 1024, 1024)
    a, b = _operands(1024, 1024, 1024)
    _close(kernel(a, b), a @ b.T)
    return {"config": kernel.config, "milliseconds": kernel.latency}


def tune() -> Seen:
    """`tilec tune` of a small manifest, the build with what it found, and `tilec verify` of that."""
    from tilec.inprocess.targets import resolve_target

    target = resolve_target(DEVICE).name
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(HERE / "kernels.py", folder)
        (folder / "tune.toml").write_text(
            (HERE / "tune.toml")
            .read_text()
            .replace("TARGET", target)
            .replace("KIND", "cuda" if DEVICE == "cuda" else "cpu")
        )
        _tilec(folder, "tune", "tune.toml", "--devices", "cuda:0" if DEVICE == "cuda" else "cpu")
        tuned = (folder / "tune.tuned.toml").read_text()
        _tilec(folder, "build", "tune.toml", "-o", "out")
        _tilec(folder, "verify", "out", *(["--device", "cuda"] if DEVICE == "cuda" else []))
    assert "[[" in tuned, "nothing was stored"
    return {"target": target, "stored": tuned[-400:]}


def _tilec(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "tilec.cli.main", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"tilec {arguments[0]}: {done.stdout[-1500:]}{done.stderr[-1500:]}"


def _operands(m: int, n: int, k: int) -> tuple[Any, Any]:
    """Float16 operands of a product: (m, k) and (n, k)."""
    import torch

    return tuple(torch.randn(size, k, device=DEVICE, dtype=torch.float16) / 4 for size in (m, n))


def _close(got: Any, expected: Any) -> None:
    """Half an ulp of float16 for the result, and sums in another order."""
    import torch

    torch.testing.assert_close(got.float(), expected.float(), rtol=4e-3, atol=4e-3)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


CHECKS: dict[str, Callable[[], Seen]] = {
    check.__name__: check for check in (machine, report, jit, compile, par_compile, autotune, tune)
}


def main() -> int:
    """Runs the checks; exit code 1 where one is not ok."""
    global DEVICE
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CHECKS)}")
    options = parser.parse_args()
    DEVICE = options.device
    done = [_run(name) for name in options.names or CHECKS]
    return int(not all(done))


def _run(name: str) -> bool:
    begin, problem = time.perf_counter(), ""
    seen: Seen = {}
    faulthandler.dump_traceback_later(_LONG, repeat=True)
    try:
        seen = CHECKS[name]()
    except Exception:
        problem = traceback.format_exc()[-3000:]
    said = {"check": name, "ok": not problem, "seconds": round(time.perf_counter() - begin, 1), **seen}
    print(json.dumps({**said, "problem": problem} if problem else said), flush=True)
    return not problem


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main())
