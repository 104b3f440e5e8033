"""What each pass makes of a product: golden text of the whole chain, and the cases that a pass must leave."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiled import Library, numpy_type
from cpu_products import BIAS_RESIDUAL, ROW_MAX, ROW_SUM, STAGED, STORE, Product

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.cpu.nodes import MicroGemm, PackWords, TransposePanels
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import UnsupportedError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Alloc, Copy, Fill, If, Kernel, Pipelined, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target, runs_here

EXAMPLES = Path(__file__).resolve().parents[5] / "examples" / "kernels"

GOLDEN = {
    "panels": Product(N=128, K=64, panel=32, bN=128, epilogue=BIAS_RESIDUAL),
    "trans_b": Product(bM=64, trans_b=True, N=128),
    "across": Product(bM=16, trans_b=True, N=128),
    "rows_summed": Product(N=64, epilogue=ROW_SUM),
    "float16": Product(dtype="float16", out="float16", epilogue=STAGED),
}
STAGES = (
    "select_microkernel",
    "forward_operands",
    "merge_panels",
    "merge_k_steps",
    "fuse_epilogue",
    "pack_operands",
)


def lowered(product: Product, until: str = "pack_operands", target: str = "x86-64-v4") -> Kernel:
    """The kernel of ``product`` after the pass ``until``."""
    return lower(parse_kernel(product.text("product")), parse_target(target), until=until)


def code(product: Product, target: str = "x86-64-v4") -> str:
    """The TIR that LLVM gets of ``product``."""
    kernel = lower(parse_kernel(product.text("product")), parse_target(target))
    return tir_text(to_tir(kernel, parse_target(target)), parse_target(target), "k")


def found(kernel: Kernel, kind: type) -> list:
    """The statements of one class."""
    return [stmt for stmt in walk(kernel.body) if isinstance(stmt, kind)]


@pytest.mark.parametrize("name", GOLDEN)
def test_chain(name: str, golden: Callable[..., None]) -> None:
    parts = [f"# {stage}\n{format_kernel(lowered(GOLDEN[name], stage))}" for stage in STAGES]
    golden("\n".join(parts))


@pytest.mark.parametrize(
    ("target", "rows", "cols"),
    [("x86-64-v4", 8, 32), ("x86-64-v3", 6, 16), ("x86-64-v2", 4, 8), ("aarch64", 6, 16)],
)
def test_block_follows_the_target(target: str, rows: int, cols: int) -> None:
    (gemm,) = found(lowered(Product(), target=target), MicroGemm)
    assert (gemm.block.rows, gemm.block.cols) == (rows, cols)


@pytest.mark.parametrize(
    ("target", "dtype", "form"),
    [
        ("x86-64-v4+avx512bf16", "bfloat16", "vdpbf16ps"),
        ("x86-64-v4", "bfloat16", "fma"),
        ("x86-64-v4+amx", "bfloat16", "tdpbf16ps"),
        ("x86-64-v4+amx", "int8", "tdpbssd"),
        ("x86-64-v4+amx", "uint8", "tdpbuud"),
        ("x86-64-v4+vnni", "int8", "vpdpbusd"),
        ("x86-64-v4+vnni", "uint8", "pmaddwd"),
        ("x86-64-v3+avxvnni", "int8", "vpdpbusd"),
        ("x86-64-v2", "int8", "pmaddwd"),
        ("aarch64", "int8", "fma"),
        ("aarch64+bf16", "bfloat16", "bfmmla"),
        ("aarch64+dotprod+i8mm", "int8", "smmla"),
        ("aarch64+dotprod+i8mm", "uint8", "ummla"),
        ("aarch64+dotprod", "int8", "sdot"),
        ("aarch64+dotprod", "uint8", "udot"),
    ],
)
def test_form_follows_target_and_types(target: str, dtype: str, form: str) -> None:
    acc = "int32" if dtype.endswith("int8") else "float32"
    (gemm,) = found(lowered(Product(dtype=dtype, acc=acc, out=acc), target=target), MicroGemm)
    assert gemm.block.form == form


@pytest.mark.parametrize(
    ("target", "a", "b", "form"),
    [
        ("x86-64-v4+vnni", "uint8", "int8", "vpdpbusd_us"),
        ("x86-64-v3+avxvnni", "int8", "uint8", "vpdpbusd_su"),
        ("x86-64-v4", "uint8", "int8", "pmaddwd"),
        ("x86-64-v4+amx", "uint8", "int8", "tdpbusd"),
    ],
)
def test_bytes_of_which_one_has_no_sign_need_no_offset(target: str, a: str, b: str, form: str) -> None:
    product = Product(dtype=a, b_dtype=b, acc="int32", out="int32")
    (gemm,) = found(lowered(product, target=target), MicroGemm)
    assert gemm.block.form == form


def test_depth_that_is_no_multiple_of_a_word_takes_plain_steps() -> None:
    product = Product(dtype="bfloat16", bK=7)
    (gemm,) = found(lowered(product, target="x86-64-v4+avx512bf16"), MicroGemm)
    assert gemm.block.form == "fma"


@pytest.mark.parametrize("sizes", [{"bM": 1}, {"bK": 6}])
def test_what_fills_no_pairs_takes_dot_products(sizes: dict[str, int]) -> None:
    (gemm,) = found(lowered(Product(dtype="bfloat16", **sizes), target="aarch64+bf16"), MicroGemm)
    assert gemm.block.form == "bfdot"


@pytest.mark.parametrize(
    ("dtype", "sizes", "form"),
    [
        ("bfloat16", {"bK": 6}, "fma"),
        ("bfloat16", {"bN": 40}, "fma"),
        ("int8", {"bK": 8}, "pmaddwd"),
        ("int8", {"bK": 24}, "tdpbssd"),
    ],
)
def test_what_fills_no_tiles_takes_vectors(dtype: str, sizes: dict[str, int], form: str) -> None:
    """And bfloat16 then takes float32's multiply-adds: vdpbf16ps is slower on processors with tiles."""
    acc = "int32" if dtype == "int8" else "float32"
    product = Product(dtype=dtype, acc=acc, out=acc, **sizes)
    (gemm,) = found(lowered(product, target="x86-64-v4+avx512bf16+amx"), MicroGemm)
    assert gemm.block.form == form
    assert "tdpb" in gemm.loss.condition


