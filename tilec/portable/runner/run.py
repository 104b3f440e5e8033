"""Measures the candidates beside this file on this machine: `python run.py --help`."""

import os
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
os.environ["PYTHONPATH"] = str(FOLDER)

from tilec.portable.runner.main import main  # noqa: E402

sys.exit(main(["--folder", str(FOLDER), *sys.argv[1:]]))
