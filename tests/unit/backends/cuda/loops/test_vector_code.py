"""Vectors of CUDA code: how elements are loaded, rounded and stored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.codegen.compilers import find_compiler
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.text.parser import parse_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target

SHIPPED = Path(__file__).parents[5] / "examples" / "kernels"
SM80 = parse_target("sm_80")
ROTARY = {"tokens": Guard(), "H": Guard(eq=8), "D": Guard(eq=64), "S": Guard(),
          "ldx": Guard(div=8), "ldy": Guard(div=8)}  # fmt: skip


def body(entry: str, dims: dict[str, Guard], dtype: str = "float16", **config: object) -> str:
    """The CUDA source of a shipped kernel's device function."""
    return source(entry, dims, dtype, **config).rsplit("__global__", 1)[1]


def source(entry: str, dims: dict[str, Guard], dtype: str = "float16", **config: object) -> str:
    """The CUDA source of a shipped kernel."""
    kernel = elaborate(
        load_entry(entry, SHIPPED), name="kernel", dims=dims, args={"dtype": dtype}, config=config
    )
    return cuda.source(to_tir(lower(kernel, SM80), SM80), SM80, "kernel")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_are_rounded_once_and_in_pairs(dtype):
    text = body("elementwise.py:scale_add", {"n": Guard(div=8)}, dtype, block=1024)
    assert text.count(f"tilec_pack_{dtype}x2") == 4
    assert "(half)" not in text
    assert "tilec_to_bfloat16" not in text


def test_a_copy_does_not_touch_the_bits():
    text = body("elementwise.py:copy", {"n": Guard(div=8)}, "bfloat16", block=1024)
    assert "bfloat16" not in text.replace("_bfloat16", "")
    assert "tilec_pack" not in text
    assert "tilec_from" not in text


def test_two_stores_to_one_tensor_are_vectors():
    text = body("rotary.py:rotary", ROTARY, rows=16)
    assert len(re.findall(r"tilec_move_8\(\(&\(Y_ptr", text)) == 2


def test_what_all_of_a_vector_read_is_read_once():
    text = body("rotary.py:rotary", ROTARY, rows=16)
    assert text.count("positions_ptr[") == 1


@pytest.mark.nvrtc
def test_vectors_stay_whole_where_blocks_are_no_power_of_two():
    text = source("elementwise.py:silu_mul", {"M": Guard(), "N": Guard(eq=14336), "ldg": Guard(eq=28672),
                  "ldu": Guard(eq=28672)}, rows=1, bN=7168, threads=896)  # fmt: skip
    code = find_compiler().compile(text, "compute_80").code.decode()
    assert re.findall(r"st\.global\.\S+", code) == ["st.global.v4.u32"]


def tile_body(*lines: str) -> str:
    """The device function of one block of 64 threads over x and y of 1024 numbers."""
    text = [
        'kernel("tile")',
        'x = tensor(float32, (1024,), ("1024",), access="in")',
        'y = tensor(float32, (1024,), ("1024",), access="out")',
        "with launch(1, threads=(64, 1, 1)) as (bx,):",
        *(f"    {line}" for line in lines),
    ]
    kernel = parse_kernel("\n".join(text) + "\n")
    return cuda.source(to_tir(lower(kernel, SM80), SM80), SM80, "kernel").rsplit("__global__", 1)[1]


SHARED = 's = alloc(float32, (256,), "shared.dyn")'


def test_an_element_updated_in_place_is_part_of_a_vector():
    text = tile_body(SHARED, "for i in parallel(256):", "    s[i] = s[i] + 1.0", "    y[i] = s[i]")
    assert "tilec_move_16((&(s" in text  # what is read again is in a register
    text = tile_body(SHARED, "for i in parallel(256):", "    y[i] = s[i]", "    s[i] = s[i] + 1.0")
    assert "tilec_move_16((&(s" in text


def test_an_element_beside_the_updated_one_is_not():
    text = tile_body(SHARED, "for i in parallel(252):", "    s[i] = s[i + 4] + 1.0")
    assert "tilec_move_16((&(s" not in text