def test_few_rows_take_tiles_rather_than_vectors_along_k() -> None:
    product = Product(dtype="bfloat16", bM=16, N=128, trans_b=True)
    (vectors,) = found(lowered(product), MicroGemm)
    (tiles,) = found(lowered(product, target="x86-64-v4+amx"), MicroGemm)
    assert (vectors.block.form, tiles.block.form) == ("across", "tdpbf16ps")


@pytest.mark.parametrize(("depth", "read"), [(64, "B"), (None, "Bs_rows")])
def test_few_rows_are_the_right_operand_of_tiles(depth: int | None, read: str) -> None:
    """The left one, of which every element is read once, stays where it is, if tiles have all of their K."""
    product = Product(dtype="bfloat16", K=depth, bM=16, bN=64, bK=32, trans_b=True)
    (gemm,) = found(lowered(product, target="x86-64-v4+amx"), MicroGemm)
    assert [int(extent) for extent in gemm.c.buffer.shape] == [64, 16]
    assert (gemm.a.region.buffer.name, gemm.b.region.buffer.name) == (read, "As_panels")


@pytest.mark.parametrize(
    "other", [{"bM": 64}, {"trans_b": False}, {"epilogue": ROW_SUM}, {"dtype": "float32"}, {"bN": 32}]
)
def test_products_that_gain_nothing_by_it_are_not_turned(other: dict[str, object]) -> None:
    product = Product(**{"dtype": "bfloat16", "bM": 16, "bN": 64, "bK": 32, "trans_b": True, **other})
    (gemm,) = found(lowered(product, target="x86-64-v4+amx"), MicroGemm)
    assert [int(extent) for extent in gemm.c.buffer.shape] == [product.bM, product.bN]


