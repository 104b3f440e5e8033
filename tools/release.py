"""Makes the files of a release and tries them as a stranger would: `make release`.

    python tools/release.py [FOLDER]                    (default: dist/release)

The wheel is built from the sdist. Both pass `twine check`, the wheel `check-wheel-contents`; then it is
installed in an empty environment, where a new project is built, checked and called from C, with no other
compiler than the one that tilec brings. A tag of the commit, v1.2.3, has to name the version. Stops at the
first step that fails, with its words.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Every step, with its time."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist" / "release").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    step("build", [sys.executable, "-m", "build", "--outdir", folder, ROOT])
    made = sorted(folder.iterdir())
    (wheel,) = folder.glob("*.whl")
    require_tags(wheel.name.split("-")[1], tags())
    step("twine check", [sys.executable, "-m", "twine", "check", "--strict", *made])
    step("check-wheel-contents", [sys.executable, "-m", "check_wheel_contents", wheel])
    with tempfile.TemporaryDirectory(prefix="tilec-release-") as name:
        as_a_stranger(wheel, Path(name))
    print(*made, sep="\n")


def tags() -> list[str]:
    """Those of the commit that are of versions; none outside of a repository."""
    command = ["git", "tag", "--points-at", "HEAD", "--list", "v[0-9]*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()


def require_tags(version: str, found: list[str]) -> None:
    """Ends the run where a tag names another version."""
    wrong = [tag for tag in found if tag != f"v{version}"]
    if wrong:
        where = "tilec/__init__.py has the version: change it and commit, then tag that commit"
        sys.exit(f"the commit is tagged {', '.join(wrong)}, and its version is {version}; {where}")


def as_a_stranger(wheel: Path, folder: Path) -> None:
    """What README and the new project's own README say, in an empty environment."""
    environment = folder / "env"
    venv.create(environment, with_pip=True)
    programs = environment / "bin"
    tilec, python = programs / "tilec", programs / "python"
    step("install", [python, "-m", "pip", "install", "--quiet", wheel], folder)
    step("tilec --version", [tilec, "--version"], folder)
    step("tilec init", [tilec, "init", "demo"], folder)
    project = folder / "demo"
    package = project / "dist" / "demo"
    step("tilec build", [tilec, "build", "demo.toml"], project)
    step("tilec verify", [tilec, "verify", package, "--manifest", "demo.toml"], project)
    library = ["-I", package / "include", "-L", package / "lib", "-ldemo", f"-Wl,-rpath,{package / 'lib'}"]
    step("C program", [python, "-m", "ziglang", "cc", "-O2", "main.c", "-o", "main", *library], project)
    step("./main", [project / "main"], project)


def step(name: str, command: list[object], folder: Path = ROOT) -> None:
    """Runs a command; nothing of this checkout, nor of this machine's compilers, reaches it."""
    hidden = ("PYTHONPATH", "TILEC_CC", "VIRTUAL_ENV")
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    words, start = list(map(str, command)), time.monotonic()
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    print(f"{name:22} {time.monotonic() - start:6.1f} s", flush=True)
    if done.returncode:
        sys.exit(f"{shlex.join(words)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
