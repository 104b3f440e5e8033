"""The cases of one variant: arrays in, a call, outputs beside what was expected."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from tilec.portable.guarded import Guarded
from tilec.trials.arrays import guarded
from tilec.trials.chosen import chosen_dims
from tilec.trials.comparison import compare
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.oracle import Expectation, Oracle
from tilec.trials.shapes import cases
from tilec.trials.special import keeps_special
from tilec.verify.results import FAILED, PASSED, RANDOM, SKIPPED, SPECIAL, CaseResult

MOST_CASES = 10  # of one variant
MOST_ATTEMPTS = 16  # some dims may be undefined
NO_ARCH = 20  # TILEC_ERR_NO_ARCH

#: Called with a variant id, dims and the kind of values just before the variant runs.
Announce = Callable[[int, Mapping[str, int], str], None]


class Walk:
    """Walks the cases of one variant. A subclass says how it is called (`run`), and may add to what is wrong
    with a case (`repeated`) and to the cases (`refusals`). ``device`` is what results name, ``units`` the
    number of its multiprocessors, ``features`` those of its processor."""

    most_cases = MOST_CASES
    #: Elements of the case at which the library takes one of several schedules.
    most_elements = 1 << 24
    values = RANDOM  # of the case under way

    def __init__(
        self,
        kernel: KernelFacts,
        variant: VariantFacts,
        oracle: Oracle,
        seed: int,
        device: str,
        units: int,
        features: tuple[str, ...] = (),
    ) -> None:
        self.kernel, self.variant, self.oracle = kernel, variant, oracle
        self.seed, self.device, self.units, self.features = seed, device, units, features

    def run(
        self, dims: Mapping[str, int], arrays: Mapping[str, Guarded], values: Mapping[str, Any]
    ) -> tuple[int, str]:
        """Status and message of a call; 0 for success."""
        raise NotImplementedError

    def repeated(
        self, dims: dict[str, int], arrays: Mapping[str, Guarded], expected: Expectation
    ) -> list[str]:
        """What is wrong beside the outputs of the first call."""
        return []

    def shifts(self, dims: Mapping[str, int]) -> bool:
        """Whether the tensors of a case are aligned to their elements and to no more."""
        return False

    def suits(self, dims: Mapping[str, int]) -> bool:
        """Whether a case is small enough to be tried beside others."""
        return True

    def refusals(self, dims: dict[str, int]) -> Iterable[CaseResult]:
        """Calls that have to be refused."""
        return ()

    def results(self, dims: Mapping[str, int] | None, values: str = RANDOM) -> Iterator[CaseResult]:
        """The case of ``dims`` and ``values``; or those of `cases` for which the kernel is defined, one at
        which the library takes this schedule, one of them again with NaN and infinities, and refusals. A
        variant that this machine cannot run, or that is defined for none, gives one skipped result."""
        if dims is not None:
            yield self._admitted(dict(dims), values)
            return
        skipped = self.result({}, SKIPPED, "none", detail="no small dims satisfy the guards")
        served: list[dict[str, int]] = []
        for each in islice(cases(self.kernel, self.variant, self.seed), MOST_ATTEMPTS):
            if served and not self.suits(each):
                continue
            result = self._admitted(each)
            if result.outcome == SKIPPED:
                skipped = result
            else:
                served.append(each)
                yield result
            if len(served) == self.most_cases or result.oracle == "none":
                break
        if served:
            yield from map(self._admitted, self._chosen())
            if keeps_special(self.variant.ir_text):
                yield self._admitted(served[min(1, len(served) - 1)], SPECIAL)
            yield from self.refusals(served[0])
        else:
            yield skipped

    def _chosen(self) -> Iterator[dict[str, int]]:
        """Dims at which the library takes the variant among the schedules of its list."""
        dims = chosen_dims(self.kernel, self.variant, self.units, self.features, self.most_elements)
        if dims is not None and self.suits(dims):
            yield dims

    def _admitted(self, dims: dict[str, int], values: str = RANDOM) -> CaseResult:
        start = time.perf_counter()
        self.values = values
        seed = self._case_seed(dims)
        expected = self.oracle.expect(self.variant, dims, seed, special=values == SPECIAL)
        if expected.problem:
            return self.result(
                dims, SKIPPED, expected.oracle, detail=expected.problem, raised=expected.raised
            )
        arrays = self.arrays(dims, expected.values)
        status, message = self.run(dims, arrays, expected.values)
        if status == NO_ARCH:
            return self.result(dims, SKIPPED, "none", detail=message)
        if status:
            return self.result(dims, FAILED, expected.oracle, detail=message)
        error, problems = self.check(arrays, expected, dims)
        if not problems:
            problems = self.repeated(dims, arrays, expected)
        outcome = FAILED if problems else PASSED
        seconds = time.perf_counter() - start
        return self.result(
            dims,
            outcome,
            expected.oracle,
            error=error,
            detail="; ".join(problems),
            seconds=seconds,
            raised=expected.raised,
        )

    def arrays(self, dims: Mapping[str, int], values: Mapping[str, Any]) -> dict[str, Guarded]:
        """Arrays for every tensor, with what it holds before a call."""
        shifts = self.shifts(dims)
        arrays = {
            param.name: guarded(param, dims, shifted=shifts and param.name not in self.variant.align)
            for param in self.kernel.tensors
        }
        for name, each in arrays.items():
            if name in values:
                each.array[...] = values[name]
        return arrays

    def check(
        self, arrays: Mapping[str, Guarded], expected: Expectation, dims: Mapping[str, int]
    ) -> tuple[float, list[str]]:
        """The largest difference and what is wrong: outputs, inputs, surroundings."""
        error, problems, tolerance = 0.0, [], self.oracle.tolerance(self.variant, dims)
        for param in self.kernel.tensors:
            each = arrays[param.name]
            if param.is_written:
                found = compare(param.name, each.array, expected.outputs[param.name], tolerance)
                error = max(error, found.error)
                problems += [found.text] if found.text else []
            elif not same(each.array, expected.values[param.name]):
                problems.append(f"{param.name} is an input, but was written")
            if not each.intact():
                problems.append(f"memory around {param.name} was written")
        return error, problems

    def _case_seed(self, dims: Mapping[str, int]) -> int:
        text = f"{self.kernel.name} {sorted(dims.items())}"
        return zlib.crc32(text.encode()) ^ self.seed

    def result(self, dims: Mapping[str, int], outcome: str, oracle: str, **more: Any) -> CaseResult:
        """The result of a case."""
        variant = self.variant
        return CaseResult(
            self.kernel.name,
            variant.id,
            variant.target,
            dims,
            self.seed,
            outcome,
            oracle,
            self.device,
            **{"values": self.values, **more},
        )


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Bit for bit."""
    return bool(np.ascontiguousarray(left).tobytes() == np.ascontiguousarray(right).tobytes())