def test_words_are_made_of_the_source_where_that_has_the_whole_tile() -> None:
    sizes = {"dtype": "bfloat16", "bM": 64, "bN": 64, "bK": 32, "trans_b": True}
    known = lowered(Product(N=128, K=64, **sizes), target="x86-64-v4+amx")
    (words,) = found(known, PackWords)
    assert words.src.region.buffer.name == "B"
    assert "Bs" not in [alloc.buffer.name for alloc in found(known, Alloc)]
    direct, staged = found(lowered(Product(**sizes), target="x86-64-v4+amx"), PackWords)
    assert (direct.src.region.buffer.name, staged.src.region.buffer.name) == ("B", "Bs")


def test_types_without_a_product_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no CPU product of float16 and float16 into int32"):
        lowered(Product(dtype="float16", acc="int32", out="int32"))


def test_packed_weights_leave_one_product_over_all_of_k() -> None:
    kernel = lowered(Product(K=64, N=128, panel=32, epilogue=BIAS_RESIDUAL))
    (gemm,) = found(kernel, MicroGemm)
    assert gemm.depth == 64
    assert gemm.a.region.buffer.name == "A"
    assert gemm.b.region.buffer.name == "B"
    assert [buffer.name for buffer in gemm.registers] == ["acc"]
    assert not any(found(kernel, kind) for kind in (Copy, Fill, Pipelined))


def test_panels_that_may_end_inside_a_tile_are_packed() -> None:
    (gemm,) = found(lowered(Product(panel=32)), MicroGemm)
    assert gemm.b.region.buffer.scope() == "shared.dyn"


def test_run_time_depth_limits_a_merged_loop() -> None:
    (gemm,) = found(lowered(Product(N=64, panel=32)), MicroGemm)
    assert not isinstance(gemm.depth, int)
    assert gemm.b.region.buffer.name == "B"


def test_rows_that_alias_are_copied() -> None:
    (near,) = found(lowered(Product(bM=128, K=100, N=512, bN=512)), MicroGemm)
    (far,) = found(lowered(Product(bM=128, K=4096, N=512, bN=512)), MicroGemm)
    assert near.a.region.buffer.name == "A"
    assert far.a.region.buffer.name == "As_rows"


@pytest.mark.parametrize("rows", [32, 64, 128])
def test_rows_that_few_panels_read_are_read_in_place(rows: int) -> None:
    """Whether columns are packed or, of fewer rows, read in place."""
    for width, name in ((128, "A"), (160, "As_rows")):
        (gemm,) = found(lowered(Product(bM=rows, bN=width)), MicroGemm)
        assert gemm.a.region.buffer.name == name
        assert (gemm.b.region.buffer.name == "B") == (rows <= 64)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4+avx512bf16", "x86-64-v4+amx", "aarch64+bf16"])
def test_rows_that_a_converting_copy_lacks_are_not_computed(target: str) -> None:
    """The copy stays: what is read is what it makes of the rows that there are."""
    product = Product(dtype="bfloat16", a_dtype="float32", N=128, K=64, bK=32, panel=32)
    for M, limited in ((None, True), (64, False)):
        (gemm,) = found(lowered(replace(product, M=M), "forward_operands", target), MicroGemm)
        assert gemm.a.region.buffer.name == "As"
        assert isinstance(gemm.rows, int) != limited


def test_long_rows_that_a_copy_converts_are_read_from_their_tile() -> None:
    text = """
kernel("k")
X = tensor(bfloat16, (64, 4096), ("64", "4096"), access="in")
Y = tensor(float32, (64, 4096), ("64", "4096"), access="out")
with launch(64, threads=(128, 1, 1)) as (bx,):
    x = alloc({dtype}, (4096,), "local.fragment")
    copy(X[bx:+1, 0:+4096], x[0:+4096])
    for i in parallel(4096):
        Y[bx, i] = cast(float32, x[i])
"""
    tiles = []
    for dtype in ("bfloat16", "float32"):
        kernel = lower(
            parse_kernel(text.format(dtype=dtype)), parse_target("x86-64-v4"), until="read_in_place"
        )
        tiles.append([alloc.buffer.name for alloc in found(kernel, Alloc)])
    assert tiles == [[], ["x"]]


