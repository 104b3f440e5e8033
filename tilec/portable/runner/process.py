"""A worker process seen from outside: it may crash or hang, and the next request finds a new one."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

#: Seconds until a process answers its first question: it loads the driver.
_START_PATIENCE = 60.0


class DeviceMissing(RuntimeError):
    """The device cannot be used at all."""


class WorkerProcess:
    """The worker of one device. One request at a time. ``where``: as `tilec.portable.devices.open_device`."""

    def __init__(self, device: str, threads: int = 0, where: str = "") -> None:
        self.device, self._arguments = device, [device, str(threads), where]
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._facts: dict[str, Any] | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What the device is. Raises DeviceMissing."""
        if self._facts is None:
            answer = self.ask({"do": "describe"}, _START_PATIENCE)
            if "facts" not in answer:
                self.close()
                reason = answer.get("lost") or answer.get("crash") or "no answer"
                raise DeviceMissing(f"{self.device} cannot be used: {reason}")
            self._facts = answer["facts"]
        return self._facts

    def ask(self, request: Mapping[str, Any], patience: float) -> dict[str, Any]:
        """The answer; or {"timeout": ...}, {"crash": ...}, {"lost": ...}, and a new process for the next
        request."""
        try:
            self._send(request)
            line = self._answers.get(timeout=patience)
        except queue.Empty:
            self.close()
            return {"timeout": f"no end within {patience:g} s"}
        except OSError:  # it ended while it was written to
            line = None
        if line is None:
            return {"crash": self._ending()}
        answer: dict[str, Any] = json.loads(line)
        if "lost" in answer:
            self.close()
        return answer

    def close(self) -> None:
        """Ends the process."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _send(self, request: Mapping[str, Any]) -> None:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def _start(self) -> None:
        root = str(Path(__file__).resolve().parents[3])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilec.portable.runner.worker", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Other modules of the same names in the working folder are not meant.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"},
            start_new_session=True,  # Ctrl-C is for the program that asks
        )
        assert self._process.stdout is not None
        self._answers = queue.SimpleQueue()
        threading.Thread(target=_read, args=(self._process.stdout, self._answers), daemon=True).start()

    def _ending(self) -> str:
        """How the process ended, for people."""
        assert self._process is not None
        code = self._process.wait()
        self.close()
        return f"crashed with {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _read(pipe: IO[str], answers: queue.SimpleQueue[str | None]) -> None:
    with contextlib.suppress(ValueError, OSError):  # closed while it is read
        for line in pipe:
            answers.put(line)
    answers.put(None)
