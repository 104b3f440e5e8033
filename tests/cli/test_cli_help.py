from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Callable

import pytest

from tilec.cli.main import COMMANDS


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command: str, tilec: Callable, golden: Callable[..., None]) -> None:
    outcome = tilec(*command.split(), "--help")
    assert (outcome.code, outcome.err) == (0, "")
    golden(outcome.out, f"{command or 'tilec'}.txt")


def cpu_seconds() -> float:
    """What child processes have used: other work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def quickest(script: str, peer: str) -> tuple[float, set[str]]:
    """CPU seconds of a script that prints what it imported over those of another one, of each the best of
    five runs in turns, and those modules."""
    times: dict[str, list[float]] = {script: [], peer: []}
    loaded = {}
    for _ in range(5):
        for each, found in times.items():
            start = cpu_seconds()
            loaded[each] = imported(each)
            found.append(cpu_seconds() - start)
    return min(times[script]) / min(times[peer]), loaded[script]


def imported(script: str) -> set[str]:
    """The modules that a script says it imported."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(re.findall(r"'([\w]+)'", done.stdout))


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    ratio, loaded = quickest(
        "import sys; from tilec.cli.main import run; run(['--help']); print(sorted(sys.modules))",
        "import click",
    )
    assert not loaded & {"tvm", "numpy", "rich", "pydantic", "tomlkit"}
    assert ratio < 2.4


def test_importing_tilec_is_quick_and_light() -> None:
    ratio, loaded = quickest("import sys, tilec; print(sorted(sys.modules))", "pass")
    assert not loaded & {"tvm", "numpy", "pydantic", "click"}
    assert ratio < 3.2


def test_a_build_that_reuses_everything_loads_no_language() -> None:
    loaded = imported(
        "import sys, tilec.build.library; print([name.replace('.', '_') for name in sys.modules])"
    )
    assert "tilec_build_elaborated_frontend" in loaded
    assert not loaded & {"tvm", "tilec_language", "tilec_lowering"}


def test_the_package_is_the_program_too() -> None:
    command = [sys.executable, "-m", "tilec", "--help"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith(
        "Usage: tilec "
    )


def test_version(tilec: Callable) -> None:
    first, *tools = tilec("--version").out.splitlines()
    assert re.fullmatch(r"tilec \d+\.\d+\.\d+", first)
    assert {"python", "tvm", "zig"} <= {line.split()[0] for line in tools}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["biuld"], "Did you mean 'build'?"),
        (["build"], "Missing argument 'MANIFEST'"),
        (["build", "m.toml", "--jobs", "0"], "'-j'"),
        (["check", "m.toml", "--shape", "x"], "--shapes"),
        (["bench", "lib", "--shape", "M=8,n=0"], "n is 0; it must be 1 or more"),
        (["explain", "m.toml", "k", "--shape", "n=0"], "n is 0; it must be 1 or more"),
        (["cache", "clean"], "clean"),
    ],
)
def test_wrong_usage_is_2(tilec: Callable, arguments: list[str], said: str) -> None:
    outcome = tilec(*arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert "Traceback" not in outcome.err
