"""Launches of a lowered kernel, emulated: memory for its arguments, its grids block by block."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilec.backends.base import backend_of
from tilec.backends.cuda.launch import launches_of
from tilec.emulate.group import WARP, Block, Cluster, Program
from tilec.emulate.schedule import Stopped, Stuck, run_cluster
from tilec.emulate.state.clocks import Agents, Clocks, Hazard
from tilec.emulate.state.memory import Memory, Part
from tilec.emulate.translation.program import compile_function
from tilec.errors import EmulationError, InputError, Place, UnsupportedError
from tilec.ir.interp.values import numpy_dtype
from tilec.sizes import evaluate_size

if TYPE_CHECKING:
    from tilec.backends.cuda.launch import LoweredCudaLaunch, TensorMapCode
    from tilec.lowering.lowered import LoweredKernel
    from tilec.targets import Target

_REFERENCE = re.compile(r"\{site:(\d+)\}")
_DECLARATION = re.compile(r"\w+ = T\.(Buffer|handle|TensorMap|bool|u?int\d+|float\d+)\(")
_SOURCE = re.compile(r", source_code=\"(?:[^\"\\]|\\.)*\"")
_SHOWN = 200


@dataclass(frozen=True)
class Tensor:
    """An array argument: its memory from the first to the last element, whether it holds values at the start.
    The memory is copied in, and back by `Emulator.run` after the launches."""

    array: np.ndarray
    name: str = "tensor"
    is_output: bool = False


class Emulator:
    """The programs of a lowered kernel for ``target``. ``multiprocessors`` is how many the device has, which
    persistent grids see."""

    def __init__(self, lowered: LoweredKernel, target: Target, *, multiprocessors: int = 2) -> None:
        if any(launch.cooperative for launch in launches_of(lowered)):
            raise UnsupportedError(
                f"the emulator runs blocks one behind the other; those of {lowered.name} wait for all",
                remedy="run it on a device, or split the kernel at T.sync_grid into two T.Kernel",
            )
        self.lowered, self.target, self.multiprocessors = lowered, target, multiprocessors
        functions = backend_of(target).device_functions(lowered, target, "kernel")
        self.programs = [
            compile_function(func, f"{lowered.name}, launch {index}") for index, func in enumerate(functions)
        ]

    def run(self, tensors: Sequence[Tensor], scalars: Mapping[str, Any], dims: Mapping[str, int]) -> None:
        """Runs every launch in place.

        Args:
            tensors: per tensor parameter, in kernel order.
            scalars: the scalar parameters by name, in kernel order, as they reach the kernel.
            dims: the value of every dim by name, in kernel order.

        Raises:
            EmulationError: the code does what a device leaves undefined, or waits for ever.
            UnsupportedError: an instruction that the emulator does not know.
        """
        named = {**dims, **scalars}
        shared, memories = _memories(tensors)
        spaces = [
            Memory(name, evaluate_size(text, named), written=False, is_global=True)
            for name, text in self.lowered.workspace
        ]
        for launch, program in zip(launches_of(self.lowered), self.programs, strict=True):
            for memory in (*shared, *memories, *spaces):
                memory.renew(launch.programmatic)
            values = [*memories, *spaces, *scalars.values(), *dims.values()]
            self._launch(launch, program, values, [*memories, *spaces], named)
        for tensor, memory in zip(tensors, memories, strict=True):
            _give_back(tensor, memory)

    def blocks(self, dims: Mapping[str, Any]) -> int:
        """Thread blocks of all launches."""
        return sum(
            math.prod(evaluate_size(text, dims) for text in launch.grid)
            for launch in launches_of(self.lowered)
        )

    def _launch(
        self,
        launch: LoweredCudaLaunch,
        program: Program,
        values: list[Any],
        tensors: list[Memory],
        dims: Mapping[str, Any],
    ) -> None:
        grid = self._grid(launch, dims)
        if any(extent % side for extent, side in zip(grid, launch.cluster, strict=True)):
            raise InputError(f"a grid of {grid} blocks in clusters of {launch.cluster}")
        args = [*values, *_maps(launch, tensors, dims)][: len(program.params)]
        for number, first in enumerate(_places(grid, launch.cluster)):
            cluster = self._cluster(launch, program, number, first, grid, args)
            try:
                with np.errstate(all="ignore"):
                    run_cluster(cluster, program)
            except (Stopped, Stuck) as problem:
                raise self._error(problem, program) from problem

    def _grid(self, launch: LoweredCudaLaunch, dims: Mapping[str, Any]) -> tuple[int, int, int]:
        extents = [evaluate_size(text, dims) for text in launch.grid] + [1, 1, 1]
        if launch.blocks_per_unit:
            size = launch.cluster[0]
            room = launch.blocks_per_unit * self.multiprocessors // size * size
            extents[0] = min(extents[0], max(room, size))
        return extents[0], extents[1], extents[2]

    def _cluster(
        self,
        launch: LoweredCudaLaunch,
        program: Program,
        number: int,
        first: tuple[int, int, int],
        grid: tuple[int, int, int],
        args: list[Any],
    ) -> Cluster:
        """Cluster ``number`` of a launch, whose first block is in that place of the grid."""
        threads = launch.threads
        warps = -(-threads[0] * threads[1] * threads[2] // WARP)
        size = math.prod(launch.cluster)
        agents = Agents(warps * size, [f"warp {warp}" for warp in range(warps * size)])
        cluster = Cluster(number, Clocks(agents))
        if launch.programmatic:
            cluster.clocks.earlier = agents.of("earlier", "an earlier launch")
        shared = max(launch.shared_bytes, program.shared_bytes)
        for rank, (x, y, z) in enumerate(_places(launch.cluster, (1, 1, 1))):
            index = (first[0] + x, first[1] + y, first[2] + z)
            name = "shared memory" if size == 1 else f"shared memory of block {rank}"
            memory = Memory(name, shared, written=False, is_global=False)
            block = Block(cluster, index, grid, threads, rank, rank * warps, memory)
            block.state["args"] = args
            block.registers = launch.entry_registers
            cluster.blocks.append(block)
        return cluster

    # ---- errors ----

    def _error(self, problem: Stopped | Stuck, program: Program) -> EmulationError:
        if isinstance(problem, Stuck):
            return self._stuck(problem, program)
        hazard, group = problem.hazard, problem.group
        block = ", ".join(map(str, group.block.index))
        where = f"in {program.name} on {self.target.name}, block ({block}), at: {_text(program, group.at)}"
        place = _place(program, group.at)
        if not isinstance(hazard, Hazard):
            return EmulationError(f"{type(hazard).__name__}: {hazard}", place=place, why=where)
        why = _REFERENCE.sub(lambda found: _text(program, int(found.group(1))), hazard.why)
        return EmulationError(
            _REFERENCE.sub(lambda found: _text(program, int(found.group(1))), hazard.what),
            place=place,
            why="; ".join(part for part in (where, why) if part),
            remedy=hazard.remedy,
        )

    def _stuck(self, problem: Stuck, program: Program) -> EmulationError:
        waits = []
        for group in problem.groups:
            warps = group.warps - group.block.first_warp
            name = f"warp {warps[0]}" if len(warps) == 1 else f"warps {warps[0]} to {warps[-1]}"
            where = _place(program, group.at)
            line = "" if where is None else f" (line {where.line})"
            waits.append(f"{name} wait for {group.why} at {_text(program, group.at)}{line}")
        places = (_place(program, group.at) for group in problem.groups)
        block = ", ".join(map(str, problem.groups[0].block.index))
        return EmulationError(
            f"deadlock: every warp of block ({block}) that is left waits",
            place=next((place for place in places if place is not None), None),
            why=f"in {program.name} on {self.target.name}: " + "; ".join(waits),
            remedy="an arrival is missing, or a wait is for the wrong phase",
        )


def _places(extents: tuple[int, int, int], steps: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    """The places of a grid that are so many blocks apart, x fastest."""
    along = [range(0, extent, step) for extent, step in zip(extents, steps, strict=True)]
    return ((x, y, z) for z, y, x in itertools.product(*reversed(along)))


def _place(program: Program, site: int) -> Place | None:
    """The author's line that a statement comes from, where it is known."""
    found: Place | None = program.sites[site][1] if program.sites else None
    return found


