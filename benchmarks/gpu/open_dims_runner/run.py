"""Times the products of this folder's libraries beside torch.

    python3 run.py [--json FILE]

Each is compared with torch first, whose sums may differ by some roundings.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from timing import Contestant, cool

from tilec.portable import loader

HERE = Path(__file__).resolve().parent
SHAPES = (
    (4095, 4095, 512), (4095, 4095, 4095), (4096, 4096, 4096), (1001, 1001, 1001), (300, 4097, 1023),
    (2048, 2047, 64), (16, 4095, 4095), (64, 50257, 512),
)  # fmt: skip
_TOLERANCE = 4e-3


def main() -> None:
    """Measures, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    libraries = {path.stem: loader.load(path) for path in sorted(HERE.glob("*.so"))}
    names = list(next(iter(libraries.values())).kernels)
    found: dict[str, dict[str, float]] = {}
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; us\n")
    print(
        f"| kernel | M x N x K | {' | '.join(libraries)} | torch |\n|---|---|{'---|' * (1 + len(libraries))}"
    )
    for name in names:
        for shape in SHAPES:
            times = found[f"{name} {shape}"] = _measured(libraries, name, *shape)
            numbers = " | ".join(f"{us:.1f}" for us in times.values())
            print(f"| `{name}` | {' x '.join(map(str, shape))} | {numbers} |")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def _measured(libraries: dict[str, Any], name: str, rows: int, columns: int, depth: int) -> dict[str, float]:
    """Microseconds of each library's kernel, and of torch."""
    half = {"device": "cuda", "dtype": torch.float16}
    turned = name.startswith("nt")
    a, b = (
        torch.randn(rows, depth, **half),
        torch.randn(*((columns, depth) if turned else (depth, columns)), **half),
    )
    c = torch.empty(rows, columns, device="cuda", dtype=getattr(torch, name.split("_")[1]))
    other = b.t() if turned else b
    wanted = (a @ other).float()
    contestants = []
    for target, library in libraries.items():
        kernel = library.kernels[name]
        c.zero_()
        kernel(a, b, c)
        error = float((c.float() - wanted).abs().max() / wanted.abs().max())
        if error > _TOLERANCE:
            raise SystemExit(f"{name} of {target} at {rows} x {columns} x {depth} is wrong by {error:.1e}")
        contestants.append(Contestant(target, lambda _, kernel=kernel: kernel(a, b, c), 1))
    contestants.append(Contestant("torch", lambda _: a @ other, 1))
    return {each: taken["us"] for each, taken in cool(contestants).items()}


if __name__ == "__main__":
    main()
