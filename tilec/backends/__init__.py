"""Families of targets: each folder has the passes, the emission and the code generator of one.

Those that ship are registered here, which happens at the first question about a family: their modules stay
light."""

from __future__ import annotations

from tilec.backends.cpu.backend import CpuBackend
from tilec.backends.cuda.backend import CudaBackend
from tilec.backends.hip.backend import HipBackend
from tilec.backends.metal.backend import MetalBackend
from tilec.families import register

register(CpuBackend())
register(CudaBackend())
register(HipBackend())
register(MetalBackend())