def _text(program: Program, site: int) -> str:
    """A statement on one line, without the declarations that TVM prints before it and the sources of
    helpers."""
    lines = [line.strip() for line in str(program.sites[site][0]).splitlines()]
    own = [line for line in lines if line and not line.startswith("#") and not _DECLARATION.match(line)]
    text = _SOURCE.sub("", own[0] if own else " ".join(lines))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


# ---- arguments ----


def _span(array: np.ndarray) -> int:
    """Bytes from the first to the last element."""
    if array.size == 0:
        return 0
    steps = zip(array.shape, array.strides, strict=True)
    return int(array.itemsize + sum((extent - 1) * stride for extent, stride in steps))


def _flat(array: np.ndarray) -> np.ndarray:
    """The bytes from the first to the last element, in place."""
    if array.size == 0:
        return np.zeros(0, np.uint8)
    plain = array.view(f"u{array.itemsize}")  # as_strided knows no small floats
    first = as_strided(plain, (1,), (array.itemsize,)).view(np.uint8)
    return np.asarray(as_strided(first, (_span(array),), (1,)))


def _memories(tensors: Sequence[Tensor]) -> tuple[list[Memory], list[Memory]]:
    """The memories that several tensors lie in, and those of the tensors."""
    spans = [_address_range(tensor.array) for tensor in tensors]
    shared: list[Memory] = []
    memories: list[Memory] = [None] * len(tensors)  # type: ignore[list-item]
    for group in _meeting(spans):
        if len(group) == 1:
            memories[group[0]] = _memory(tensors[group[0]])
            continue
        first, last = min(spans[i].start for i in group), max(spans[i].stop for i in group)
        name = " and ".join(tensors[i].name for i in group)
        whole = Memory(name, last - first, written=True, is_global=True)
        shared.append(whole)
        for i in group:
            memories[i] = Part(tensors[i].name, whole, spans[i].start - first, len(spans[i]))
            memories[i].bytes[:] = _flat(tensors[i].array)
    return shared, memories


