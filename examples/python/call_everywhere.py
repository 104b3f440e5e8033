"""Calls the library of manifests/hosts.toml for the machine that this runs on, and compares it with NumPy:

    python examples/python/call_everywhere.py dist/everywhere

Needs NumPy and the package, nothing of tilec's."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np

if len(sys.argv) != 2 or not Path(sys.argv[1], "python", "everywhere").is_dir():
    sys.exit("usage: python call_everywhere.py FOLDER, which tilec build manifests/hosts.toml wrote")
sys.path.insert(0, str(Path(sys.argv[1], "python")))

import everywhere


def check(rows: int) -> None:
    random = np.random.default_rng(rows)
    a, b = (random.standard_normal(shape, np.float32) for shape in ((rows, 90), (90, 130)))
    np.testing.assert_allclose(everywhere.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)


def main() -> None:
    for rows in (1, 16, 70, 300):
        check(rows)
    threads = [threading.Thread(target=check, args=(rows,)) for rows in (5, 33, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        everywhere.matmul(np.zeros((4, 4), np.float32), np.zeros((5, 4), np.float32))
    except everywhere.LaunchError as error:
        print(f"refused, as it should be: {error}")
    else:
        raise SystemExit("operands that do not fit were taken")
    print(f"{everywhere.library.path}: right")


if __name__ == "__main__":
    main()