def test_the_last_step_of_a_loop_finishes_what_the_first_one_cleared() -> None:
    kernel = lowered(Product(K=64), "fuse_epilogue")
    (loop,), (gemm,) = found(kernel, Pipelined), found(kernel, MicroGemm)
    assert loop.body[-1] is gemm
    assert [stmt.buffer.name for stmt in gemm.body] == ["C"]
    assert not found(kernel, Fill)
    assert all(alloc.place is None for alloc in found(kernel, Alloc))


@pytest.mark.parametrize("target", ["x86-64-v4+amx", "x86-64-v4"])
def test_sums_of_16_bits_are_finished_in_the_last_step(target: str) -> None:
    kernel = lowered(Product(K=64, bM=64, dtype="bfloat16", bK=32, trans_b=True), "fuse_epilogue", target)
    (gemm,) = found(kernel, MicroGemm)
    assert [stmt.buffer.name for stmt in gemm.body] == ["C"]
    assert not found(kernel, Fill)


@pytest.mark.parametrize(("target", "inside"), [("x86-64-v4+amx", False), ("x86-64-v4", True)])
def test_a_matrix_unit_finishes_sums_of_made_operands_behind_their_loop(target: str, inside: bool) -> None:
    text = """
kernel("k")
A = tensor(bfloat16, (64, 256), ("64", "256"), access="in")
W = tensor(int8, (64, 256), ("64", "256"), access="in")
C = tensor(bfloat16, (64, 64), ("64", "64"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    a = alloc(bfloat16, (64, 64), "shared.dyn")
    w = alloc(bfloat16, (64, 64), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    fill(acc[0:+64, 0:+64], 0.0)
    for k in pipelined(0, 4, num_stages=2):
        copy(A[0:+64, k * 64:+64], a[0:+64, 0:+64])
        for i, j in parallel(64, 64):
            w[i, j] = cast(bfloat16, W[i, k * 64 + j]) * bfloat16(0.5)
        gemm(a[0:+64, 0:+64], w[0:+64, 0:+64], acc[0:+64, 0:+64], trans_b=True, clear=False)
    copy(acc[0:+64, 0:+64], C[0:+64, 0:+64])
"""
    (gemm,) = found(lower(parse_kernel(text), parse_target(target), until="fuse_epilogue"), MicroGemm)
    assert bool(gemm.body) == inside


@pytest.mark.parametrize(("whole", "known"), [(64, True), (8, False)])
def test_a_matrix_unit_reads_rows_in_place_where_their_run_time_distance_allows(
    whole: int, known: bool
) -> None:
    product = Product(dtype="bfloat16", bM=64, bK=64, whole=whole, trans_b=True)
    kernel = lowered(product, "pack_operands", "x86-64-v4+amx")
    (gemm,) = found(kernel, MicroGemm)
    text = format_kernel(kernel)
    assert (gemm.a_place is not None) == known
    assert ("in_place=K % 2048 != 0" in text) == ("if K % 2048 == 0:" in text) == known


@pytest.mark.parametrize(("columns", "past"), [(512, True), (128, False), (32, False)])
def test_panels_that_the_first_cache_does_not_keep_are_loaded_past_it(columns: int, past: bool) -> None:
    text = code(Product(dtype="bfloat16", bM=64, bN=columns, bK=128, trans_b=True), "x86-64-v4+amx")
    assert ('"tilec_tdpbf16ps_2x2_past"' in text) == past
    assert ('"tilec_tdpbf16ps_2x2"' in text) != past