def _address_range(array: np.ndarray) -> range:
    """The addresses of its bytes."""
    start = int(array.__array_interface__["data"][0])
    return range(start, start + _span(array))


def _meeting(spans: Sequence[range]) -> list[list[int]]:
    """The numbers of the ranges in groups: those that share addresses, through others too, stand together."""
    groups: list[list[int]] = []
    last = 0
    for number in sorted(range(len(spans)), key=lambda i: (spans[i].start, spans[i].stop)):
        span = spans[number]
        if len(span) and groups and span.start < last:
            groups[-1].append(number)
        else:
            groups.append([number])
        last = max(last, span.stop)
    return groups


def _memory(tensor: Tensor) -> Memory:
    data = _flat(tensor.array)
    return Memory(tensor.name, len(data), data=data, written=not tensor.is_output, is_global=True)


def _give_back(tensor: Tensor, memory: Memory) -> None:
    if tensor.array.flags.writeable:
        _flat(tensor.array)[:] = memory.bytes[: memory.size]


def _maps(launch: LoweredCudaLaunch, tensors: list[Memory], dims: Mapping[str, Any]) -> list[Any]:
    """The tensor maps of a launch."""
    return [_map(code, tensors[code.tensor], dims) for code in launch.tensor_maps]


def _map(code: TensorMapCode, memory: Memory, dims: Mapping[str, Any]) -> Any:
    from tilec.emulate.instructions.tensor_maps import ImageMap, TensorMap

    parts = (
        memory,
        numpy_dtype(code.dtype),
        tuple(evaluate_size(text, dims) for text in code.extents),
        tuple(evaluate_size(text, dims) for text in code.strides),
        code.box,
        code.swizzle,
    )
    if code.window is None:
        return TensorMap(*parts, rest=code.rest)
    return ImageMap(*parts, code.window.lower, code.window.upper, code.window.steps)
