"""The variants for GPUs of a library on an emulated device: no GPU needed.

What runs is not the machine code but the form that it was generated from, made again from the tile IR that
the library carries, by this version of tilec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilec.backends.base import limits_of
from tilec.errors import EmulationError
from tilec.portable.guarded import Guarded
from tilec.targets import parse_target
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.shapes import MOST_ELEMENTS
from tilec.verify.session import LibrarySession, Request, Session
from tilec.verify.walk import Announce, Walk

if TYPE_CHECKING:
    from tilec.emulate import EmulatedKernel
    from tilec.trials.oracle import Oracle

#: Cases of one variant, and blocks of a case beside the first: an emulated device is slow.
_MOST_CASES = 3
_MOST_BLOCKS = 64
_FAILED = 1


def session_of(request: Request) -> Session:
    """What a request is for, in this process."""
    return EmulatedSession(request) if request.emulate else LibrarySession(request)


class EmulatedSession(Session):
    """The variants for GPUs of a library, which is read and not loaded. No case is announced: the emulator
    ends by itself. UnsupportedError for an instruction that it does not know."""

    def walk(self, kernel: KernelFacts, variant: VariantFacts, announce: Announce) -> EmulatedWalk:
        """On the emulator."""
        return EmulatedWalk(kernel, variant, self.oracle(kernel), self.request.seed)


class EmulatedWalk(Walk):
    """Calls a variant on the emulator."""

    most_cases = _MOST_CASES
    most_elements = MOST_ELEMENTS

    def __init__(self, kernel: KernelFacts, variant: VariantFacts, oracle: Oracle, seed: int) -> None:
        units = limits_of(parse_target(variant.target)).units
        super().__init__(kernel, variant, oracle, seed, "emulated", units)
        self._code: EmulatedKernel | None = None

    def suits(self, dims: Mapping[str, int]) -> bool:
        """Whether a case is small enough to be tried beside others."""
        return self.variant.blocks(dims) <= _MOST_BLOCKS

    def run(
        self, dims: Mapping[str, int], arrays: Mapping[str, Guarded], values: Mapping[str, Any]
    ) -> tuple[int, str]:
        """Status and message of a call; 0 for success."""
        names = [param.name for param in self.kernel.params]
        args = [arrays[name].array if name in arrays else values[name] for name in names]
        try:
            self._emulated()(args, dims)
        except EmulationError as error:
            return _FAILED, str(error)
        return 0, ""

    def _emulated(self) -> EmulatedKernel:
        from tilec.emulate import EmulatedKernel
        from tilec.ir.text.parser import parse_kernel

        if self._code is None:
            self._code = EmulatedKernel(parse_kernel(self.variant.ir_text), parse_target(self.variant.target))
        return self._code
