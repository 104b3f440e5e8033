from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import tilec.build.preload
assert "tvm" in sys.modules and "torch" not in sys.modules
import torch
print(torch.MARK)
"""


def test_torch_looks_absent_to_tvm_alone(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("MARK = 'imported by the kernel'\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("imported by the kernel\n", 0), done.stderr
