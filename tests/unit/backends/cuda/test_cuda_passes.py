"""CUDA passes: forms as golden text, barriers, what is refused, what code comes out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from breadth import parametrized
from cuda_kernels import EIGHTS, SM80, attention, gemm, kinds, shipped, tile_kernel
from statements import KERNELS
from told import losses, told

from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.nodes import AsyncCopy, BlockReduce, Sync, ThreadLoop, WarpGemm
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import CompileError, UnsupportedError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Atomic, Block, Gemm, Kernel, Stmt, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.lowering.passes.base import rewrite_launch_blocks
from tilec.targets import parse_target

# ---- forms ----


def test_gemm_form(golden) -> None:
    golden(format_kernel(lower(gemm(), SM80)))


def test_softmax_form(golden) -> None:
    dims = {"M": Guard(), "N": EIGHTS, "ldx": EIGHTS}
    golden(format_kernel(lower(shipped("softmax.py:softmax", dims, {}), SM80)))


def test_attention_form(golden) -> None:
    golden(format_kernel(lower(attention(), SM80)))


def test_a_loop_of_loads_has_one_barrier_a_trip() -> None:
    order = kinds(lower(gemm(), SM80), AsyncCopy, Sync, WarpGemm)
    trip = ["Sync", "AsyncCopy", "AsyncCopy", "WarpGemm"]
    epilogue = ["Sync", "Sync"]  # the staged result lies where the tiles were
    assert order == ["AsyncCopy"] * 4 + trip + epilogue


def test_attention_keeps_its_weights_in_registers() -> None:
    lowered = lower(attention(), SM80)
    second = [stmt for stmt in walk(lowered.body) if isinstance(stmt, WarpGemm)][1]
    assert second.a.buffer.scope() == "local.fragment"
    assert all(stmt.scratch is None for stmt in walk(lowered.body) if isinstance(stmt, BlockReduce))


@pytest.mark.parametrize(("policy", "warps"), [(0, (2, 2)), (1, (4, 1)), (2, (1, 4))])
def test_warps_share_a_tile_as_the_policy_says(policy, warps) -> None:
    kernel = replace_gemm(gemm(threads=128), policy)
    (product,) = (stmt for stmt in walk(lower(kernel, SM80).body) if isinstance(stmt, WarpGemm))
    assert product.tile.warps == warps


def replace_gemm(kernel: Kernel, policy: int) -> Kernel:
    """The kernel with another policy of its products."""

    def rewrite(block: Block) -> list[Stmt]:
        return [replace(stmt, policy=policy) if isinstance(stmt, Gemm) else stmt for stmt in block]

    return rewrite_launch_blocks(kernel, rewrite)


# ---- barriers ----

SHARED = 's = alloc(float32, (64,), "shared.dyn")'


TURNED = ("for i in parallel(64):", "    y[i] = s[63 - i]")


@pytest.mark.parametrize(
    ("lines", "barriers"),
    [
        (("copy(x[0:+64], s[0:+64])", *TURNED), 1),
        (("copy(x[0:+64], s[0:+64])", *TURNED, "fill(s[0:+64], 1.0)"), 2),
        (("copy(x[0:+64], y[0:+64])", "fill(s[0:+64], 1.0)"), 0),
        (("for k in serial(0, 3, 1):", "    fill(s[0:+64], 1.0)", *(f"    {line}" for line in TURNED)), 2),
        (("fill(s[0:+64], 1.0)", "if x[0] > 0.0:", *(f"    {line}" for line in TURNED)), 1),
    ],
)
def test_barriers_stand_where_threads_meet(lines, barriers) -> None:
    assert len(kinds(lower(tile_kernel(SHARED, *lines), SM80), Sync)) == barriers


@pytest.mark.parametrize(
    ("lines", "barriers"),
    [
        (("copy(x[0:+64], s[0:+64])", "copy(s[0:+64], y[0:+64])", "fill(s[0:+64], 1.0)"), 0),
        (("for k in serial(0, 3, 1):", "    fill(s[0:+64], 1.0)", "    copy(s[0:+64], y[0:+64])"), 0),
        (("copy(x[0:+64], s[0:+64])", "copy(s[0:+32], y[0:+32])"), 1),
        (("copy(x[0:+64], s[0:+64])", "copy(s[1:+63], y[0:+63])"), 1),
        (("for k in serial(0, 3, 1):", "    copy(x[k * 64:+64], y[k * 64:+64])"), 0),
        (("for k in serial(0, 3, 1):", "    copy(x[k * 32:+64], y[k * 32:+64])"), 1),
    ],
)
def test_threads_that_keep_their_elements_need_no_barrier(lines, barriers) -> None:
    assert len(kinds(lower(tile_kernel(SHARED, *lines), SM80), Sync)) == barriers


# ---- elements of other threads ----


def test_a_reversed_read_of_a_fragment_goes_through_shared_memory() -> None:
    kernel = tile_kernel(
        'f = alloc(float32, (64,), "local.fragment")',
        "copy(x[0:+64], f[0:+64])",
        "for i in parallel(64):",
        "    y[i] = f[63 - i]",
    )
    lowered = lower(kernel, SM80)
    assert kinds(lowered, ThreadLoop, Sync) == ["ThreadLoop", "ThreadLoop", "Sync", "ThreadLoop"]


def test_a_sum_in_a_loop_is_a_reduction() -> None:
    kernel = tile_kernel(
        'acc = alloc(float32, (1,), "local.fragment")',
        "fill(acc[0:+1], 0.0)",
        "for i in parallel(64):",
        "    acc[0] = acc[0] + x[i]",
        "copy(acc[0:+1], y[0:+1])",
    )
    assert kinds(lower(kernel, SM80), BlockReduce) == ["BlockReduce"]


def test_sums_into_any_element_are_atomic_updates_of_shared_memory() -> None:
    kernel = tile_kernel(
        'acc = alloc(float32, (4,), "local.fragment")',
        "fill(acc[0:+4], 0.0)",
        "for i in parallel(64):",
        "    acc[i % 3] = acc[i % 3] + x[i]",
        "copy(acc[0:+4], y[0:+4])",
    )
    lowered = lower(kernel, SM80)
    updates = [stmt for stmt in walk(lowered.body) if isinstance(stmt, Atomic)]
    assert [(stmt.kind, str(stmt.buffer.scope())) for stmt in updates] == [("add", "shared.dyn")]
    assert kinds(lowered, BlockReduce) == []


def test_a_tile_of_one_row_is_copied_by_the_threads_that_hold_it() -> None:
    kernel = tile_kernel(
        'a = alloc(float32, (1, 64), "shared.dyn")',
        'b = alloc(float32, (64, 64), "shared.dyn")',
        'c = alloc(float32, (1, 64), "local.fragment")',
        "fill(a[0:+1, 0:+64], 1.0)",
        "fill(b[0:+64, 0:+64], 1.0)",
        "gemm(a[0:+1, 0:+64], b[0:+64, 0:+64], c[0:+1, 0:+64], clear=True)",
        "copy(c[0:+1, 0:+64], y[0:+64])",
    )
    loops = [stmt for stmt in walk(lower(kernel, SM80).body) if isinstance(stmt, ThreadLoop)]
    staged = next(loop for loop in loops if len(loop.vars) == 2 and loop.layout.shape[0] == 16)
    assert staged.extents == (1, 64)


def test_loop_bounds_that_statements_change_are_read_once() -> None:
    kernel = tile_kernel(
        'v = alloc(int32, (1,), "local.var", init=3)',
        "for k in serial(0, v[0], 1):",
        "    v[0] = v[0] - 1",
        "for i in parallel(64):",
        "    y[i] = cast(float32, v[0])",
    )
    text = cuda.source(to_tir(lower(kernel, SM80), SM80), SM80, "test")
    head = next(line for line in text.splitlines() if "for (int k" in line)
    assert "v[" not in head
    assert "v_ptr" not in head


# ---- refusals ----


def written_by_all(scope: str) -> Kernel:
    return tile_kernel(
        f'acc = alloc(float32, (1,), "{scope}")',
        "for i in parallel(64):",
        "    acc[0] = x[i]",
        "copy(acc[0:+1], y[0:+1])",
    )


def test_elements_written_by_several_iterations_keep_what_the_last_one_wrote() -> None:
    notes = told(to_tir(lower(written_by_all("local.fragment"), SM80), SM80).launches[0])
    assert any("the loop over i is serial" in note for note in notes)


def test_a_threads_own_memory_written_by_several_iterations_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="several iterations"):
        lower(written_by_all("local"), SM80)


def test_tiles_beyond_the_limit_name_number_and_limit() -> None:
    with pytest.raises(CompileError, match=r"196608 bytes, a block of sm_80 has 166912"):
        lower(gemm(bN=256, bK=256, threads=256, num_stages=3), SM80)


def test_blocks_of_partial_warps_are_filled_up() -> None:
    assert lower(gemm(threads=100), SM80).launches[0].threads == (128, 1, 1)


def test_notes_say_what_is_slow() -> None:
    notes = told(to_tir(lower(gemm(columns=Guard()), SM80), SM80).launches[-1])
    assert any("a launch in front copies them" in note for note in notes)
    assert any("C is written element by element" in note for note in notes)
    assert losses(to_tir(lower(gemm(), SM80), SM80).launches[0]) == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ("copy(x[k * 16:+16], s[0:+16])", "copy(s[0:+16], x[k * 16:+16])"),
            "the loop writes x, which it loads",
        ),
        (("copy(x[k * 16:+16], s[0:+16])", "fill(s[0:+16], 0.0)"), "other statements write s, too"),
        (("copy(s[0:+16], y[k * 16:+16])", "copy(x[k * 16:+16], s[0:+16])"), "s is read before it is loaded"),
        (("copy(x[k:+16], s[0:+16])", "copy(s[0:+16], y[k * 16:+16])"), ""),
        (("copy(x[k * 16:+16], s[0:+16])", "if x[k] > 0.0:", "    break"), "the loop may end early"),
    ],
)
def test_notes_say_why_a_load_does_not_run_ahead(lines, said) -> None:
    head = ('s = alloc(float32, (16,), "shared.dyn")', "for k in pipelined(0, 4, num_stages=2):")
    kernel = tile_kernel(*head, *(f"    {line}" for line in lines))
    notes = told(to_tir(lower(kernel, SM80), SM80).launches[0])
    ahead = [note for note in notes if "not ahead" in note]
    assert said in ahead[0] if said else not ahead


# ---- code ----

#: Tiles too large for shared memory; sums and maxima in one fragment.
FOR_CPUS = {"large", "accumulate"}
TEXTS = {re.search(r'kernel\("(\w+)"', text).group(1): text for text in
         (KERNELS.values() if isinstance(KERNELS, dict) else KERNELS)}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(TEXTS) - FOR_CPUS))
def test_every_statement_has_source(name: str) -> None:
    text = TEXTS[name].replace("threads=(1, 1, 1)", "threads=(64, 1, 1)")
    lowered = to_tir(lower(parse_kernel(text), SM80), SM80)
    assert 'extern "C" __global__' in cuda.source(lowered, SM80, "test")


IMAGES = [
    ("sm_80", "float16", {"bN": 256, "bK": 64, "threads": 256}, "m16n8k16.row.col.f32.f16"),
    ("sm_86", "bfloat16", {"threads": 128}, "m16n8k16.row.col.f32.bf16"),
    ("sm_89", "float8_e4m3fn", {"bK": 64}, "m16n8k32.row.col.f32.e4m3"),
    ("sm_80", "float32", {"threads": 128}, "m16n8k8.row.col.f32.tf32"),
]


@pytest.mark.nvrtc
@parametrized(("name", "dtype", "config", "instruction"), IMAGES, fast=IMAGES[1:3])
def test_a_gemm_image_uses_tensor_cores_and_does_not_spill(name, dtype, config, instruction) -> None:
    target = parse_target(name)
    lowered = to_tir(lower(gemm(dtype, **config), target), target)
    text = cuda.assembly(lowered, target, "test")
    assert all(word in text for word in (f"mma.sync.aligned.{instruction}", "ldmatrix", "cp.async.c"))
    image = cuda.compile_kernel(lowered, target, "test")
    assert image.launches[0].gpu is not None
    assert image.launches[0].gpu.spills == 0
    assert 0 < image.launches[0].gpu.registers <= 255


@pytest.mark.nvrtc
def test_attention_reduces_its_rows_by_shuffles() -> None:
    lowered = to_tir(lower(attention(), SM80), SM80)
    text = cuda.assembly(lowered, SM80, "test")
    assert all(word in text for word in ("mma.sync.aligned.m16n8k16", "ldmatrix", "shfl.sync.bfly"))
