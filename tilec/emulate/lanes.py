"""The lanes of a group as meanings of device helpers see them (`tilec.backends.cuda.device.helper.Lanes`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilec.backends.cuda.device.helper import Helper
from tilec.emulate.group import Group
from tilec.emulate.instructions import registry
from tilec.emulate.instructions.registry import as_bits
from tilec.emulate.library import library
from tilec.emulate.runtime import NOBODY, place, sides
from tilec.emulate.state.memory import At
from tilec.emulate.state.numbers import TYPES
from tilec.emulate.state.registers import Registers
from tilec.errors import UnsupportedError


@dataclass(frozen=True, eq=False)
class Spot:
    """An element in registers: what a pointer into them points to."""

    registers: Registers
    index: Any


@dataclass(frozen=True, eq=False)
class Lanes:
    """The lanes of ``g`` that the mask ``m`` lets run."""

    g: Group
    m: Any

    @property
    def count(self) -> int:
        """Lanes of the group, those that do not run too."""
        return self.g.count

    def ptx(self, name: str, *operands: Any, **options: Any) -> Any:
        """What an instruction gives."""
        entry, parts = _instruction(name)
        made = entry.run(self.g, self.m, parts, *operands, **options)
        if entry.mixes:
            self.g.taint.lanes = None
        return made[0] if isinstance(made, tuple) and len(made) == 1 else made

    def cuda(self, name: str, *args: Any) -> Any:
        """What a function of CUDA gives."""
        found = registry.find_function(name)
        if found is None:
            return library(name, ["float32"] * len(args))[0](*args)
        made = found.run(self.g, self.m, *args)
        if found.mixes:
            self.g.taint.lanes = None
        return made

    def shared(self, pointer: Any) -> Any:
        """The address in the shared window."""
        return self.cuda("__cvta_generic_to_shared", pointer)

    def load(self, pointer: Any, dtype: str, step: Any = 0) -> Any:
        """An element."""
        if isinstance(pointer, At):
            return self.g.load(self.m, pointer.memory, pointer.offset + step * TYPES[dtype].itemsize, dtype)
        if pointer.registers.dtype == dtype:
            return pointer.registers.read(pointer.index + step, self.m)
        return np.ascontiguousarray(self.rows(pointer, TYPES[dtype].itemsize, step)).view(TYPES[dtype])[:, 0]

    def store(self, pointer: Any, dtype: str, value: Any, step: Any = 0) -> None:
        """Writes an element."""
        if isinstance(pointer, At):
            at = pointer.offset + step * TYPES[dtype].itemsize
            self.g.store(self.m, pointer.memory, at, value, dtype)
        elif pointer.registers.dtype == dtype:
            pointer.registers.write(pointer.index + step, value, self.m)
        else:
            self.put(pointer, self.bits(value, dtype).view(np.uint8).reshape(self.count, -1), step)

    def move(self, to: Any, source: Any, size: int, to_step: Any = 0, step: Any = 0) -> None:
        """Copies bytes."""
        self.put(to, self.rows(source, size, step), to_step)

    def bits(self, value: Any, dtype: str) -> np.ndarray:
        """The bits of a value as another type."""
        return as_bits(value, dtype, self.count)

    def under(self, test: Any) -> Lanes | None:
        """The lanes in which a condition holds."""
        mask, _ = sides(self.m, test)
        return None if mask is NOBODY else Lanes(self.g, mask)

    def chosen(self, value: Any, other: Any) -> Any:
        """A value in these lanes, another one elsewhere."""
        return value if self.m is None else np.where(self.m, value, other)

    def place(self, name: str) -> Any:
        """A coordinate of C."""
        g, block = self.g, self.g.block
        if name in _WARP:
            return place(g, _WARP[name], 0)
        if name in _CLUSTER:
            return len(block.cluster.blocks) if "_n" in name else block.rank
        kind, axis = name[:-2], "xyz".find(name[-1])
        if _AXES.get(kind) == "thread":
            return place(g, "thread", axis)
        if kind not in _AXES:
            raise UnsupportedError(f"the emulator has no {name}")
        return {"block": block.index, "grid": block.grid, "threads": block.threads}[_AXES[kind]][axis]

    # ---- bytes ----

    def rows(self, pointer: Any, size: int, step: Any = 0) -> np.ndarray:
        """``size`` bytes, one row a lane."""
        if isinstance(pointer, At):
            rows = self.g.load_bytes(self.m, pointer.memory, pointer.offset + step * size, size)
            return rows if len(rows) == self.count else np.repeat(rows, self.count, axis=0)
        elements = _elements(pointer, size)
        return np.asarray(pointer.registers.bytes(pointer.index + step * elements, elements, self.m))

    def put(self, pointer: Any, rows: np.ndarray, step: Any = 0) -> None:
        """Writes bytes, one row a lane."""
        size = rows.shape[1]
        if isinstance(pointer, At):
            self.g.store_bytes(self.m, pointer.memory, pointer.offset + step * size, rows)
        else:
            pointer.registers.put_bytes(pointer.index + step * _elements(pointer, size), rows, self.m)


def _elements(pointer: Spot, size: int) -> int:
    own = TYPES[pointer.registers.dtype].itemsize
    if size % own:
        raise UnsupportedError(f"part of an element of {pointer.registers.dtype} in registers")
    return size // own


@lru_cache(maxsize=1024)
def _instruction(name: str) -> tuple[registry.Entry, tuple[str, ...]]:
    parts = tuple(name.split("."))
    found = registry.find(parts)
    if found is None:
        raise UnsupportedError(
            f"the emulator does not know the instruction {name}",
            remedy="add it to tilec/emulate/instructions",
        )
    return found, parts


def runner(helper: Helper) -> Any:
    """A helper as generated source calls it."""
    return lambda g, m, *args: helper.meaning(Lanes(g, m), *args)


_WARP = {"laneid": "lane", "warpid": "warp"}
_CLUSTER = ("cluster_ctarank", "cluster_nctarank", "cluster_ctaid.x", "cluster_nctaid.x")
#: Coordinates in C and in assembly.
_AXES = {"threadIdx": "thread", "blockIdx": "block", "gridDim": "grid", "blockDim": "threads",
         "tid": "thread", "ctaid": "block", "nctaid": "grid", "ntid": "threads"}  # fmt: skip