def test_unrolled_loops_test_bounds_only_where_they_may_fail():
    lines = ("    for i in parallel(384):", "        y[k * 384 + i] = x[k * 384 + i]")
    text = tile_body("for k in unroll(0, 3, 1):", *lines)
    assert text.count("< 1024") == 2  # one read and one write of the last trip
    assert "for (int k" not in text


@pytest.mark.parametrize(
    ("value", "wide"),
    [
        ("cast(uint64, a[i]) * cast(uint64, b[i])", "tilec_wide(a"),
        ("cast(uint64, a[i]) * uint64(3528531795)", "(uint)3528531795)"),
        ("cast(uint64, a[i]) * uint64(4294967296)", None),
        ("(cast(uint64, a[i]) + uint64(1)) * cast(uint64, b[i])", None),
    ],
    ids=["words", "a constant", "no word", "a sum"],
)
def test_products_of_words_take_one_instruction(value, wide):
    """Both halves of it: else the compiler multiplies once more for the low one."""
    kernel = parse_kernel(f"""
kernel("small")
a = tensor(uint32, (128,), ("128",), access="in")
b = tensor(uint32, (128,), ("128",), access="in")
c = tensor(uint64, (128,), ("128",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    for i in parallel(128):
        c[i] = {value}
""")
    text = cuda.source(to_tir(lower(kernel, SM80), SM80), SM80, "small").rsplit("__global__", 1)[1]
    assert ("tilec_wide(" in text) == (wide is not None)
    assert wide is None or wide in text


@pytest.mark.parametrize(("options", "parts"), [('{"fast_math": True}', 2), ("{}", 1)], ids=["fast", "exact"])
def test_a_number_of_a_place_becomes_a_float_once_for_all_registers(options, parts):
    """What unrolled loops add to it is a constant, a float of its own."""
    kernel = parse_kernel(f"""
kernel("small", options={options})
n = scalar(int32)
Y = tensor(float32, (64, 64), ("64", "64"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    acc = alloc(float32, (64, 64), "local.fragment")
    for i, j in parallel(64, 64):
        acc[i, j] = cast(float32, n - i - j)
    copy(acc[0:+64, 0:+64], Y[0:+64, 0:+64])
""")
    text = cuda.source(to_tir(lower(kernel, SM80), SM80), SM80, "kernel")
    assert text.rsplit("__global__", 1)[1].count("(float)(") == parts


@pytest.mark.parametrize(("number", "parts"), [("n % 4096", 2), ("n % 8388608", 1)])
def test_numbers_that_float32_holds_exactly_are_parted_without_fast_math(number, parts):
    kernel = parse_kernel(f"""
kernel("small")
n = scalar(int32)
Y = tensor(float32, (64, 64), ("64", "64"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    acc = alloc(float32, (64, 64), "local.fragment")
    for i, j in parallel(64, 64):
        acc[i, j] = cast(float32, {number} - i - j)
    copy(acc[0:+64, 0:+64], Y[0:+64, 0:+64])
""")
    text = cuda.source(to_tir(lower(kernel, SM80), SM80), SM80, "kernel")
    assert text.rsplit("__global__", 1)[1].count("(float)(") == parts


@pytest.mark.parametrize("options", ['{"fast_math": True}', "{}"], ids=["fast", "exact"])
def test_a_factor_on_such_a_number_is_one_product_for_all_registers(options):
    """What unrolled loops add is a multiply-add with a constant."""
    kernel = parse_kernel(f"""
kernel("small", options={options})
n = scalar(int32)
slope = scalar(float32)
Y = tensor(float32, (64, 64), ("64", "64"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    acc = alloc(float32, (64, 64), "local.fragment")
    for i, j in parallel(64, 64):
        acc[i, j] = slope * cast(float32, n - i - j)
    copy(acc[0:+64, 0:+64], Y[0:+64, 0:+64])
""")
    text = cuda.source(to_tir(lower(kernel, SM80), SM80), SM80, "kernel")
    products = text.rsplit("__global__", 1)[1].count("* slope")
    assert products == (2 if "fast" in options else 0)


