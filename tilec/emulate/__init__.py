"""Device code of GPUs run on the CPU: lanes are an axis of NumPy arrays, warps take turns.

It executes the functions that go to the code generator, with the inline assembly of their helpers, and
stops with EmulationError at what a device leaves undefined: accesses out of bounds or of memory nobody wrote,
two warps at the same bytes with nothing that orders them, background work that nobody waited for, barriers
with wrong counts, waits that never end.
"""

from __future__ import annotations

from tilec.emulate.kernels import EmulatedKernel
from tilec.emulate.launch import Emulator, Tensor

__all__ = ["EmulatedKernel", "Emulator", "Tensor"]
