"""Device code for AMD GPUs: what becomes of NVIDIA's instructions in it, and what code objects say."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from device_kernels import add
from linked import link

from tilec.backends.base import backend_of
from tilec.backends.cuda.device import moves
from tilec.backends.hip.chips import CHIPS
from tilec.backends.hip.codegen import images
from tilec.backends.hip.codegen.compiler import code_object
from tilec.backends.hip.codegen.header import INSTRUCTIONS, LANES, MATH, header
from tilec.backends.hip.codegen.notes import read_notes
from tilec.backends.hip.codegen.text import amd_text
from tilec.backends.hip.products.helpers import FNUZ
from tilec.errors import CompileError, InputError, UnsupportedError
from tilec.targets import parse_target

#: What the host has for instructions of AMD's.
HOST = """
#define __forceinline__ inline
#define __device__
#define __builtin_amdgcn_exp2f __builtin_exp2f
#define __builtin_amdgcn_logf __builtin_log2f
#define __builtin_amdgcn_ldexpf __builtin_ldexpf
#define __builtin_amdgcn_fractf(x) ((x) - __builtin_floorf(x))
#define __builtin_amdgcn_sinf(x) __builtin_sinf((x) * 6.2831853f)
#define __builtin_amdgcn_cosf(x) __builtin_cosf((x) * 6.2831853f)
#define __builtin_amdgcn_rcpf(x) (1.0f / (x))
#define __builtin_amdgcn_rsqf(x) (1.0f / __builtin_sqrtf(x))
"""
DOORS = """
extern "C" void many(int which, int count, const float* in, float* out) {
  for (int i = 0; i < count; i++)
    out[i] = which == 0 ? expf(in[i]) : which == 1 ? logf(in[i])
           : __builtin_bit_cast(float, unsigned(tilec_cvt_rn_bf16_f32(in[i])) << 16);
}
extern "C" void to_fnuz(int count, const unsigned* in, unsigned* out) {
  for (int i = 0; i < count; i++) out[i] = tilec_to_fnuz(in[i]);
}
"""


@pytest.mark.parametrize("name", CHIPS)
def test_code_objects(name: str) -> None:
    target = parse_target(name)
    image = images.compile_kernel(add("float16"), target, "p")
    note = read_notes(image.code)["p_0"]
    assert note.arguments == ((0, 8), (8, 8), (16, 8), (24, 4), (32, 8))
    assert (note.lanes, note.threads, note.scratch, note.spills) == (CHIPS[name].lanes, 256, 0, 0)
    assert image.launches[0].gpu.registers == note.registers > 0


def test_instructions_become_functions() -> None:
    text = 'float f(float x) { asm volatile("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(g(x, 1))); return x; }'
    assert amd_text(text) == "float f(float x) { x = tilec_min_NaN_f32(x, g(x, 1)); return x; }"
    shared = amd_text("extern __shared__ __align__(64) uchar pool[];")
    assert shared.startswith("extern __attribute__((tilec_lds, aligned(64))) uchar pool_lds[];")
    assert amd_text('  asm volatile("cp.async.wait_group 2;" :  :  : "memory");').strip() == ""


def test_words_of_elements_are_read_by_types_that_may_alias() -> None:
    text = amd_text("".join(helper.text for helper in (moves.bits(2), moves.fetch(4), moves.move(1))))
    assert "*(const tilec_any_ushort*)from" in text
    assert "*(tilec_any_uint*)to = *(const tilec_any_uint*)from;" in text
    assert "((uchar*)to)[to_at] = ((const uchar*)from)[from_at];" in text


def test_what_is_left_of_nvidia_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="fence on AMD GPUs"):
        amd_text('void fence(int x) { asm volatile("fence.proxy.async;" ::: "memory"); }')
    with pytest.raises(UnsupportedError, match="erff on AMD GPUs"):
        amd_text('extern "C" __global__ void k(float* x) { x[0] = erff(x[1]); }')


def test_limits_and_names() -> None:
    with pytest.raises(
        CompileError, match="needs 70000 bytes of shared memory in a block, gfx1100 has 65536"
    ):
        images.compile_kernel(add(shared_bytes=70000), parse_target("gfx1100"), "p")
    with pytest.raises(InputError, match="takes no features"):
        parse_target("gfx942+fp8")
    assert backend_of(parse_target("gfx942")).shared_bytes(parse_target("gfx950")) == 160 * 1024


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("header")
    source, library = folder / "header.cpp", folder / "header.so"
    source.write_text(f"{HOST}namespace {{{MATH}{INSTRUCTIONS}{FNUZ.text}}}{DOORS}")
    flags = ("-x", "c++", "-std=c++20", "-ffreestanding", "-fno-builtin", "-w", "-shared", "-fPIC")
    link(*flags, source, "-o", library, "-lm")
    return ctypes.CDLL(str(library))


def computed(host: ctypes.CDLL, which: int, values: np.ndarray) -> np.ndarray:
    out = np.empty_like(values)
    host.many(which, len(values), values.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p))
    return out


def test_functions_of_the_header(host: ctypes.CDLL) -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-86, 88, 20000), [0, -0.0, -200, np.inf, -np.inf]]).astype(np.float32)
    wanted = np.exp(x.astype(np.float64))
    assert np.allclose(computed(host, 0, x), wanted, rtol=3e-7, atol=1e-44)
    assert np.isnan(computed(host, 0, np.float32([np.nan]))).all()
    x = np.exp(rng.uniform(-86, 88, 20000)).astype(np.float32)
    assert np.allclose(computed(host, 1, x), np.log(x.astype(np.float64)), rtol=4e-7, atol=2e-7)
    edges = computed(host, 1, np.float32([0, np.inf, -1, 1e-45]))
    assert edges[0] == -np.inf
    assert edges[1] == np.inf
    assert np.isnan(edges[2])
    assert abs(edges[3] - np.log(float(np.float32(1e-45)))) < 1e-4


def test_rounding_to_bfloat16(host: ctypes.CDLL) -> None:
    bits = np.random.default_rng(4).integers(0, 2**32, 50000, dtype=np.uint32)
    x = bits.view(np.float32)
    with np.errstate(invalid="ignore"):
        wanted = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(computed(host, 2, x), wanted, equal_nan=True)


def test_8_bit_floats_as_gfx942_reads_them(host: ctypes.CDLL) -> None:
    """Every byte in every place of a word, beside others: half of its value, NaN of NaN, one zero."""
    rng = np.random.default_rng(5)
    given = rng.integers(0, 256, (4, 256, 4), dtype=np.uint8)
    for place in range(4):
        given[place, :, place] = range(256)
    words, found = given.view(np.uint32).ravel(), np.empty(1024, np.uint32)
    host.to_fnuz(1024, *(each.ctypes.data_as(ctypes.c_void_p) for each in (words, found)))
    halves = words.view(ml_dtypes.float8_e4m3fn).astype(np.float32) / 2
    np.testing.assert_array_equal(found.view(ml_dtypes.float8_e4m3fnuz).astype(np.float32), halves)
    assert np.array_equal(FNUZ.meaning(SimpleNamespace(count=1024), words), found)


#: A lane of a wave of 64 on the host: which it is, what the wave's lanes hold, vote, and which of them run.
A_LANE = """
static unsigned own;
static const int* held;
static unsigned long votes, running;
#define __builtin_amdgcn_fence(order, scope)
#define __builtin_amdgcn_s_barrier()
#define __builtin_amdgcn_wave_barrier()
#define __builtin_amdgcn_wavefrontsize() 64
#define __builtin_amdgcn_mbcnt_lo(mask, more) 0u
#define __builtin_amdgcn_mbcnt_hi(mask, more) own
#define __builtin_amdgcn_ds_swizzle(value, pattern) (value)
#define __builtin_amdgcn_ds_bpermute(place, value) held[(place) / 4]
#define __builtin_amdgcn_ballot_w64(vote) ((vote) ? yes() : no())
static unsigned long yes() { return running & (votes >> own & 1 ? votes : ~votes); }
static unsigned long no() { return running & (votes >> own & 1 ? ~votes : votes); }
"""
VOTING = """
extern "C" void vote(unsigned lane, const int* values, unsigned long by, unsigned long run, unsigned* out) {
  own = lane, held = values, votes = by, running = run;
  bool mine = by >> lane & 1;
  out[0] = __ballot_sync(~0u, mine), out[1] = __any_sync(~0u, mine), out[2] = __all_sync(~0u, mine);
  votes = ~0ul, out[3] = __activemask(), out[4] = __match_any_sync(~0u, values[lane]);
}
"""


def test_votes_are_those_of_a_warp_of_32_lanes(tmp_path: Path) -> None:
    source, library = tmp_path / "votes.cpp", tmp_path / "votes.so"
    source.write_text(HOST + A_LANE + LANES + VOTING)
    link("-O1", "-shared", "-fPIC", "-fno-exceptions", source, "-o", library)
    votes, running = np.uint64(0x0000FFFF_00F0FFFF), np.uint64(0x0000FFFF_FFFFFFF0)
    values, out = (np.arange(64) % 5).astype(np.int32), np.zeros(5, np.uint32)
    vote, word = ctypes.CDLL(str(library)).vote, ctypes.c_uint64
    for lane in (4, 31, 32, 47):
        shift = lane // 32 * 32
        ran, by = (int(each) >> shift & 0xFFFFFFFF for each in (running, votes & running))
        alike = sum(1 << at for at in range(32) if values[shift + at] == values[lane])
        vote(lane, values.ctypes, word(int(votes)), word(int(running)), out.ctypes)
        assert out.tolist() == [by, by != 0, by == ran, ran, ran & alike], lane


@pytest.mark.parametrize("name", ["gfx942", "gfx1100"])
def test_votes_are_code(name: str) -> None:
    calls = "ballot_sync(0xffffffffu, x > 0) + __match_any_sync(0xffffffffu, x) + __all_sync(7u, x > 1)"
    text = f'extern "C" __global__ void f(int* p) {{ int x = p[threadIdx.x]; p[0] = __{calls}; }}'
    assert code_object(header(()) + amd_text(text), parse_target(name))
