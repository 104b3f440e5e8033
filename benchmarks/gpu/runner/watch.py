"""Going on without a kernel that hangs the GPU or breaks its context: the program starts again and leaves the
kernel out."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE = 30.0  # seconds for one piece of work
#: What an error says when the context is gone: torch's, the loader's, the library's.
_SIGNS = ("CUDA error", "cuCtxSynchronize", "cuLaunchKernelEx")


class Watch:
    """Knows which kernel is at work. ``excluded`` maps kernels that were left out to the reason."""

    def __init__(self, excluded: dict[str, str]) -> None:
        self.excluded = excluded
        self._kernel, self._since = "", 0.0
        threading.Thread(target=self._guard, daemon=True).start()

    @contextmanager
    def on(self, kernel: str) -> Iterator[None]:
        """Around work of ``kernel``: an error of the GPU, or a hang, leaves the kernel out from then on."""
        self._since = time.monotonic()
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
            if kernel and time.monotonic() - self._since > _PATIENCE:
                self._restart(kernel, f"no end within {_PATIENCE:.0f} s")

    def _restart(self, kernel: str, reason: str) -> None:
        print(f"WRONG {kernel}: {reason}; starting again without it", flush=True)
        options = [f"--without={kernel}={reason}"]
        os.execv(sys.executable, [sys.executable, *sys.argv, *options])
