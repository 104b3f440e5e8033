"""A model of operators as an AOTInductor package, run by a process that has the operators without Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from checks import HERE, Env, LeftOut, check
from model import ROWS, both, close

#: What runs a package: torch, and the libraries of operators that come last.
CONSUMER = """
import sys
import torch
package, data, *libraries = sys.argv[1:]
for library in libraries:
    torch.ops.load_library(library)
model = torch._inductor.aoti_load_package(package)
inputs = torch.load(data)
torch.save([model(x) for x in inputs], data)
"""
LIBRARY = HERE / "lib" / "libdoors_torch.so"


@check("an AOTInductor package in a process without Python's operators")
def _(env: Env) -> None:
    model, peer = both(env)
    inputs = [env.random(count, 128) for count in ROWS]
    with TemporaryDirectory() as folder:
        found = through_package(model, inputs, Path(folder), LIBRARY)
    if isinstance(found, str):
        leave_out_where_torch_fails(env, inputs)
        raise AssertionError(found)
    for x, made in zip(inputs, found, strict=True):
        close(made, peer(x))


def through_package(
    model: torch.nn.Module, inputs: list[torch.Tensor], folder: Path, *libraries: Path
) -> list[torch.Tensor] | str:
    """What a package of ``model`` makes of inputs of so many rows each, in a process with these libraries of
    operators; how that ended, where it did not end well."""
    rows = torch.export.Dim("rows", min=2, max=4096)
    program = torch.export.export(model, (inputs[0],), dynamic_shapes=[{0: rows}])
    package, data = folder / "model.pt2", folder / "data.pt"
    torch._inductor.aoti_compile_and_package(program, package_path=str(package))
    torch.save(inputs, data)
    command = [sys.executable, "-c", CONSUMER, package, data, *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr[-1500:]}"
    return torch.load(data)


def leave_out_where_torch_fails(env: Env, inputs: list[torch.Tensor]) -> None:
    """Raises LeftOut where a process does not run a package of torch's own operators alone either."""
    plain = torch.nn.Linear(inputs[0].shape[1], 8, device=env.device)
    with TemporaryDirectory() as folder:
        found = through_package(plain, inputs, Path(folder))
    if isinstance(found, str):
        raise LeftOut(f"torch {torch.__version__} runs no package of its own either: {found}")
