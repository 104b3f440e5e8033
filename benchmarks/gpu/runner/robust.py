"""What an engine relies on beside right numbers: capture, streams, threads, forks, errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from cases import Case, read_cases
from loader import LaunchError, load

HERE = Path(__file__).resolve().parent


def capture(library: Any, cases: list[Case]) -> list[str]:
    """Every case in one graph after preload, replayed over poisoned outputs."""
    library.preload("cuda:0")
    held = [(case, case.arguments()) for case in cases]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for case, arguments in held:
            case.call(library.kernels[case.entry["kernel"]], arguments)
    graph.replay()
    torch.cuda.synchronize()
    return [f"{case.name}: {text}" for case, arguments in held for text in case.problems(arguments)[1]]


def streams(library: Any, cases: list[Case]) -> list[str]:
    """The cases from four threads at once, each on a stream of its own."""
    found: list[str] = []

    def work() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for case in cases:
                arguments = case.arguments()
                case.call(library.kernels[case.entry["kernel"]], arguments)
                stream.synchronize()
                found.extend(f"{case.name}: {text}" for text in case.problems(arguments)[1])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def errors(library: Any, cases: list[Case]) -> list[str]:
    """Calls that must fail with a status, and change nothing."""
    case = cases[0]
    kernel, found = library.kernels[case.entry["kernel"]], []
    arguments = case.arguments()
    first = next(name for name, value in arguments.items() if hasattr(value, "tensor"))
    mixed = {**arguments, first: arguments[first].tensor.cpu()}
    found += _status("tensors of two devices", "TILEC_ERR_DEVICE", lambda: case.call(kernel, mixed))
    count = torch.cuda.device_count()
    found += _status("a missing device", "TILEC_ERR_DEVICE", lambda: library.preload(f"cuda:{count}"))
    child = os.fork()
    if child == 0:
        problem = _status("a forked child", "TILEC_ERR_DEVICE", lambda: library.preload("cuda:0"))
        os._exit(len(problem))
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        found.append("a forked child: not refused with TILEC_ERR_DEVICE")
    return found


def cold_capture() -> list[str]:
    """A first call while a stream captures, in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(HERE / "robust.py")], capture_output=True, text=True, check=False, timeout=120
    )
    return [] if done.returncode == 0 else [f"a cold call in capture: {done.stdout}{done.stderr}"[-2000:]]


def _status(what: str, wanted: str, call: Any) -> list[str]:
    try:
        call()
    except LaunchError as error:
        return [] if error.name == wanted else [f"{what}: {error.name}, not {wanted}: {error}"]
    return [f"{what}: the call was not refused"]


def _refused_while_capturing() -> list[str]:
    name, cases = read_cases(torch.device("cuda:0"))
    library, case = load(HERE / name), _served(cases)
    arguments = case.arguments()
    torch.cuda.synchronize()
    graph, found = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        torch.zeros(1, device="cuda")  # a graph that captured nothing makes torch warn
        kernel = library.kernels[case.entry["kernel"]]
        found += _status("capture", "TILEC_ERR_NOT_PRELOADED", lambda: case.call(kernel, arguments))
    case.call(library.kernels[case.entry["kernel"]], arguments)
    torch.cuda.synchronize()
    return found + case.problems(arguments)[1]


def _served(cases: list[Case]) -> Case:
    """A case that this device may run."""
    major, minor = torch.cuda.get_device_capability()
    exact = [case for case in cases if case.entry["target"] in (f"sm_{major}{minor}a", f"sm_{major}{minor}")]
    return (exact or [case for case in cases if case.entry["target"].startswith("compute")])[0]


if __name__ == "__main__":
    problems = _refused_while_capturing()
    print("\n".join(problems))
    sys.exit(bool(problems))
