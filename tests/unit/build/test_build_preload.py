from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from tilec.build.processes import pool
from tilec.errors import CompileError

#: A line for each test: what a process has that is ready to compile, and what compiling adds.
READY = """
import sys
import tilec.build.processes.preload
assert "tvm" in sys.modules and "torch" not in sys.modules
from hazards import KERNELS
from tilec.backends.base import backend_of
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.build.reuse.images import image_of
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target
kernel, before = parse_kernel(KERNELS["division"]), set(sys.modules)
cpu, gpu = map(parse_target, ("x86-64-v3", "sm_90a"))
for target in (cpu, gpu):
    to_tir(lower(kernel, target), target)
    backend_of(target).generator()
print("modules:", *(name for name in sys.modules if name.startswith("tilec.") and name not in before))
image_of(kernel, cpu, None)
backend_of(gpu).device_functions(to_tir(lower(kernel, gpu), gpu), gpu, "x")
models = "tvm.relax" in sys.modules
import tvm
from tvm import s_tir
names = tvm.topi.add.__name__, s_tir.transform.LowerOpaqueBlock.__name__
print("models:", models, *names, hasattr(tvm, "nothing"))
import torch
print("torch:", torch.MARK)
"""


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What one such process says, beside a torch that is none."""
    folder = tmp_path_factory.mktemp("ready")
    (folder / "torch.py").write_text("MARK = 'the-kernels'\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run([sys.executable, "-c", READY], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {
        name: said.split() for name, _, said in (line.partition(":") for line in done.stdout.splitlines())
    }


def test_torch_looks_absent_to_tvm_alone(ready: dict[str, list[str]]) -> None:
    assert ready["torch"] == ["the-kernels"]


def test_torch_looks_absent_to_the_tvm_of_verification(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("MARK = 'the-kernels'\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    script = "import sys, tilec.verify.worker; print('tvm' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("True False\n", 0), done.stderr


def test_what_compiles_is_there_before_processes_are_forked(ready: dict[str, list[str]]) -> None:
    assert ready["modules"] == []


def test_models_of_tvm_are_loaded_when_a_kernel_asks(ready: dict[str, list[str]]) -> None:
    assert ready["models"] == ["False", "add", "LowerOpaqueBlock", "False"]


IN_PROCESSES = """
import os
from tilec.build.processes.pool import run_tasks
if __name__ == "__main__":
    run_tasks(os.getenv, ["PYTHONSAFEPATH"] * 2, 2, lambda _at, found: print(found))
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 always searches the working folder")
def test_compile_processes_import_nothing_from_the_working_folder(tmp_path: Path) -> None:
    for name in ("tilec", "tvm"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a decoy was imported')\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    script = tmp_path / "scripts" / "script.py"
    script.parent.mkdir()
    script.write_text(IN_PROCESSES)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["None", "None"]), done.stderr


WAITING = """
from tilec.build.processes.pool import run_tasks
if __name__ == "__main__":
    run_tasks(exec, ["print('.', flush=True); __import__('time').sleep(600)"] * 2, 2, print)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others tell no child that its parent ended")
def test_no_compile_process_outlives_a_build_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WAITING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(tmp_path / "script.py")]
    build = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert build.stdout is not None
    assert [build.stdout.readline() for _ in range(2)] == [".\n"] * 2
    build.kill()
    assert build.communicate(timeout=30)[0] == ""  # ends with the last process that may write to it


SENDING = """
from tilec.build.processes.pool import run_tasks
if __name__ == "__main__":
    run_tasks(eval, ["missing", *["bytes(1 << 25)"] * 20], 2, lambda *_: None)
"""


def test_a_process_that_ends_while_it_sends_is_not_waited_for(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SENDING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, timeout=150)
    assert b"'missing' is not defined" in done.stderr


DYING = """
import sys
from tilec.build.processes.pool import run_tasks
if __name__ == "__main__":
    tasks = ["1", "__import__('os').kill(__import__('os').getpid(), 9)", "2", "3"]
    asked = tasks[1:2] if "alone" in sys.argv else tasks
    jobs = 1 if "one after the other" in sys.argv else 2
    run_tasks(eval, asked, jobs, lambda *_: None, lambda task: f"task {tasks.index(task)}")
"""


@pytest.mark.parametrize("tasks", ["of several", "alone", "one after the other"])
def test_a_process_that_dies_is_told_with_what_it_did(tmp_path: Path, tasks: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(DYING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(script), tasks]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert "CompileError: a compile process died" in done.stderr
    (line,) = (line for line in done.stderr.splitlines() if "under way were: " in line)
    assert "task 1" in line


def test_a_process_that_dies_while_others_are_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(self: ProcessPoolExecutor, *_: object) -> Future[None]:
        raise BrokenProcessPool("it died")

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit)
    with pytest.raises(CompileError, match="a compile process died"):
        pool.run_tasks(str, ["1", "2"], 2, lambda *_: None)


def test_signals_wait_until_a_process_is_started() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))
    try:
        with pool._interrupts_deferred():
            signal.raise_signal(signal.SIGTERM)
            assert seen == []
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