def test_a_loop_that_may_have_no_trip_leaves_zeros() -> None:
    (branch,) = found(lowered(Product(), "fuse_epilogue"), If)
    assert [type(stmt) for stmt in branch.then] == [Fill, Copy]


@pytest.mark.parametrize(("rows", "name"), [(4, "B"), (64, "B"), (65, "Bs_panels")])
def test_few_rows_read_b_in_place(rows: int, name: str) -> None:
    (gemm,) = found(lowered(Product(bM=rows, N=128, K=64)), MicroGemm)
    assert gemm.b.region.buffer.name == name


def test_products_of_few_rows_with_the_weights_of_an_expert_read_them_in_place() -> None:
    entry = load_entry("grouped.py:linear_grouped", EXAMPLES)
    dims = {"tokens": Guard(), "N": Guard(div=8), "K": Guard(div=8), "G": Guard()}
    kernel = elaborate(entry, name="k", dims=dims, args={}, config={"bM": 4, "bN": 32, "bK": 64})
    (gemm,) = found(lower(kernel, parse_target("x86-64-v3"), until="pack_operands"), MicroGemm)
    assert (gemm.b.region.buffer.name, gemm.block.form) == ("W", "across")


@pytest.mark.parametrize(
    ("product", "asks"),
    [
        (Product(bM=16, bN=256), True),
        (Product(bM=1, bN=256), False),
        (Product(bM=128, bN=256), True),
        (Product(bM=64, bN=160), True),
        (Product(bM=64, bN=128), False),
        (Product(bM=128, bN=64), False),
        (Product(bM=256, bN=256), False),
        (Product(bM=16, N=64), False),
    ],
    ids=["in_place", "one_row", "many_rows", "more_panels", "few_panels", "packed", "bands", "panel"],
)
def test_blocks_ask_for_the_columns_of_the_next_one(product: Product, asks: bool) -> None:
    assert ("B" in _asked_of(code(product))) == asks


def test_several_blocks_of_rows_share_in_asking() -> None:
    """Each asks for half of the next columns' lines in the second cache, and for its own in the first."""
    assert _caches_of(code(Product(bM=16, bN=64)))[:12] == ["2"] * 4 + ["3"] * 8
    assert set(_caches_of(code(Product(bM=8)))) == {"3"}


@pytest.mark.parametrize(("depth", "asks"), [(1024, False), (1040, True)])
def test_one_row_asks_for_large_tensors_alone(depth: int, asks: bool) -> None:
    """Of more than 4 MiB, long before they are read, in the second cache."""
    caches = _caches_of(code(Product(bM=1, bN=1024, N=1024, K=depth)))
    assert set(caches) == ({"2"} if asks else set())


@pytest.mark.parametrize(("depth", "cache"), [(1024, "3"), (1040, "2")])
def test_columns_of_large_tensors_are_asked_for_in_the_second_cache(depth: int, cache: str) -> None:
    assert set(_caches_of(code(Product(bM=4, bN=64, N=1024, K=depth, trans_b=True)))) == {cache}


@pytest.mark.parametrize(("bN", "bK", "later"), [(1024, 16, 16), (2048, 8, 8), (1024, 4, 16)])
def test_one_row_asks_for_rows_that_it_reads_64_kb_later(bN: int, bK: int, later: int) -> None:
    text = code(Product(bM=1, bN=bN, bK=bK, N=1 << 12, K=1 << 14))
    (line, *_) = (line for line in text.splitlines() if "llvm.prefetch" in line)
    assert f"T.int64({later * (1 << 12) + 15})" in line, line