@pytest.mark.parametrize(("group", "once"), [(128, True), (48, False)])
def test_groups_that_hold_all_rows_of_a_trip_are_told_by_the_trip(group, once):
    kernel = parse_kernel(f"""
kernel("small")
S = tensor(float32, (64, 64), ("64", "64"), access="in")
Y = tensor(float32, (4096, 64), ("4096", "64"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    for k in serial(0, 64, 1):
        for i, j in parallel(64, 64):
            g = (k * 64 + i) // {group}
            Y[k * 64 + i, j] = S[g, j]
""")
    text = cuda.source(to_tir(lower(kernel, SM80), SM80), SM80, "kernel").rsplit("__global__", 1)[1]
    assert ("(k / 2)" in text) == once
    assert (f"/ {group})" in text) != once


@pytest.mark.parametrize(("threads", "shuffles"), [(256, 5), (512, 9), (1024, 10)])
def test_lanes_join_the_shares_of_many_warps(threads, shuffles):
    """Five exchanges in each warp; where 16 warps or more have shares, a lane reads each."""
    kernel = parse_kernel(f"""
kernel("small")
X = tensor(float32, (4096,), ("4096",), access="in")
Y = tensor(float32, (1,), ("1",), access="out")
with launch(1, threads=({threads}, 1, 1)) as (bx,):
    x = alloc(float32, (4096,), "local.fragment")
    s = alloc(float32, (1,), "local.fragment")
    copy(X[0:+4096], x[0:+4096])
    reduce_sum(x[0:+4096], s[0:+1], axis=0, clear=True)
    copy(s[0:+1], Y[0:+1])
""")
    text = cuda.source(to_tir(lower(kernel, SM80), SM80), SM80, "kernel").rsplit("__global__", 1)[1]
    assert text.count("tilec_shuffle_xor_float32(") == shuffles


ROWS = {"M": Guard(), "N": Guard(), "ldx": Guard()}


def test_trips_over_rows_that_begin_anywhere_are_not_written_out():
    text = body("norm.py:rmsnorm", ROWS, rows=1, bN=4096, threads=256)
    assert "#pragma unroll 1\n" in text
    assert "tilec_read_end_16_2" in text
    known = {"M": Guard(), "N": Guard(div=8), "ldx": Guard(div=8)}
    assert "#pragma unroll 1\n" not in body("norm.py:rmsnorm", known, rows=1, bN=4096, threads=256)


def test_a_pitch_of_whole_vectors_is_asked_for_once():
    text = body("norm.py:rmsnorm", {**ROWS, "N": Guard(div=8)}, rows=1, bN=4096, threads=256)
    assert "if ((ldx & 7) == 0)" in text
    assert "tilec_write_end" not in text


def test_vectors_at_the_ends_of_rows_are_read_whole_where_a_key_asks_for_it():
    """No element is read one by one but at the end of the tensor, nor are any looked for a lap further on."""
    known = {**ROWS, "N": Guard(min=1025, max=2033)}
    held = {"rows": 1, "bN": 2048, "parts": 1, "threads": 128, "one_chunk": True}
    assert "tilec_move_16((&(X_v_ptr" not in body("softmax.py:softmax", known, **held)
    text = body("softmax.py:softmax", known, **held, phase=True)
    same_phase, apart = text.split("\n  } else {\n", 1)
    assert "if ((((ldx & 7) - (N & 7)) & 7) == 0)" in same_phase
    assert same_phase.count("tilec_cut_end_16_2((&(X_v_ptr") == 1
    assert all(line.endswith(", 0, 2048);") for line in text.splitlines() if "_end_16_2((" in line)
    assert "tilec_realign" not in same_phase
    assert "tilec_realign" in apart


# ---- rows and elements ----

EVEN = {"M": Guard(), "N": Guard(div=8), "ldx": Guard(div=8)}
HOLDING = {"bN": 4096, "rows": 1, "parts": 1, "threads": 256, "one_chunk": True}


def test_all_elements_of_a_thread_are_asked_for_before_the_first_is_stored():
    text = body("elementwise.py:scale_add", {"n": Guard(div=8)}, "float32", block=2048)
    assert text.rindex("tilec_take_16((&(B_v") < text.index("tilec_move_16((&(Y_ptr")


