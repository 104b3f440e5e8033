"""Arrays in registers: one row per element, each a value of `tilec.emulate.state.numbers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.emulate.state.clocks import Hazard
from tilec.emulate.state.numbers import TYPES, is_float, select

_EMPTY, _FULL, _PART, _IN_FLIGHT = 0, 1, 2, 3
#: What elements that nobody wrote hold.
_POISON: dict[str, Any] = {name: np.nan if is_float(name) else name == "bool" or 0x5A for name in TYPES}


@dataclass
class Taint:
    """The lanes in which the statement in hand has read what nobody wrote, and what that was. Such values may
    be moved and computed with, since padding is; they must not reach global memory or a branch."""

    lanes: np.ndarray | None = None
    what: str = ""

    def add(self, lanes: np.ndarray, what: str) -> None:
        """Further lanes."""
        self.lanes = lanes if self.lanes is None else self.lanes | lanes
        self.what = what

    def check(self, mask: np.ndarray | None, use: str) -> None:
        """Hazard where ``use`` takes the value of such a lane."""
        if self.lanes is None:
            return
        bad = self.lanes if mask is None else self.lanes & mask
        if bad.any():
            raise Hazard(f"{self.what}, which nothing has written, {use}", remedy="write it first")


class Registers:
    """``size`` elements for each of ``count`` lanes. Rows are replaced, never changed, so that a value once
    read stays. Elements know whether they have been written (``known``: in which lanes), whether an
    asynchronous product still works on them (``flight``: of which group) or reads them (``held``), and
    whether they have been written since the last fence of products (``dirty``)."""

    def __init__(self, name: str, size: int, dtype: str, count: int, taint: Taint) -> None:
        self.name, self.size, self.dtype, self.count, self.taint = name, size, dtype, count, taint
        self.rows: list[Any] = [None] * size
        self.state = bytearray(size)
        self.known: dict[int, np.ndarray] = {}
        self.flight: dict[int, int] = {}
        self.held: dict[int, int] = {}
        self.dirty: set[int] = set()

    def read(self, index: Any, mask: np.ndarray | None) -> Any:
        """The value of an element in each lane."""
        if isinstance(index, np.ndarray):
            return self._gathered(index, mask)
        if 0 <= index < self.size and self.state[index] == _FULL:
            return self.rows[index]
        return self._checked(index, mask)

    def write(self, index: Any, value: Any, mask: np.ndarray | None) -> None:
        """Sets an element in the lanes of ``mask``."""
        if isinstance(index, np.ndarray):
            self._scatter(index, value, mask)
            return
        if not 0 <= index < self.size:
            self._out(index)
        state = self.state[index]
        if state == _IN_FLIGHT:
            self._busy(index, "written")
        if index in self.held:
            self._busy(index, "written", "reads")
        self.dirty.add(index)
        if mask is None and self.taint.lanes is None:
            self.rows[index] = value
            self.state[index] = _FULL
            return
        before = self._known(index)
        if state == _EMPTY or mask is None:
            self.rows[index] = value if isinstance(value, np.ndarray) else self._filled(value)
        else:
            self.rows[index] = select(mask, value, self.rows[index], self.dtype)
        known = np.ones(self.count, np.bool_) if mask is None else before | mask
        if self.taint.lanes is not None:
            known &= ~(self.taint.lanes if mask is None else self.taint.lanes & mask)
        self.known[index] = known
        self.state[index] = _FULL if known.all() else _PART

    def _known(self, index: int) -> np.ndarray:
        """The lanes in which an element has a value."""
        if self.state[index] == _PART:
            return self.known[index]
        return np.full(self.count, self.state[index] != _EMPTY)

    # ---- asynchronous products ----

    def start(self, index: int, rows: list[Any], number: int) -> None:
        """Elements that group ``number`` of asynchronous products will have written."""
        for step, row in enumerate(rows):
            self.rows[index + step] = row
            self.state[index + step] = _IN_FLIGHT
            self.flight[index + step] = number

    def settle(self, number: int) -> None:
        """Groups up to ``number`` are done."""
        for index in [index for index, group in self.flight.items() if group <= number]:
            self.state[index] = _FULL
            del self.flight[index]
        self.held = {index: group for index, group in self.held.items() if group > number}

    def hold(self, index: int, number: int) -> None:
        """Group ``number`` of asynchronous products reads an element until it is done."""
        self.held[index] = number

    def sums(self, index: int, count: int) -> np.ndarray:
        """Elements that a product adds to, those in flight too: (count, lanes)."""
        missing = [step for step in range(count) if self.state[index + step] not in (_FULL, _IN_FLIGHT)]
        if missing:
            self._checked(index + missing[0], None)
            self.taint.check(None, "is added to by an asynchronous product")
        return np.stack([self._lanes(self.rows[index + step]) for step in range(count)])

    def check_fenced(self, index: int, count: int) -> None:
        """Hazard where a product would use elements written since the last `fence`."""
        if index < 0 or index + count > self.size:
            self._out(index + count - 1)
        for step in range(count):
            if index + step in self.dirty:
                raise Hazard(
                    f"an asynchronous product uses register {self.name}[{index + step}], written since the "
                    "last wgmma.fence",
                    remedy="put wgmma.fence between the two",
                )

    def fence(self) -> None:
        """What has been written may be used by products."""
        self.dirty.clear()

    def forget(self) -> None:
        """The scope of the array is entered anew."""
        if _IN_FLIGHT in self.state:
            self._busy(self.state.index(_IN_FLIGHT), "given up")
        if self.held:
            self._busy(next(iter(self.held)), "given up", "reads")
        self.state = bytearray(self.size)
        self.known.clear()
        self.dirty.clear()

    def part(self, lanes: np.ndarray, taint: Taint) -> Registers:
        """The same elements for some of the lanes."""
        made = Registers(self.name, self.size, self.dtype, len(lanes), taint)
        made.rows = [row[lanes] if isinstance(row, np.ndarray) else row for row in self.rows]
        made.state = bytearray(self.state)
        made.flight, made.held, made.dirty = dict(self.flight), dict(self.held), set(self.dirty)
        made.known = {index: known[lanes] for index, known in self.known.items()}
        for index, known in made.known.items():
            if made.state[index] == _PART and known.all():
                made.state[index] = _FULL
            elif made.state[index] == _PART and not known.any():
                made.state[index] = _EMPTY
        return made

    # ---- bytes ----

    def bytes(self, index: Any, count: int, mask: np.ndarray | None) -> np.ndarray:
        """The bytes of ``count`` elements, one row a lane."""
        rows = [self._lanes(self.read(index + step, mask)) for step in range(count)]
        return np.stack(rows, axis=1).view(np.uint8)

    def put_bytes(self, index: Any, values: np.ndarray, mask: np.ndarray | None) -> None:
        """Sets elements from their bytes."""
        made = np.ascontiguousarray(values).view(TYPES[self.dtype])
        for step in range(made.shape[1]):
            self.write(index + step, np.ascontiguousarray(made[:, step]), mask)

    # ---- particular cases ----

    def _lanes(self, value: Any) -> np.ndarray:
        return value if isinstance(value, np.ndarray) else self._filled(value)

    def _filled(self, value: Any) -> np.ndarray:
        return np.full(self.count, value, TYPES[self.dtype])

    def _checked(self, index: int, mask: np.ndarray | None) -> Any:
        if not 0 <= index < self.size:
            self._out(index)
        state = self.state[index]
        if state == _IN_FLIGHT:
            self._busy(index, "read")
        unknown = ~self._known(index) if mask is None else mask & ~self._known(index)
        if unknown.any():
            self.taint.add(unknown, f"register {self.name}[{index}]")
        return self.rows[index] if state != _EMPTY else self._filled(_POISON[self.dtype])

    def _busy(self, index: int, verb: str, work: str = "works on") -> None:
        raise Hazard(
            f"register {self.name}[{index}] is {verb} while an asynchronous product {work} it",
            remedy="wait for the product (wgmma.wait_group) first",
        )

    def _out(self, index: Any) -> None:
        raise Hazard(f"element {index} of {self.name}, which has {self.size} registers")

    def _gathered(self, index: np.ndarray, mask: np.ndarray | None) -> Any:
        result = np.zeros(self.count, TYPES[self.dtype])
        for place in np.unique(index if mask is None else index[mask]):
            lanes = index == place if mask is None else mask & (index == place)
            value = self.read(int(place), lanes)
            result[lanes] = value[lanes] if isinstance(value, np.ndarray) else value
        return result

    def _scatter(self, index: np.ndarray, value: Any, mask: np.ndarray | None) -> None:
        for place in np.unique(index if mask is None else index[mask]):
            lanes = index == place if mask is None else mask & (index == place)
            self.write(int(place), value, lanes)