@pytest.mark.parametrize(
    ("product", "band"),
    [
        (Product(bM=256, bN=256, bK=64), (8, 64 + 16)),
        (Product(bM=256, bN=256, bK=64, dtype="float16"), (8, 64 + 16)),
        (Product(bM=256, bN=256, bK=64, dtype="int8", acc="int32", out="int32"), (8, 64 + 32)),
        (Product(bM=256, bN=128, bK=64), None),
        (Product(bM=128, bN=256, bK=64), None),
        (Product(bM=256, bN=256, bK=1024), None),
        (Product(bM=256, bN=256, bK=64, trans_a=True), None),
    ],
    ids=["many", "float16", "int8", "few_columns", "few_rows", "deep", "trans_a"],
)
def test_many_rows_meet_many_columns_by_bands(product: Product, band: tuple[int, int] | None) -> None:
    (gemm,) = found(lowered(product), MicroGemm)
    assert (None if gemm.band is None else tuple(map(int, gemm.band.shape))) == band
    assert band is None or gemm.a.region.buffer.name == "A"


@pytest.mark.parametrize(
    ("epilogue", "tensors"),
    [(STORE, "C"), (BIAS_RESIDUAL, "CR"), (ROW_SUM, "")],
    ids=["result", "residual", "sums"],
)
def test_blocks_ask_for_the_lines_of_the_next_ones_results(epilogue: str, tensors: str) -> None:
    asked = _asked_of(code(Product(N=128, K=64, panel=32, bN=128, epilogue=epilogue)))
    assert set(asked) == set(tensors)
    assert len(asked) == 3 * len(tensors)  # in a loop over rows, of lines that may begin anywhere


def test_one_row_asks_for_no_results() -> None:
    assert not _asked_of(code(Product(bM=1, bN=64)))


def _caches_of(text: str) -> list[str]:
    """Where each prefetch of B in TIR brings its line."""
    return re.findall(r'llvm\.prefetch", T\.address_of\(B.*?, 0, (\d), 1\)', text)


def _asked_of(text: str) -> list[str]:
    """The tensor of each prefetch in TIR."""
    return re.findall(r'llvm\.prefetch", T\.address_of\(([A-Z])', text)


def test_what_follows_last_rows_is_there_once() -> None:
    """Whole rows and last ones of 32 and of 16 columns, whole rows alone of 24 and of 8, and all where
    K is 0: seven places store last columns, and no block of last rows has one of its own."""
    text = code(Product())
    assert text.count('"tilec_store_first_float32x16", T.address_of(C') == 7


@pytest.mark.parametrize(
    ("target", "function"),
    [("x86-64-v4", "tilec_first_float32x16"), ("x86-64-v3", "tilec_first_float32x8"), ("x86-64-v2", None)],
)
def test_the_last_columns_are_read_by_a_mask(target: str, function: str | None) -> None:
    text = code(Product(bM=4, bN=128), target)
    masked = re.compile(r'"tilec_first\w+", T\.address_of\(B')
    assert function in text if function is not None else not masked.search(text)
    assert not masked.search(code(Product(bM=4, N=128, bN=128), target))


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64-v3", "x86-64-v2"])
def test_last_columns_are_packed_and_written_by_a_mask(target: str) -> None:
    text = code(Product(bM=128, bN=64), target)
    masked = target != "x86-64-v2"
    assert [f"tilec_{what}first" in text for what in ("", "store_")] == [masked, masked]


def test_whole_columns_are_written_without_a_mask() -> None:
    assert "store_first" not in code(Product(bM=128, N=128, bN=64))


@pytest.mark.parametrize(("rows", "form"), [(16, "across"), (64, "fma")])
def test_few_rows_multiply_along_k(rows: int, form: str) -> None:
    (gemm,) = found(lowered(Product(bM=rows, N=128, trans_b=True)), MicroGemm)
    assert gemm.block.form == form
    assert (gemm.b.region.buffer.name == "B") == (form == "across")


