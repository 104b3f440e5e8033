"""A problem in a folder: points with their arguments, small cases, and what the outputs should be.

``problem.json``: ``points`` (dims, ``params``, ``checks``) are timed; ``cases`` (the same) are only checked;
``arrays.bin`` (zlib) holds the contents that the parameters name. `tilec.tune.plan.contents` writes it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tilec.portable.devices.base import Device
from tilec.portable.dims import dims_text
from tilec.portable.loader import Kernel
from tilec.portable.runner.compare import problem_of, sample
from tilec.portable.runner.tensors import Tensor, arguments

#: Input sets, in turn, hold so many times what the cache does, and there are no more than these.
_CACHE_TIMES, _MOST_SETS = 2, 24
_AGREE = 2.0  # times the tolerance, where candidates are compared with each other


class Point:
    """The arguments of one case, ready on a device. ``sets`` of them, so that calls in turn find none of them
    in the cache."""

    def __init__(self, entry: Mapping[str, Any], arrays: bytes, device: Device, cache_bytes: int) -> None:
        self.dims: dict[str, int] = entry["dims"]
        self.checks: dict[str, Any] = entry["checks"]
        self._entry, self._arrays, self._device = entry, arrays, device
        self._cache = cache_bytes
        self._sets = [arguments(entry, arrays, device)]
        #: Whether inputs are as they were: a candidate that is wrong may have written anywhere.
        self._is_trusted = True

    def sets(self, cold: bool) -> list[dict[str, Any]]:
        """Sets of arguments: one for a warm cache, several for a cold one."""
        if not cold:
            return self._sets[:1]
        size = sum(each.bytes for each in self._sets[0].values() if isinstance(each, Tensor))
        wanted = min(_MOST_SETS, -(-_CACHE_TIMES * self._cache // max(size, 1)))
        while len(self._sets) < wanted:
            self._sets.append(arguments(self._entry, self._arrays, self._device))
        return self._sets

    def prepared(self, kernel: Kernel, values: Mapping[str, Any], **how: Any) -> Callable[[], None]:
        """A call of a candidate on these arguments."""
        free: dict[str, Any] = {name: value for name, value in self.dims.items() if name not in values}
        return kernel.prepare(**values, **free, **how)

    def check(self, kernel: Kernel, **how: Any) -> str:
        """Runs a candidate once; says what is wrong, if anything."""
        values = self._sets[0]
        outputs = {name: values[name] for name in self.checks}
        for name, each in values.items():
            if isinstance(each, Tensor) and (name in outputs or not self._is_trusted):
                each.reset()
        self._is_trusted = False
        self.prepared(kernel, values, **how)()
        found = problem_of(outputs, self.checks)
        self._is_trusted = not found
        return found

    def agree_from_now_on(self, path: Path) -> None:
        """Where nobody knows the outputs, those of this call are what later ones are compared with."""
        if all("expected" in check for check in self.checks.values()):
            return
        outputs = {name: self._sets[0][name] for name in self.checks}
        path.write_text(json.dumps(sample(outputs, self.checks)))
        self.agree_with(path)

    def agree_with(self, path: Path) -> None:
        """Takes what an earlier candidate wrote as expected, where that is known."""
        if not path.exists():
            return
        for name, expected in json.loads(path.read_text()).items():
            check = self.checks[name]
            if "expected" not in check:
                wider = {key: check[key] * _AGREE for key in ("rtol", "atol")}
                self.checks[name] = {**check, **wider, "expected": expected}


class Problem:
    """The problem of a folder on a device."""

    def __init__(self, folder: Path, device: Device, cache_bytes: int) -> None:
        described = json.loads((folder / "problem.json").read_text())
        arrays = zlib.decompress((folder / "arrays.bin").read_bytes())
        self._folder = folder
        self.cases = [Point(entry, arrays, device, cache_bytes) for entry in described["cases"]]
        self.points = [Point(entry, arrays, device, cache_bytes) for entry in described["points"]]
        for number, point in enumerate(self.points):
            point.agree_with(self._agreed(number))

    def check(self, kernel: Kernel, **how: Any) -> str:
        """Runs a candidate on every case and point; says what is wrong first, if anything."""
        for point in (*self.cases, *self.points):
            text = point.check(kernel, **how)
            if text:
                return f"{dims_text(point.dims)}: {text}"
        for number, point in enumerate(self.points):
            point.agree_from_now_on(self._agreed(number))
        return ""

    def _agreed(self, number: int) -> Path:
        return self._folder / f"agreed_{number}.json"
