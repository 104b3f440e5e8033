"""What an engine relies on beside right numbers: capture, streams, threads, contexts, devices, forks, errors.

Checks that may take the process's context away run in a process of their own: ``python3 robust.py NAME``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import driver
import numpy as np
from cases import Call, Case, read_cases

from tilec.portable.guarded import Guarded, OnDevice
from tilec.portable.loader import LaunchError, Library, load

HERE = Path(__file__).resolve().parent
_THREADS = 4
_PATIENCE = 60.0
Change = Callable[[OnDevice], dict[str, Any]]


def in_process(
    library: Library, cases: list[Case], foreign: list[Case]
) -> dict[str, Callable[[], list[str]]]:
    """The checks that leave this process as it was. ``cases``: those that the device runs; ``foreign``: those
    of other architectures."""
    return {
        "capture": lambda: capture(library, cases),
        "streams": lambda: streams(library, cases),
        "second context": lambda: second_context(library, cases),
        "all devices": lambda: all_devices(library, cases),
        "refused calls": lambda: refused_calls(library, cases, foreign),
        "forked child": lambda: forked_child(library),
    }


def capture(library: Library, cases: list[Case]) -> list[str]:
    """Every case in one graph after preload, replayed over poisoned outputs. The first, eager round grows the
    workspaces."""
    library.preload("cuda:0")
    stream = driver.Stream()
    for case in cases:
        Call(case).run(library, stream=stream.handle)
    calls = [Call(case) for case in cases]
    driver.begin_capture(stream)
    for call in calls:
        call.run(library, stream=stream.handle)
    driver.Graph(stream).launch(stream)
    stream.synchronize()
    return _problems(cases, calls)


def streams(library: Library, cases: list[Case]) -> list[str]:
    """The cases from several threads at once, each on a stream of its own."""
    found: list[str] = []

    def work() -> None:
        driver.start()
        stream = driver.Stream()
        calls = [Call(case) for case in cases]
        try:
            for call in calls:
                call.run(library, stream=stream.handle)
            stream.synchronize()
            found.extend(_problems(cases, calls))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def second_context(library: Library, cases: list[Case]) -> list[str]:
    """In a context beside the device's primary one, which has loaded the kernels; on a stream of it from the
    primary one; and in that again."""
    with driver.own_context():
        found = _run_all(library, cases) + _from_primary(library, cases)
    return found + _run_all(library, cases)


def _from_primary(library: Library, cases: list[Case]) -> list[str]:
    """On a stream and memory of the current context, with the primary one current."""
    stream, calls = driver.Stream(), [Call(case) for case in cases]
    driver.start()
    for call in calls:
        call.run(library, stream=stream.handle)
    stream.synchronize()
    return _problems(cases, calls)


def all_devices(library: Library, cases: list[Case]) -> list[str]:
    """On every device in turn, whichever context is current."""
    return [text for number in range(driver.device_count()) for text in _run_all(library, cases, number)]


class _Other:
    """``tensor`` at another address, or said to be in host memory."""

    def __init__(self, tensor: OnDevice, shift: int = 0, address: int = 0, kind: str = "cuda") -> None:
        self._tensor, self._address = tensor, address or tensor.data_ptr() + shift
        self.shape, self.dtype = tensor.shape, tensor.dtype
        self.device = SimpleNamespace(type=kind, index=0)

    def data_ptr(self) -> int:
        return self._address

    def stride(self) -> tuple[int, ...]:
        return self._tensor.stride()


def refused_calls(library: Library, cases: list[Case], foreign: list[Case]) -> list[str]:
    """Calls that must fail with a status, and change nothing. ``foreign``: cases of other architectures."""
    case = max(cases, key=lambda case: len(case.params))
    # The loader takes the device of a call from its first tensor: another one is in the wrong place.
    last = [param["name"] for param in case.params if "scalar" not in param][-1]

    def refused(
        what: str, wanted: str, change: Change = lambda _: {}, stream: int | None = None
    ) -> list[str]:
        call, untouched = Call(case), Call(case)
        found = _status(what, wanted, lambda: call.run(library, change(call.placed[last]), stream=stream))
        call.fetch()
        written = [name for name, host in call.host.items() if _differ(host, untouched.host[name])]
        return found + [f"{what}: {name} was written" for name in written]

    found = refused(
        "a tensor in host memory", "TILEC_ERR_DEVICE", lambda each: {last: _Other(each, kind="cpu")}
    )
    found += refused("a misaligned tensor", "TILEC_ERR_LAYOUT", lambda each: {last: _Other(each, shift=8)})
    if driver.device_count() > 1:
        with driver.own_context(1):
            stream = driver.Stream()
            found += refused("a stream of another device", "TILEC_ERR_DEVICE", stream=stream.handle)
    if foreign:
        other = foreign[0]
        found += _status("code for another GPU", "TILEC_ERR_NO_ARCH", lambda: Call(other).run(library))
    nowhere = f"cuda:{driver.device_count()}"
    return found + _status("a missing device", "TILEC_ERR_DEVICE", lambda: library.preload(nowhere))


def forked_child(library: Library) -> list[str]:
    """A child of this process, in which CUDA is at work, is refused."""
    child = os.fork()
    if child == 0:
        problem = _status("a forked child", "TILEC_ERR_DEVICE", lambda: library.preload("cuda:0"))
        os._exit(len(problem))
    failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return ["a forked child: not refused with TILEC_ERR_DEVICE"] if failed else []


# ---- in processes of their own ----


def cold_capture() -> list[str]:
    """A first call while a stream captures is refused, and the next one works."""
    library, case = _first()
    call, stream = Call(case), driver.Stream()
    driver.begin_capture(stream)
    found = _status("capture", "TILEC_ERR_NOT_PRELOADED", lambda: call.run(library, stream=stream.handle))
    driver.Graph(stream)
    call.run(library, stream=stream.handle)
    stream.synchronize()
    return found + _problems([case], [call])


def wrong_address() -> list[str]:
    """A pointer into nowhere that is said to be on the GPU: the driver's error comes with the next
    synchronisation, with its text, and later calls fail too."""
    library, case = _first()
    call = Call(case)
    name = next(param["name"] for param in case.params if "input" in param)
    call.run(library, {name: _Other(call.placed[name], address=4096)})
    found = _status("waiting for a kernel that failed", "TILEC_ERR_DRIVER", call.fetch)
    return found + _status("a call after that", "TILEC_ERR_DRIVER", lambda: call.run(library))


APART = {"cold capture": cold_capture, "wrong address": wrong_address}


def apart(name: str) -> list[str]:
    """One check of `APART` in a process of its own."""
    command = [sys.executable, str(HERE / "robust.py"), name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return [f"no end within {_PATIENCE:.0f} s"]
    return (
        []
        if done.returncode == 0
        else [f"{done.stdout}{done.stderr}"[-2000:] or f"exit code {done.returncode}"]
    )


def _first() -> tuple[Library, Case]:
    """The library, just loaded, and a case that this device runs."""
    driver.start()
    path, cases = read_cases()
    library = load(path)
    return library, next(case for case in cases if runs_here(library, case))


def runs_here(library: Library, case: Case) -> bool:
    """Whether the case's variant has code for the first device."""
    told = library.kernels[case.kernel].explain("cuda:0", **case.entry["dims"]).splitlines()
    line = next(line for line in told if line.startswith(f"variant {case.entry['variant']} "))
    return "may not run it" not in line and "it is for a" not in line


# ---- helpers ----


def _run_all(library: Library, cases: list[Case], device: int = 0) -> list[str]:
    calls = [Call(case, device) for case in cases]
    for call in calls:
        call.run(library)
    return _problems(cases, calls)


def _problems(cases: list[Case], calls: list[Call]) -> list[str]:
    for call in calls:
        call.fetch()
    return [
        f"{case.name}: {text}" for case, call in zip(cases, calls, strict=True) for text in call.problems()[1]
    ]


def _differ(one: Guarded, other: Guarded) -> bool:
    return bool(np.any(one.block != other.block))


def _status(what: str, wanted: str, call: Callable[[], Any]) -> list[str]:
    try:
        call()
    except LaunchError as error:
        return [] if error.name == wanted else [f"{what}: {error.name}, not {wanted}: {error}"]
    return [f"{what}: the call was not refused"]


if __name__ == "__main__":
    problems = APART[sys.argv[1]]()
    print("\n".join(problems))
    sys.exit(bool(problems))
