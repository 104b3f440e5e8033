"""Records what a GPU computes for `instruction_cases`.

python record.py prepare FOLDER     builds the kernels for sm_90a with their inputs (no GPU needed)
python run_recorded.py              in that folder, on a machine with such a GPU: writes outputs.npz
python record.py keep OUTPUTS.npz   keeps them as recorded.npz beside this file
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
from instruction_cases import CASES, inputs, launch

from tilec.backends.cuda.codegen import images as cuda
from tilec.lowering.lowered import LoweredKernel
from tilec.targets import parse_target

HERE = Path(__file__).parent
RECORDED = HERE / "recorded.npz"


def prepare(folder: Path) -> None:
    """Writes the kernels, their inputs, and the script that runs them."""
    folder.mkdir(parents=True, exist_ok=True)
    image = cuda.compile_kernel(
        LoweredKernel("cases", tuple(launch(case) for case in CASES)), parse_target("sm_90a"), "case"
    )
    (folder / "cases.cubin").write_bytes(image.code)
    np.savez(folder / "inputs.npz", **{case.name: inputs(case) for case in CASES})
    table = [
        {
            "name": case.name, "symbol": made.symbol, "outputs": case.outputs, "blocks": case.blocks,
            "threads": case.threads, "shared": case.shared, "cluster": case.cluster,
            "maps": [
                {"tensor": each.tensor, "extents": list(map(int, each.extents)),
                 "strides": list(map(int, each.strides)), "box": list(each.box), "swizzle": each.swizzle,
                 "window": each.window and asdict(each.window)}
                for each in case.maps
            ],
        }
        for case, made in zip(CASES, image.launches, strict=True)
    ]  # fmt: skip
    (folder / "cases.json").write_text(json.dumps(table, indent=1))
    shutil.copy(HERE / "run_recorded.py", folder)


def keep(outputs: Path) -> None:
    """Keeps the outputs of a GPU for the tests."""
    found = np.load(outputs)
    np.savez_compressed(RECORDED, **{case.name: found[case.name] for case in CASES})


if __name__ == "__main__":
    {"prepare": prepare, "keep": keep}[sys.argv[1]](Path(sys.argv[2]))
