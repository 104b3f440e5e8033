"""Short cuts of the language tests: elaborate with plain values, run through the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilec.ir import nodes as ir
from tilec.ir.guards import Guard
from tilec.ir.interp.interpreter import run
from tilec.ir.rules.verifier import verify
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate

DYNAMIC = Guard()


def build(
    entry: object, dims: Mapping[str, int | Guard] | None = None, args: Any = None, **config: Any
) -> ir.Kernel:
    """The verified kernel; integers in ``dims`` are pinned."""
    guards = {
        key: Guard(eq=value) if isinstance(value, int) else value for key, value in (dims or {}).items()
    }
    kernel = elaborate(entry, name="k", dims=guards, args=args or {}, config=config)
    verify(kernel)
    return kernel


def text(
    entry: object, dims: Mapping[str, int | Guard] | None = None, args: Any = None, **config: Any
) -> str:
    """The printed kernel."""
    return format_kernel(build(entry, dims, args, **config))


def body(entry: object, dims: Mapping[str, int | Guard] | None = None, **config: Any) -> list[str]:
    """The lines of the kernel's first launch, without indentation of the launch."""
    lines = text(entry, dims, **config).splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("with launch"))
    return [line[4:] for line in lines[first + 1 :]]


def call(kernel: ir.Kernel, dims: Mapping[str, int], *args: Any) -> list[np.ndarray]:
    """Run a kernel through the interpreter; ``args`` in parameter order, outputs at the end."""
    run(kernel, list(args), dims)
    return [arg for arg in args if isinstance(arg, np.ndarray)]


def ran(entry: object, **dims: int) -> list[int]:
    """The 8 elements of the int32 output B of a kernel of A = 0, 10, 20, ... and B (-99); ``dims`` are
    runtime values."""
    out = np.full(8, -99, np.int32)
    call(build(entry, dict.fromkeys(dims, DYNAMIC)), dims, np.arange(8, dtype=np.int32) * 10, out)
    return out.tolist()