def test_a_thread_with_one_vector_needs_no_fragment():
    text = body("elementwise.py:scale_add", {"n": Guard(div=8)}, "float32", block=512)
    assert "_ahead" not in text


def test_what_takes_many_registers_is_not_asked_for_ahead():
    text = body("elementwise.py:scale_add", {"n": Guard(div=8)}, "float32", block=4096)
    assert "_ahead" not in text


def test_tensors_of_one_axis_that_may_be_short_begin_at_any_element():
    text = body("elementwise.py:scale_add", {"n": Guard()}, "float32", block=1024)
    assert "tilec_move_16" not in text
    assert text.rindex("condval") < text.index("Y_ptr[(")


def test_tensors_of_one_axis_move_vectors_whatever_their_length():
    text = body("elementwise.py:scale_add", {"n": Guard(min=8)}, "float32", block=1024)
    assert "tilec_move_16((&(X_v" in text
    assert "tilec_move_16((&(Y_ptr" in text


def test_neighbours_share_the_test_of_a_bound_that_is_a_multiple():
    tests = re.findall(r"if \((.*) < N\)", body("softmax.py:softmax", EVEN, "float16", **HOLDING))
    assert tests
    assert all(test.startswith("(((lane * 8) + (warp * 256)) + (r") for test in tests)


def test_a_sigmoid_has_no_slow_path():
    dims = {"M": Guard(), "N": Guard(div=8), "ldg": Guard(div=8), "ldu": Guard(div=8)}
    assert body("elementwise.py:silu_mul", dims, "bfloat16").count("tilec_sigmoid(") == 8


@pytest.mark.nvrtc
def test_vectors_at_constant_distances_share_an_address():
    text = source("softmax.py:softmax", EVEN, "float16", **HOLDING)
    code = find_compiler().compile(text, "compute_80").code.decode()
    assert re.findall(r"ld\.global\S+v4\S+ .*\[%rd\d+(\+\d+)?\]", code) == ["", "+4096"]


def parts_of_rows():
    """Rows of n in parts whose number is a quotient by a run-time dim, joined under a condition."""
    n, m = T.dynamic("n"), T.dynamic("m")

    @T.prim_func
    def main(X: T.Tensor((n, 64), "float32"), Y: T.Tensor((n, 64), "float32")):
        parts = T.alloc_global((n, T.ceildiv(n, m), 64), "float32")
        with T.Kernel(n, T.ceildiv(n, m), threads=64) as (bx, by):
            for j in T.Parallel(64):
                parts[bx, by, j] = X[bx, j]
        with T.Kernel(n, threads=64) as bx:
            count = T.ceildiv(n, m)
            held = T.alloc_fragment((8, 64), "float32")
            for i, j in T.Parallel(8, 64):
                held[i, j] = T.if_then_else(i < count, parts[bx, i, j], 0)
            for i, j in T.Parallel(8, 64):
                if i < count:
                    Y[bx, j] = held[i, j]

    return main


def test_quotients_that_have_a_name_are_computed_once():
    guards = {name: Guard(min=1) for name in ("n", "m")}
    kernel = elaborate(parts_of_rows(), name="kernel", dims=guards, args={}, config={})
    text = cuda.source(to_tir(lower(kernel, SM80), SM80), SM80, "kernel").rsplit("__global__", 1)[1]
    quotients = [line for line in text.splitlines() if re.search(r"/ .*\bm\b", line)]
    assert len(quotients) == 2  # an extent of the workspace, and the author's own name
    assert all("tilec_once_" in line for line in quotients)


def test_a_quotient_that_is_rounded_up_asks_for_no_sign():
    guards = {name: Guard() for name in ("n", "m")}
    kernel = elaborate(parts_of_rows(), name="kernel", dims=guards, args={}, config={})
    text = cuda.source(to_tir(lower(kernel, SM80), SM80), SM80, "kernel")
    assert re.search(r"\bm\)* == ", text)
    assert "rmod" not in text  # TVM's remainder, which tells the sign of a quotient that is rounded down
