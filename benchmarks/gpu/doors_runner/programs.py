"""A C++ program on the header, the library and the driver, without torch or Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from checks import HERE, Env, LeftOut, check


@check("a C++ program, typed calls and the table, on a stream of its own")
def _(env: Env) -> str:
    found = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if found is None:
        raise LeftOut("this machine has no C++ compiler; CXX names one")
    with TemporaryDirectory() as folder:
        program = Path(folder, "program")
        library = HERE / "lib"
        command = [
            *(*found.split(), "-std=c++17", "-O1", "-Wall", "-Wextra", f"-I{HERE / 'include'}"),
            *(
                HERE / "program.cpp",
                "-o",
                program,
                f"-L{library}",
                "-ldoors",
                f"-Wl,-rpath,{library}",
                "-ldl",
            ),
        ]
        _run(command)
        return _run([program, env.device])


def _run(command: list[object]) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-1500:]
    return done.stdout.strip()
