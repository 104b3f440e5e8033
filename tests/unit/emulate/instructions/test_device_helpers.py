"""The text of every device helper, read as C, does what its meaning in Python does, bit by bit.

The reader of C and the instructions that both rest on are compared with a GPU in test_recorded_instructions.
"""

from __future__ import annotations

import importlib
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import iter_modules

import numpy as np
import pytest
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

import tilec.backends.cuda.device as device
from tilec.backends.cuda.device import (
    barriers,
    ends,
    exchange,
    floats,
    integers,
    matrices,
    moves,
    packed,
    remote,
    says,
    small_floats,
)
from tilec.backends.cuda.device.atomics import DTYPES, add_vector, atomic
from tilec.backends.cuda.device.helper import Called, Helper
from tilec.backends.cuda.launch import LoweredCudaLaunch
from tilec.emulate import Emulator, Tensor
from tilec.errors import EmulationError
from tilec.lowering.lowered import LoweredKernel
from tilec.targets import parse_target

THREADS, WORDS = 32, 16
LANES = np.arange(THREADS)
FULL = np.full(THREADS, 0xFFFFFFFF, np.uint32)
SM90A = parse_target("sm_90a")


@dataclass(frozen=True)
class Call:
    """A call by 32 threads. ``given``: values in place of random ones, by parameter. ``places``: what each
    pointer points to: 16 words of the thread in "global" or "shared" memory or in registers (their dtype), or
    four elements that threads share ("cells")."""

    helper: Helper
    given: dict[int, np.ndarray] = field(default_factory=dict, compare=False)
    places: tuple[str, ...] = ()


def row_end(count: int, place: int) -> dict[int, np.ndarray]:
    """A vector of ``count`` elements at the ends of rows; ``place``: the parameter that says where it is."""
    extent = LANES % 7 + np.where(LANES % 2, count + 3, 0)
    return {
        place: np.int64(LANES % 3),
        3: np.int64(LANES % 4 - 3),
        4: np.int64(extent),
        5: (LANES % 3).astype(np.int32),
        6: np.full(THREADS, count + 3, np.int32),
    }


