"""Going on without a kernel that hangs the GPU or breaks its context: the program starts again and leaves the
kernel out."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 30.0  # seconds for one piece of work
PATIENCE_WITH_COMPILERS = 120.0  # where a peer may be compiled first
#: What an error says when the context is gone: torch's, the loader's, the library's.
_SIGNS = ("CUDA error", "cuCtxSynchronize", "cuLaunchKernelEx")


class Watch:
    """Knows which kernel is at work. ``excluded`` maps kernels that were left out to the reason; ``patience``
    are the seconds for one piece of work. Not ``again``: the program ends, as one under compute-sanitizer has
    to, which does not get over a start of another."""

    def __init__(self, excluded: dict[str, str], patience: float = PATIENCE, again: bool = True) -> None:
        self.excluded = excluded
        self._usual, self._again = patience, again
        self._kernel, self._since, self._patience = "", 0.0, patience
        threading.Thread(target=self._guard, daemon=True).start()

    @contextmanager
    def on(self, kernel: str, patience: float | None = None) -> Iterator[None]:
        """Around work of ``kernel``: an error of the GPU, or no end within ``patience`` seconds, leaves the
        kernel out from then on."""
        self._since, self._patience = time.monotonic(), patience or self._usual
        self._kernel = kernel
        try:
            yield
        except (RuntimeError, ValueError) as error:
            if not any(sign in str(error) for sign in _SIGNS):
                raise
            self._restart(kernel, str(error).splitlines()[0])
        finally:
            self._kernel = ""

    def _guard(self) -> None:
        while True:
            time.sleep(1.0)
            kernel = self._kernel
            if kernel and time.monotonic() - self._since > self._patience:
                self._restart(kernel, f"no end within {self._patience:.0f} s")

    def _restart(self, kernel: str, reason: str) -> None:
        if not self._again:
            print(f"WRONG {kernel}: {reason}", flush=True)
            os._exit(1)
        print(f"WRONG {kernel}: {reason}; starting again without it", flush=True)
        options = [f"--without={kernel}={reason}"]
        os.execv(sys.executable, [sys.executable, *sys.argv, *options])
