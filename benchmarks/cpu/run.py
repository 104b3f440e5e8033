"""Kernels of manifests/llm.toml on a CPU, each beside the best of its peers in one run: float32 products
beside torch, oneDNN, NumPy and onnxruntime, the rest beside torch.

    python benchmarks/cpu/run.py [--random 40 --seed 1] [--only products] [--json times.json]
    python benchmarks/cpu/run.py -o DIR [--target x86-64-v4]      # a folder for another machine

The folder holds the kernels built as a user builds them and a run.py with the same options, which needs
Python, NumPy and torch there, but not tilec. Without ``-o`` it is run here. Its ``--help`` says what is
measured.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tilec.build import build
from tilec.manifest import load_manifest
from tilec.targets import native_target, parse_target

HERE = Path(__file__).resolve().parent
_ROOT = HERE.parent.parent
_RUNNER = HERE / "runner"
_BUILT = Path("dist/cpu-bench")
_MANIFEST = _ROOT / "manifests/llm.toml"
sys.path.insert(0, str(_RUNNER))

from options import parser as runner_parser  # noqa: E402 (beside the runner, which knows no tilec)
from table import KERNELS  # noqa: E402


def main() -> None:
    """Writes the folder, and runs it unless it is for another machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, help="write the folder and stop")
    parser.add_argument(
        "--target",
        action="append",
        help="CPU targets; default: those of this machine's level that the manifest or kernels name",
    )
    options, rest = parser.parse_known_args()
    runner_parser(None).parse_args(rest)
    targets = options.target or own_targets()
    if options.out is not None:
        return write_folder(options.out, targets)
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), targets)
        sys.exit(subprocess.run([sys.executable, Path(folder) / "run.py", *rest], check=False).returncode)


def own_targets() -> list[str]:
    """The targets that a library for this machine has. One with every feature of the machine may be none that
    kernels have schedules for: it would measure what nobody ships."""
    native = native_target()
    plans = load_manifest(_MANIFEST, kernels=KERNELS).kernels
    named = {name for plan in plans for name in plan.entry.targets or ()}
    named |= {variant.target.name for plan in plans for variant in plan.variants}
    of_level = (parse_target(name) for name in named if name.partition("+")[0] == native.level)
    return sorted(target.name for target in of_level if set(target.features) <= set(native.features))


def write_folder(out: Path, targets: list[str]) -> None:
    """The library with its metadata, and what runs it."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(_RUNNER, out, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_ROOT / "examples/kernels/torch_peers.py", out)
    result = build(_MANIFEST, _BUILT, targets=targets, kernels=KERNELS)
    shutil.copy(result.report.library, out / "kernels.so")
    shutil.copy(_BUILT / "metadata.json", out)


if __name__ == "__main__":
    main()