@pytest.mark.parametrize(
    ("target", "dtype", "along", "steps"),
    [
        ("x86-64-v4+avx512bf16", "bfloat16", "vdpbf16ps", 32),
        ("x86-64-v4", "bfloat16", "", 16),
        ("x86-64-v4+vnni", "int8", "vpdpbusd", 64),
        ("x86-64-v3", "uint8", "pmaddwd", 16),
        ("aarch64+dotprod", "int8", "sdot", 16),
        ("aarch64+bf16", "bfloat16", "bfdot", 8),
    ],
)
def test_vectors_along_k_take_words_of_the_target(target: str, dtype: str, along: str, steps: int) -> None:
    """Of any number of columns, in place."""
    acc = "int32" if dtype.endswith("int8") else "float32"
    product = Product(dtype=dtype, acc=acc, out=acc, bM=4, trans_b=True)
    (gemm,) = found(lowered(product, target=target), MicroGemm)
    assert (gemm.block.form, gemm.block.along, gemm.block.unroll) == ("across", along, steps)
    assert gemm.b.region.buffer.name == "B"


@pytest.mark.parametrize(
    ("target", "dtype", "rows", "block"),
    [
        ("x86-64-v4+vnni", "int8", 8, (4, 4)),
        ("x86-64-v4+vnni", "int8", 16, (8, 2)),
        ("x86-64-v3+avxvnni", "int8", 8, (4, 2)),
        ("x86-64-v4+avx512bf16", "bfloat16", 16, (4, 4)),
    ],
)
def test_blocks_of_many_rows_add_an_offset_less_often(
    target: str, dtype: str, rows: int, block: tuple[int, int]
) -> None:
    acc = "int32" if dtype == "int8" else "float32"
    product = Product(dtype=dtype, acc=acc, out=acc, bM=rows, bN=128, trans_b=True)
    (gemm,) = found(lowered(product, target=target), MicroGemm)
    assert (gemm.block.form, (gemm.block.rows, gemm.block.cols)) == ("across", block)


@pytest.mark.parametrize(
    ("sizes", "read", "asked"),
    [
        ({"bM": 16, "bK": 1024}, "As", True),
        ({"bM": 16, "bK": 512}, "A", True),
        ({"bM": 4, "bK": 1024}, "A", True),
        ({"bM": 1, "bK": 1024}, "A", False),
    ],
)
def test_rows_that_several_blocks_read_are_copied(sizes: dict[str, int], read: str, asked: bool) -> None:
    """Where steps of K are deep; the next columns are asked for while several rows take these."""
    product = Product(dtype="int8", acc="int32", out="int32", N=128, bN=64, trans_b=True, **sizes)
    (gemm,) = found(lowered(product, target="x86-64-v4+vnni"), MicroGemm)
    assert (gemm.block.form, gemm.a.region.buffer.name) == ("across", read)
    assert ("prefetch" in code(product, "x86-64-v4+vnni")) == asked


@pytest.mark.parametrize(("dtype", "acc"), [("float32", "float32"), ("int8", "int32")])
def test_all_steps_of_one_row_are_one(dtype: str, acc: str) -> None:
    """A tile of one row is read where it lies, as one of several is."""
    kernel = lowered(Product(dtype=dtype, acc=acc, out=acc, bM=1, trans_b=True), "merge_k_steps")
    (gemm,) = found(kernel, MicroGemm)
    assert (gemm.a.region.buffer.name, gemm.b.region.buffer.name) == ("A", "B")
    assert not found(kernel, Pipelined)


SCORES = Product(N=40, K=64, bK=64, trans_b=True, clears=True, epilogue=ROW_SUM)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 4), ("bfloat16", 2)])
def test_rows_that_turn_out_few_multiply_along_k(dtype: str, most: int) -> None:
    """Up to as many as vectors of K have steps; columns that ``b`` lacks are cleared."""
    kernel = lowered(replace(SCORES, dtype=dtype), "forward_operands", "x86-64-v4+avx512bf16")
    (branch,) = found(kernel, If)
    fill, few = branch.then
    assert f"<= {most}" in str(branch.cond)
    assert (few.block.form, few.b.region.buffer.name, few.a.region.buffer.name) == ("across", "B", "A")
    assert isinstance(fill, Fill)
    assert fill.dst.buffer.same_as(few.c.buffer)
    assert [type(stmt) for stmt in branch.orelse][:1] == [Copy]


