"""Kernels in process: a one-kernel library, built into the cache and loaded by the loader.

`jitted` has jit, compile and par_compile; `kernel` what they return. A machine that finds a kernel in the
cache needs neither TVM nor a CUDA compiler."""

from tilec.settings import stand_in_for_home

stand_in_for_home()  # in front of whatever imports TVM
