"""A model of operators as an AOTInductor package, run by a process that has the operators without Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from checks import HERE, Env, check
from model import ROWS, both, close

#: What runs a package: torch, and the library of operators.
CONSUMER = """
import sys
import torch
library, package, data = sys.argv[1:]
torch.ops.load_library(library)
model = torch._inductor.aoti_load_package(package)
inputs = torch.load(data)
torch.save([model(x) for x in inputs], data)
"""


@check("an AOTInductor package in a process without Python's operators")
def _(env: Env) -> None:
    model, peer = both(env)
    rows = torch.export.Dim("rows", min=2, max=4096)
    program = torch.export.export(model, (env.random(48, 128),), dynamic_shapes=[{0: rows}])
    inputs = [env.random(count, 128) for count in ROWS]
    with TemporaryDirectory() as folder:
        package, data = Path(folder, "model.pt2"), Path(folder, "data.pt")
        torch._inductor.aoti_compile_and_package(program, package_path=str(package))
        torch.save(inputs, data)
        command = [sys.executable, "-c", CONSUMER, HERE / "lib" / "libdoors_torch.so", package, data]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-1500:]
        found = torch.load(data)
    for x, made in zip(inputs, found, strict=True):
        close(made, peer(x))
