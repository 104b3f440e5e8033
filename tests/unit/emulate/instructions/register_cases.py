"""Instructions that work on registers, and device functions of C."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from case_kernels import Case, Inputs, by_thread, floats, packed, positive, words

_READ = {"r": "unsigned {name} = {word};", "f": "float {name} = __uint_as_float({word});",
         "h": "unsigned short {name} = (unsigned short){word};"}  # fmt: skip
_DECLARE = {"r": "unsigned {name};", "f": "float {name};", "h": "unsigned short {name};"}
_WIDE = """
  unsigned long long product;
  asm volatile("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(in[thread * 2]), "r"(in[thread * 2 + 1]));
  out[thread * 2] = (unsigned)product;
  out[thread * 2 + 1] = (unsigned)(product >> 32);
"""
_WRITE = {"r": "{name}", "f": "__float_as_uint({name})", "h": "(unsigned){name}"}


def registers(
    name: str, text: str, outs: str, ins: str, inputs: Inputs | None = None, **more: object
) -> Case:
    """A case of one instruction per thread: ``outs`` and ``ins`` are the constraints of its operands."""
    lines = [
        _READ[kind].format(name=f"i{at}", word=f"in[thread * {len(ins)} + {at}]")
        for at, kind in enumerate(ins)
    ]
    lines += [_DECLARE[kind].format(name=f"o{at}") for at, kind in enumerate(outs)]
    left = ", ".join(f'"={kind}"(o{at})' for at, kind in enumerate(outs))
    right = ", ".join(f'"{kind}"(i{at})' for at, kind in enumerate(ins))
    lines.append(f'asm volatile("{text}" : {left} : {right});')
    lines += [f"out[thread * {len(outs)} + {at}] = {_WRITE[kind].format(name=f'o{at}')};"
              for at, kind in enumerate(outs)]  # fmt: skip
    given = inputs or (floats if set(ins) == {"f"} else words)(32 * len(ins))
    return Case(name, "\n  ".join(lines), given, 32 * len(outs), **more)  # type: ignore[arg-type]


def mma(shape: str, types: str, kind: object, words_a: int, words_b: int, **more: object) -> Case:
    """mma.sync with random fragments."""
    c_kind = "r" if types.startswith("s32") else "f"
    outs, ins = c_kind * 4, "r" * (words_a + words_b) + c_kind * 4
    groups, at = [], 0
    for count in (4, words_a, words_b, 4):
        groups.append("{" + ", ".join(f"%{at + i}" for i in range(count)) + "}")
        at += count
    sums = packed(32 * 4, np.int8) if c_kind == "r" else floats(32 * 4)
    inputs = by_thread(32, packed(32 * (words_a + words_b), kind), sums)  # type: ignore[arg-type]
    text = f"mma.sync.aligned.{shape}.row.col.{types} {', '.join(groups)};"
    floats_ = None if c_kind == "r" else more.pop("floats", 1e-5)
    return registers(
        f"mma_{shape}_{types.replace(chr(46), chr(95))}", text, outs, ins, inputs, floats=floats_, **more
    )


#: The places of two values in a group of four, the first one lower, as mma.sp takes them.
_PLACES = (0x4, 0x8, 0xC, 0x9, 0xD, 0xE)


def places(rng: np.random.Generator) -> np.ndarray:
    """A word of eight groups for each lane."""
    fours = rng.choice(_PLACES, (32, 8)).astype(np.uint32)
    return np.bitwise_or.reduce(fours << (4 * np.arange(8, dtype=np.uint32)), axis=1).astype(np.uint32)


def sparse_mma(shape: str, types: str, kind: object, selector: int = 0, **more: object) -> Case:
    """mma.sp with random fragments and places."""
    c_kind = "r" if types.startswith("s32") else "f"
    groups = ["{" + ", ".join(f"%{at + i}" for i in range(4)) + "}" for at in (0, 4, 8, 12)]
    sums = packed(32 * 4, np.int8) if c_kind == "r" else floats(32 * 4)
    inputs = by_thread(32, packed(32 * 8, kind), sums, places)  # type: ignore[arg-type]
    name = f"mma.sp::ordered_metadata.sync.aligned.{shape}.row.col.{types}"
    floats_ = None if c_kind == "r" else more.pop("floats", 1e-5)
    label = f"mma_sp_{shape}_{types.replace(chr(46), chr(95))}_{selector}"
    text = f"{name} {', '.join(groups)}, %16, {selector};"
    return registers(label, text, c_kind * 4, "r" * 8 + c_kind * 4 + "r", inputs, floats=floats_, **more)


def register_cases() -> list[Case]:
    bf16 = ml_dtypes.bfloat16
    return [
        mma("m16n8k16", "f32.f16.f16.f32", np.float16, 4, 2),
        mma("m16n8k8", "f32.f16.f16.f32", np.float16, 2, 1),
        mma("m16n8k16", "f32.bf16.bf16.f32", bf16, 4, 2),
        mma("m16n8k8", "f32.tf32.tf32.f32", np.float32, 4, 2),
        mma("m16n8k4", "f32.tf32.tf32.f32", np.float32, 2, 1),
        mma("m16n8k32", "s32.s8.s8.s32", np.int8, 4, 2),
        mma("m16n8k32", "s32.u8.s8.s32", np.uint8, 4, 2),
        mma("m16n8k32", "f32.e4m3.e4m3.f32", ml_dtypes.float8_e4m3fn, 4, 2, floats=2e-3),
        mma("m16n8k32", "f32.e5m2.e4m3.f32", ml_dtypes.float8_e5m2, 4, 2, floats=2e-3),
        sparse_mma("m16n8k32", "f32.f16.f16.f32", np.float16),
        sparse_mma("m16n8k32", "f32.f16.f16.f32", np.float16, 1),
        sparse_mma("m16n8k32", "f32.bf16.bf16.f32", bf16),
        sparse_mma("m16n8k64", "s32.s8.s8.s32", np.int8),
        sparse_mma("m16n8k64", "s32.u8.s8.s32", np.uint8),
        sparse_mma("m16n8k64", "f32.e4m3.e4m3.f32", ml_dtypes.float8_e4m3fn, floats=2e-3),
        sparse_mma("m16n8k64", "f32.e5m2.e5m2.f32", ml_dtypes.float8_e5m2, floats=2e-3),
        registers("cvt_f16x2", "cvt.rn.f16x2.f32 %0, %1, %2;", "r", "ff"),
        registers("cvt_bf16x2", "cvt.rn.bf16x2.f32 %0, %1, %2;", "r", "ff"),
        registers("cvt_bf16x2_relu", "cvt.rn.relu.bf16x2.f32 %0, %1, %2;", "r", "ff"),
        registers("cvt_f16", "cvt.rn.f16.f32 %0, %1;", "h", "f", floats(32, 1000)),
        registers("cvt_bf16", "cvt.rn.bf16.f32 %0, %1;", "h", "f"),
        registers("cvt_from_f16", "cvt.f32.f16 %0, %1;", "f", "h", packed(32, np.float16)),
        registers("cvt_tf32", "cvt.rna.tf32.f32 %0, %1;", "r", "f"),
        registers("cvt_e4m3", "cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;", "h", "ff", floats(64, 200)),
        registers("cvt_e5m2", "cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;", "h", "ff", floats(64, 30000)),
        registers("cvt_from_e4m3", "cvt.rn.f16x2.e4m3x2 %0, %1;", "r", "h"),
        registers("cvt_from_e5m2", "cvt.rn.f16x2.e5m2x2 %0, %1;", "r", "h"),
        registers("cvt_s32", "cvt.rzi.s32.f32 %0, %1;", "r", "f", floats(32, 1e9)),
        registers("cvt_from_s32", "cvt.rn.f32.s32 %0, %1;", "f", "r"),
        Case("mul_wide", _WIDE, words(64), 64),
        registers("prmt", "prmt.b32 %0, %1, %2, %3;", "r", "rrr"),
        registers("lop3_ea", "lop3.b32 %0, %1, %2, %3, 0xEA;", "r", "rrr"),
        registers("lop3_6a", "lop3.b32 %0, %1, %2, %3, 0x6A;", "r", "rrr"),
        registers("shf_l", "shf.l.wrap.b32 %0, %1, %2, %3;", "r", "rrr"),
        registers("shf_r", "shf.r.clamp.b32 %0, %1, %2, %3;", "r", "rrr"),
        registers("bfe", "bfe.u32 %0, %1, %2, %3;", "r", "rrr"),
        registers("popc", "popc.b32 %0, %1;", "r", "r"),
        registers("add_f16x2", "add.rn.f16x2 %0, %1, %2;", "r", "rr", packed(64, np.float16)),
        registers("sub_f16x2", "sub.rn.f16x2 %0, %1, %2;", "r", "rr", packed(64, np.float16)),
        registers("mul_f16x2", "mul.rn.f16x2 %0, %1, %2;", "r", "rr", packed(64, np.float16)),
        registers("fma_f16x2", "fma.rn.f16x2 %0, %1, %2, %3;", "r", "rrr", packed(96, np.float16)),
        registers("mul_bf16x2", "mul.rn.bf16x2 %0, %1, %2;", "r", "rr", packed(64, bf16)),
        registers("sub_bf16x2", "sub.rn.bf16x2 %0, %1, %2;", "r", "rr", packed(64, bf16)),
        registers("fma_bf16x2", "fma.rn.bf16x2 %0, %1, %2, %3;", "r", "rrr", packed(96, bf16)),
        registers("max_f16x2", "max.f16x2 %0, %1, %2;", "r", "rr", packed(64, np.float16)),
        registers("fma_f32", "fma.rn.f32 %0, %1, %2, %3;", "f", "fff"),
        registers("ex2", "ex2.approx.ftz.f32 %0, %1;", "f", "f", floats=1e-6),
        registers("lg2", "lg2.approx.ftz.f32 %0, %1;", "f", "f", positive(32), floats=1e-5),
        registers("rcp", "rcp.approx.ftz.f32 %0, %1;", "f", "f", positive(32), floats=1e-6),
        registers("rsqrt", "rsqrt.approx.ftz.f32 %0, %1;", "f", "f", positive(32), floats=1e-6),
        registers("tanh", "tanh.approx.f32 %0, %1;", "f", "f", floats=1e-3),
        registers("movmatrix", "movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;", "r", "r"),
        registers("redux_add", "redux.sync.add.s32 %0, %1, 0xffffffff;", "r", "r"),
        registers("redux_max", "redux.sync.max.u32 %0, %1, 0xffffffff;", "r", "r"),
        registers("shfl_bfly", "shfl.sync.bfly.b32 %0, %1, 5, 31, 0xffffffff;", "r", "r"),
        registers("shfl_up", "shfl.sync.up.b32 %0, %1, 3, 0, 0xffffffff;", "r", "r"),
        registers("shfl_down", "shfl.sync.down.b32 %0, %1, 7, 31, 0xffffffff;", "r", "r"),
        registers("shfl_idx", "shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;", "r", "rr",
                  by_thread(32, words(32), lambda rng: rng.integers(0, 32, 32, dtype=np.uint32))),
    ]  # fmt: skip


# ---- C functions ----


def function_cases() -> list[Case]:
    shuffles = """unsigned value = in[thread];
  out[thread] = __shfl_xor_sync(0xffffffffu, value, 3);
  out[32 + thread] = __shfl_down_sync(0xffffffffu, value, 4);
  out[64 + thread] = __shfl_up_sync(0xffffffffu, value, 9);
  out[96 + thread] = __shfl_sync(0xffffffffu, value, 11);
  out[128 + thread] = __shfl_xor_sync(0xffffffffu, value, 2, 8);
  out[160 + thread] = __ballot_sync(0xffffffffu, value > 0x40000000u);"""
    atomics = """int* cell = (int*)shared;
  if (thread < 8) cell[thread] = thread;
  __syncthreads();
  int value = (int)(in[thread] & 0xffu);
  atomicAdd(cell, value);
  atomicMax(cell + 1, value);
  atomicMin(cell + 2, value - 300);
  atomicOr(cell + 3, value);
  atomicAdd((float*)(cell + 8) - 4, (float)value);
  __syncthreads();
  if (thread < 8) out[thread] = (unsigned)cell[thread];"""
    swap = """unsigned short* cell = (unsigned short*)shared;
  if (thread < 2) cell[thread] = 0;
  __syncthreads();
  unsigned short held = *cell, before;
  do {
    before = held;
    held = atomicCAS(cell, before, (unsigned short)(before + (unsigned short)(in[thread] & 15u)));
  } while (held != before);
  __syncthreads();
  if (thread == 0) out[0] = (unsigned)cell[0];"""
    sums = """out[thread] = (unsigned)__dp4a((int)in[2 * thread], (int)in[2 * thread + 1], thread);
  out[32 + thread] = __byte_perm(in[2 * thread], in[2 * thread + 1], 0x5140);
  out[64 + thread] = (unsigned)__popc(in[thread]);"""
    return [
        Case("c_shuffles", shuffles, words(32), 192),
        Case("c_atomics", atomics, words(32), 8),
        Case("c_swap", swap, words(32), 1),
        Case("c_bytes", sums, words(64), 96),
    ]