@pytest.mark.parametrize(
    "other", [{"epilogue": STORE}, {"clears": False}, {"trans_b": False}, {"M": 32}, {"bM": 4}]
)
def test_products_that_gain_nothing_by_it_have_no_branch(other: dict[str, object]) -> None:
    """Sums that are finished in registers, steps of K that may be merged, rows never or always few."""
    assert not found(lowered(replace(SCORES, **other), "branch_few_rows"), If)


def test_transposed_tiles_go_through_registers() -> None:
    assert len(found(lowered(Product(bM=64, trans_b=True, N=128, K=64)), TransposePanels)) == 1


@pytest.mark.parametrize("epilogue", [ROW_SUM, ROW_MAX], ids=["reduce", "parallel"])
def test_work_across_a_row_stays_outside(epilogue: str) -> None:
    kernel = lowered(Product(N=64, K=32, panel=32, epilogue=epilogue), "fuse_epilogue")
    (gemm,) = found(kernel, MicroGemm)
    assert not gemm.registers
    assert all(alloc.place is None for alloc in found(kernel, Alloc))


def test_a_clear_that_depends_on_the_step_is_kept() -> None:
    kernel = lowered(Product(N=64, K=64, panel=32, clears=True))
    assert len(found(kernel, Pipelined)) == 1


MADE = """
kernel("made")
n = dim(int32)
A = tensor(bfloat16, ({rows}, 64), ("{rows}", "64"), access="in")
B = tensor(bfloat16, (n, 64), ("n", "64"), access="in")
at = tensor(int32, (64,), ("64",), access="in")
C = tensor(float32, ({rows}, 64), ("{rows}", "64"), access="out")
with launch(1, threads=(32, 1, 1)) as (bx,):
    a = alloc(bfloat16, ({rows}, 64), "shared.dyn")
    b = alloc(bfloat16, (64, 64), "shared.dyn")
    s = alloc(float32, ({rows}, 64), "local.fragment")
    o = alloc(float32, ({rows}, 64), "local.fragment")
    copy(A[0:+{rows}, 0:+64], a[0:+{rows}, 0:+64])
    for i, j in parallel(64, 64):
        b[i, j] = if_then_else(at[i] >= 0, B[at[i], j], bfloat16(0.0))
    gemm(a[0:+{rows}, 0:+64], b[0:+64, 0:+64], s[0:+{rows}, 0:+64], trans_b=True, clear=True)
    gemm(s[0:+{rows}, 0:+64], b[0:+64, 0:+64], o[0:+{rows}, 0:+64], clear=True)
    copy(o[0:+{rows}, 0:+64], C[0:+{rows}, 0:+64])
"""


@pytest.mark.parametrize(
    ("rows", "forms"),
    [(4, ["across b", "fma b"]), (8, ["fma b_panels", "fma b"]), (9, ["fma b_panels", "fma b_panels"])],
)
def test_few_rows_read_tiles_that_are_made_as_they_are(rows: int, forms: list[str]) -> None:
    """Along K while that pays, and converted where each element is read once."""
    kernel = lower(parse_kernel(MADE.format(rows=rows)), parse_target("x86-64-v4"), until="pack_operands")
    products = found(kernel, MicroGemm)
    assert [f"{gemm.block.form} {gemm.b.region.buffer.name}" for gemm in products] == forms


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("rows", [1, 4, 7])
def test_tiles_that_are_made_multiply_right(level: str, rows: int) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    rng = np.random.default_rng(rows)
    a, b = (rng.normal(0, 1, (count, 64)).astype(numpy_type("bfloat16")) for count in (rows, 32))
    at, c = rng.integers(-8, 32, 64).astype(np.int32), np.full((rows, 64), np.nan, np.float32)
    Library({"made": MADE.format(rows=rows)}, level).run("made", [a, b, at, c], {"n": 32})
    wide = np.where(at[:, None] >= 0, b.astype(np.float32)[at], 0)
    np.testing.assert_allclose(c, a.astype(np.float32) @ wide.T @ wide, rtol=1e-3, atol=1e-3)