def samples() -> dict[str, list[Call]]:
    """Calls of every helper, by the name in its module."""
    kinds = ("float32", "int32", "uint64")
    one = np.ones(THREADS, np.int64)
    lane, mask = LANES[::-1].astype(np.int32) // 2, np.full(THREADS, 5, np.int32)
    few = {0: FULL, 1: (LANES % 3).astype(np.int32)}
    shared = (LANES * 4 * WORDS + 1024).astype(np.uint32)
    instructions = (("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "float32", 4, 2),
                    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "float16", 4, 2),
                    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "int32", 4, 2))  # fmt: skip
    sp = "mma.sp::ordered_metadata.sync.aligned.m16n8k"
    places = {3: np.full(THREADS, 0x4CE9D84E, np.uint32)}
    bits = [(0, 8), (8, 16), (16, 24), (4, 12)]
    scales = {place: (LANES * 0x01020301 % 16 + 0x78787878).astype(np.uint32) for place in (3, 4)}
    block_scaled = (
        ("32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e5m2.e4m3.f32.ue8m0", 3, 1),
        ("64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", 2, 0),
        ("64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", 0, 0),
    )
    return {
        "EXP2": [Call(floats.EXP2)], "ERF": [Call(floats.ERF)], "SIGMOID": [Call(floats.SIGMOID)],
        "ONE_PLUS_ERF": [Call(floats.ONE_PLUS_ERF)], "TF32": [Call(floats.TF32)],
        "TO_BFLOAT16": [Call(floats.TO_BFLOAT16)], "FROM_BFLOAT16": [Call(floats.FROM_BFLOAT16)],
        "from_small": [Call(floats.from_small(dtype)) for dtype in floats.SMALL_PAIRED],
        "halves": [Call(floats.halves(dtype)) for dtype in floats.SMALL_PAIRED],
        "half_of": [Call(floats.half_of(number)) for number in (0, 1)],
        **{name: [Call(getattr(small_floats, name)(dtype)) for dtype in floats.SMALL_PAIRED]
           for name in ("decoded", "encoded", "rounded")},
        "FROM_NATURAL": [Call(floats.FROM_NATURAL, {0: LANES.astype(np.uint32) * 270000})],
        "FIELD": [Call(floats.FIELD, {1: LANES.astype(np.uint32) * 8 % 256, 2: (LANES % 16).astype(np.int32),
                                      3: (LANES * 1025 % 32768).astype(np.float32)})],
        "FROM_SMALL": [Call(floats.FROM_SMALL, {0: (LANES.astype(np.int32) - 16) * 260000})],
        "keeping_nan": [Call(floats.keeping_nan(f"{kind}_nan", kind)) for kind in ("max", "min")],
        "pack": [Call(floats.pack(dtype)) for dtype in floats.PAIRED],
        "pack_small": [Call(floats.pack_small(dtype)) for dtype in floats.SMALL_PAIRED],
        "shuffle": [Call(exchange.shuffle(kind, dtype, width), {0: FULL, 2: lane % 8})
                    for dtype in kinds
                    for kind, width in (("", 32), ("xor_", 16), ("up_", 32), ("down_", 8))],
        "exchange": [Call(exchange.exchange(dtype), {1: mask}) for dtype in kinds],
        "from_lane": [Call(exchange.from_lane(kind, dtype), {1: lane})
                      for dtype in kinds for kind in ("up", "down", "")],
        "vote": [Call(exchange.vote(kind, "int32"), few) for kind in ("any", "all", "ballot", "match_any")],
        "ACTIVE": [Call(exchange.ACTIVE)], "UNIFORM": [Call(exchange.UNIFORM)],
        "UNIFORM_LINE": [Call(exchange.UNIFORM_LINE)], "GRID_BLOCKS": [Call(exchange.GRID_BLOCKS)],
        "warp_sync": [Call(exchange.warp_sync(which)) for which in (None, 0xFFFFFFFF)],
        "grid_extent": [Call(exchange.grid_extent(axis)) for axis in "xy"],
        "WIDE": [Call(integers.WIDE)],
        "pin": [Call(exchange.pin(dtype, 4), places=(dtype,)) for dtype in ("float32", "uint32")],
        "ANEW": [Call(exchange.ANEW)],
        "one_computation": [Call(exchange.one_computation(dtype)) for dtype in ("int32", "int64")],
        "pin_sums": [Call(exchange.pin_sums(4), places=("float32",))],
        "pair": [Call(packed.pair(4, kind, 8, place, False)) for kind in ("f16", "bf16") for place in bits]
                + [Call(packed.pair(8, kind, 128, place, keeps))
                   for kind, keeps in (("f16", False), ("bf16", False), ("bf16", True))
                   for place in bits[:3]],
        "counted": [Call(packed.counted(*each))
                    for each in (("f16", 4, False, -8), ("f16", 8, True, 0), ("bf16", 4, True, 0),
                                 ("bf16", 7, False, 3))],
        "field": [Call(packed.field(*each)) for each in ((0, 4, 0), (8, 4, -8), (16, 6, 3))],
        "spread": [Call(packed.spread(width, signed, offset, halves),
                        {0: (LANES * 0x00A70135 & 0x00FF00FF).astype(np.uint32)} if halves else {})
                   for width in (1, 2, 4) for signed in (False, True) for offset in (-8, 0, 3)
                   for halves in (False, True)],
        "scaled": [Call(packed.scaled(kind)) for kind in ("f16", "bf16")],
        "summed": [Call(packed.summed(kind, factors)) for kind in ("f16", "bf16") for factors in (1, 2)],
        "apart": [Call(packed.apart(*each))
                  for each in (("f16", 4, False), ("f16", 8, True), ("bf16", 4, True))],
        "atomic": [Call(helper, places=("cells",))
                   for dtype in DTYPES for kind in ("add", "max", "min", "or", "load", "store")
                   for order in (("relaxed", "seq_cst") if dtype in ("int32", "float16") else ("relaxed",))
                   if (helper := atomic(kind, dtype, order))],
        "add_vector": [Call(add_vector(dtype, width), places=("global",))
                       for dtype in ("float32", "float16", "bfloat16")
                       for width in ((2, 4) if dtype == "float32" else (2, 4, 8))],
        "cp_async": [Call(moves.cp_async(size, evict), {2: np.where(LANES % 3, size, 0).astype(np.int32)},
                          ("shared", "global"))
                     for size in (4, 8, 16) for evict in (None, *moves.EVICTION)],
        "move": [Call(moves.move(size), {1: np.int64(LANES % 2), 3: np.int64(LANES % 3)}, places)
                 for size in (4, 8, 16) for places in (("shared", "global"), ("global", "shared"))]
                + [Call(moves.move(size), {1: one, 3: one * 0}, places)
                   for size in (4, 8, 16) for places in (("uint32", "global"), ("shared", "float32"))],
        "take": [Call(moves.take(size), {1: np.int64(LANES % 2), 3: np.int64(LANES % 3), 4: LANES % 3 > 0},
                      places)
                 for size in (2, 4, 8, 16)
                 for places in (("float16", "global"), ("shared", "global"))],
        "take_element": [Call(moves.take_element(size, places),
                              {1: (LANES % 3).astype(places), 2: LANES % 3 > 0}, ("global",))
                         for size in (1, 2, 4, 8) for places in ("int32", "int64")],
        "fetch": [Call(moves.fetch(size), places=("uint32", "global")) for size in (4, 8, 16)],
        "bits": [Call(moves.bits(size), places=("shared",)) for size in (1, 2, 4)]
                + [Call(moves.bits(4), places=(dtype,)) for dtype in ("float32", "float16")],
        "read_at": [Call(moves.read_at(size), {2: (LANES % 3 * size).astype(np.int32)}, ("uint32", "shared"))
                    for size in (4, 8)],
        "realign": [Call(ends.realign(size, element), {2: (LANES % (size // element)).astype(np.int32)},
                         ("uint32", "float32"))
                    for size in (4, 8, 16) for element in (1, 2, 4)],
        "read_end": [Call(ends.read_end(size, element), row_end(size // element, 2), ("uint32", "global"))
                     for size in (4, 8, 16) for element in (1, 2, 4)],
        "cut_end": [Call(ends.cut_end(size, element), row_end(size // element, 2), ("uint32", "global"))
                    for size in (4, 8, 16) for element in (1, 2, 4)],
        "write_end": [Call(ends.write_end(size, element), row_end(size // element, 1), ("shared", "uint32"))
                      for size in (4, 8, 16) for element in (1, 2, 4)],
        "BYTES": [Call(moves.BYTES, {2: (LANES * 0x1357 % 0x7778).astype(np.uint32)})],
        "LOAD16": [Call(moves.LOAD16, {0: shared})],
        "store_remote": [Call(remote.store_remote(size), {2: np.zeros(THREADS, np.int32)}, ("shared",))
                         for size in (16, 32, 64)],
        "send": [Call(remote.send(size, False), {2: np.zeros(THREADS, np.int32)}, ("shared", "uint32"))
                 for size in (4, 8, 16)],
        "ldmatrix": [Call(matrices.ldmatrix(count, trans), places=("uint32", "shared"))
                     for count in (1, 2, 4) for trans in (False, True)],
        "lanes_ldmatrix": [Call(matrices.lanes_ldmatrix(4, trans), places=("float16", "shared"))
                           for trans in (False, True)],
        "integer_mma": [Call(matrices.integer_mma(instructions[2][0]), places=("int32", "uint32", "uint32"))],
        "DP4A": [Call(packed.DP4A)],
        "double_mma": [Call(matrices.double_mma(f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64"),
                            places=("float64", "int64", "uint64")) for shape in ("m8n8k4", "m16n8k4")],
        "sparse_mma": [Call(matrices.sparse_mma(f"{sp}{rest}", dtype), places, (dtype, "uint32", "uint32"))
                       for rest, dtype in (("32.row.col.f32.f16.f16.f32", "float32"),
                                           ("64.row.col.s32.s8.s8.s32", "int32"))],
        "scaled_mma": [Call(matrices.scaled_mma(f"mma.sync.aligned.m16n8k{each}", *first), scales,
                            ("float32", "uint32", "uint32")) for each, *first in block_scaled],
        "lanes_mma": [Call(matrices.lanes_mma(*each), places=("uint32" if each[1] == "float16" else each[1],))
                      for each in instructions],
        "QUAD": [Call(matrices.QUAD, {1: LANES.astype(np.int32)})],
        "TURN": [Call(matrices.TURN, places=("uint32",))],
        "TURN_BY": [Call(matrices.TURN_BY, {2: np.where(LANES % 4 < 2, 0x6420, 0x2064).astype(np.uint32)},
                         ("uint32", "uint32"))],
        "store_matrices": [
            Call(matrices.store_matrices(trans), places=("shared",)) for trans in (False, True)
        ],
        "CUT": [Call(matrices.CUT)],
        "PAIR": [Call(matrices.PAIR)],
        "DESCRIPTOR": [Call(matrices.DESCRIPTOR)],
        "meet": [Call(barriers.meet(9, 32))],
        "printed": [Call(says.printed("n = %lld 100%%", ["int64"]))],
    }  # fmt: skip


#: In programs of their own: barriers below and in `test_held_ahead.py`, copies that arrive in those of loads
#: (`test_loads_of_producers.py`), traps as an error, meetings of a grid on no emulator; products of a
#: warpgroup in tests of all their types (`test_gemm_constructs.py`, `test_sparse_wgmma.py`), counted stores
#: of four registers in those of parts of K (`test_emulated_hopper.py`).
APART = {"OPEN", "ARRIVE", "ARRIVE_LANDED", "ARRIVE_EXPECT", "ARRIVE_EXPECT_REMOTE", "ARRIVE_REMOTE",
         "SHARED_SYNC", "EXPECT", "COMPLETE", "wait", "WAIT_CLUSTER", "trapped", "GRID_MEET",
         "sparse_wgmma", "wgmma", "wgmma_pin", "send_four"}  # fmt: skip


def is_helper(value: object) -> bool:
    """A helper, or what makes one."""
    return isinstance(value, Helper) or "Helper" in str(getattr(value, "__annotations__", {}).get("return"))


def test_every_helper_is_called_here():
    modules = [
        importlib.import_module(f"{device.__name__}.{each.name}") for each in iter_modules(device.__path__)
    ]
    named = {name for module in modules for name, value in vars(module).items() if is_helper(value)}
    assert {name for name in named if name[0] != "_"} - {"called"} == samples().keys() | APART


def test_text_for_the_device_stands_in_its_folder_alone():
    folder = Path(device.__path__[0])
    others = {folder, folder.parent / "codegen"}
    texts = {path: path.read_text() for path in folder.parent.rglob("*.py") if path.parent not in others}
    said = {path.name for path, text in texts.items() if re.search(r"__device__|asm vol|func_call\(", text)}
    assert said == {"context.py", "probe.py"}  # functions of authors; a probe of the compiler


def random(dtype: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Any bits of integers; floats of all sizes, with zeros, infinities and NaN."""
    if not dtype.startswith("float"):
        return rng.integers(0, 256, count * np.dtype(dtype).itemsize, np.uint8).view(dtype)
    values = (rng.standard_normal(count) * 2.0 ** rng.integers(-8, 5, count)).astype(dtype)
    values[:4] = 0, np.inf, -np.inf, np.nan
    return values


@contextmanager
def device_function(*types: str):
    """Its tensors and the number of the thread."""
    with T.prim_func(is_private=False, s_tir=False):
        T.func_name("kernel")
        handles = [T.arg(f"p{at}", T.handle(dtype, "global")) for at, dtype in enumerate(types)]
        tensors = [T.decl_buffer((1 << 20,), dtype, data=p) for p, dtype in zip(handles, types, strict=True)]
        with T.launch_thread("blockIdx.x", 1), T.launch_thread("threadIdx.x", THREADS) as thread:
            yield *tensors, thread


def launch(call: Call, types: list[str]) -> LoweredCudaLaunch:
    """Parameters: 16 words a thread, those that come back, an array a value, four cells, and results."""
    with IRBuilder() as builder, device_function(*types) as (words, back, *values, cells, results, thread):
        shared = T.alloc_buffer((THREADS * WORDS,), "uint32", scope="shared.dyn", align=1024)
        own = thread * WORDS
        for at in range(WORDS):
            T.buffer_store(shared, words[own + at], [own + at])
        T.evaluate(T.cuda.cta_sync())
        memory = {
            "cells": cells.ptr_to([thread % 4]),
            "shared": shared.ptr_to([own]),
            "global": words.ptr_to([own]),
        }
        held = {place: filled(place, words, own) for place in call.places if place not in memory}
        memory |= {place: made.ptr_to([0]) for place, made in held.items()}
        places, given = iter(call.places), iter(values)
        args = [
            memory[next(places)] if kind == "pointer" else next(given)[thread] for kind in call.helper.params
        ]
        made = call.helper.call(*args)
        T.evaluate(made) if call.helper.result == "void" else T.buffer_store(results, made, [thread])
        T.evaluate(T.ptx["cp.async.commit_group"]())
        T.evaluate(T.ptx["cp.async.wait_group"](0))
        T.evaluate(T.cuda.cta_sync())
        for at in range(WORDS):
            T.buffer_store(back, shared[own + at], [own + at])
        for number, registers in enumerate(held.values(), 1):
            for at in range(int(registers.shape[0])):
                T.buffer_store(back, bits_of(registers[at]), [number * 2 * THREADS * WORDS + 2 * own + at])
    return LoweredCudaLaunch(builder.get(), ("1",), (THREADS, 1, 1), shared_bytes=THREADS * WORDS * 4)


def filled(dtype: str, words, own):
    """Registers with 16 words of the thread."""
    size = np.dtype(dtype).itemsize
    made = T.alloc_buffer((4 * WORDS // size,), dtype, scope="local")
    for at in range(4 * WORDS // size):
        word = words[own + at * size // 4]
        bits = tirx.Cast("uint16", word) if size == 2 else word
        if size == 8:
            after = tirx.Cast("uint64", words[own + at * 2 + 1])
            bits = tirx.Cast("uint64", word) | after << tirx.const(32, "uint64")
        T.buffer_store(made, bits if dtype == "uint32" else tirx.reinterpret(dtype, bits), [at])
    return made


def bits_of(value):
    dtype = str(value.ty.dtype)
    bits = value if dtype == "uint32" else tirx.reinterpret(f"uint{8 * np.dtype(dtype).itemsize}", value)
    return tirx.Cast("uint32", bits)


def computed(call: Call) -> list[np.ndarray]:
    """All memory after the call."""
    rng = np.random.default_rng(0)
    kinds = [kind for kind in call.helper.params if kind != "pointer"]
    cell = call.helper.name.split("_")[3] if call.places == ("cells",) else "uint32"
    cell = {"bfloat16": "uint16"}.get(cell, cell)
    result = "uint32" if call.helper.result == "void" else call.helper.result
    values = [random(kind, THREADS, rng) for kind in kinds]
    places = [at for at, kind in enumerate(call.helper.params) if kind != "pointer"]
    values = [call.given.get(at, value) for at, value in zip(places, values, strict=True)]
    halves = random("float16", 2 * THREADS * WORDS, rng).view(np.uint32)
    arrays = [halves, np.zeros(16 * THREADS * WORDS, np.uint32), *values, random(cell, 4, rng),
              np.zeros(THREADS, result)]  # fmt: skip
    made = LoweredKernel("kernel", (launch(call, [str(each.dtype) for each in arrays]),))
    Emulator(made, SM90A).run([Tensor(each, f"p{at}") for at, each in enumerate(arrays)], {}, {})
    return arrays


@pytest.mark.parametrize("name", sorted(samples()))
def test_text_and_meaning_agree(name, monkeypatch, capfd):
    meant = [computed(call) for call in samples()[name]]
    said = capfd.readouterr().err
    monkeypatch.setattr(Called, "helper", None)
    for call, mine in zip(samples()[name], meant, strict=True):
        for left, right in zip(mine, computed(call), strict=True):
            assert left.tobytes() == right.tobytes(), call
    assert capfd.readouterr().err == said


def meetings() -> LoweredCudaLaunch:
    """A phase of an mbarrier with bytes, and one with arrivals alone."""
    with IRBuilder() as builder, device_function("uint32") as (out, thread):
        memory = T.alloc_buffer((4,), "uint64", scope="shared.dyn", align=1024)
        at, address = memory.ptr_to([0]), T.cuda.cvta_generic_to_shared(memory.ptr_to([0]))
        int32 = lambda value: tirx.const(value, "int32")  # noqa: E731

        def alone(*calls):
            with T.If(tirx.EQ(thread, 0)), T.Then():
                for call in calls:
                    T.evaluate(call)

        alone(barriers.OPEN.call(at, int32(THREADS)))
        T.evaluate(T.cuda.cta_sync())
        alone(barriers.EXPECT.call(at, int32(64)), barriers.COMPLETE.call(at, int32(64)))
        T.evaluate(barriers.ARRIVE.call(at))
        T.evaluate(barriers.wait("test_wait.parity.shared", False).call(at, int32(0)))
        T.evaluate(T.cuda.cta_sync())
        with T.If(tirx.LT(thread, 16)), T.Then():
            T.evaluate(barriers.ARRIVE_EXPECT.call(at, int32(4)))
        with T.If(tirx.GE(thread, 16)), T.Then():
            T.evaluate(barriers.ARRIVE_REMOTE.call(at, int32(0)))
        alone(barriers.COMPLETE.call(at, int32(64)))
        word = "try_wait.parity.acquire.cluster.shared::cta"
        T.evaluate(barriers.wait(word, True).call(at, int32(1)))
        T.evaluate(barriers.WAIT_CLUSTER.call(address, tirx.const(1, "uint32")))
        T.buffer_store(out, tirx.Cast("uint32", thread) + tirx.const(1, "uint32"), [thread])
    return LoweredCudaLaunch(builder.get(), ("1",), (THREADS, 1, 1), shared_bytes=32)


@pytest.mark.parametrize("reads", [False, True])
def test_phases_of_a_barrier_end(reads, monkeypatch):
    if reads:
        monkeypatch.setattr(Called, "helper", None)
    out = np.zeros(THREADS, np.uint32)
    Emulator(LoweredKernel("kernel", (meetings(),)), SM90A).run([Tensor(out, "out")], {}, {})
    assert out.tolist() == [thread + 1 for thread in range(THREADS)]


@pytest.mark.parametrize("reads", [False, True])
def test_a_trap_says_why(reads, monkeypatch):
    if reads:
        monkeypatch.setattr(Called, "helper", None)
    with pytest.raises(EmulationError, match='traps: half of "it" is 50%'):
        computed(Call(says.trapped('half of "it" is 50%')))
