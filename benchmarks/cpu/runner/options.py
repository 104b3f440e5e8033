"""What the runner is told, known before anything is built."""

from __future__ import annotations

import argparse
from pathlib import Path

from table import GROUPS


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options of run.py."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, action="append", help="default: 1, then all CPUs")
    parser.add_argument("--only", action="append", choices=(*GROUPS, "random"), default=[])
    parser.add_argument("--large", action="store_true", help="products of 4096^3, too")
    parser.add_argument(
        "--random", type=int, default=0, help="so many float32 products of random shapes, too"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    return parser
