"""Every form of a kernel on its way through the passes prints as text that parses back to an equal kernel."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tvm.ir import Expr

from tilec.backends.pipeline import passes
from tilec.build.elaborated.frontend import elaborate_variant, naming
from tilec.ir import nodes as ir
from tilec.ir.stmt import parts
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import Printer, format_kernel
from tilec.manifest import load_manifest

ROOT = Path(__file__).parents[3]
LLM, VISION, OWN = "manifests/llm.toml", "manifests/vision.toml", "tests/kernels/kernels.toml"
CASES = [
    (LLM, "matmul_float16", "sm_90a"),
    (LLM, "matmul_float16", "sm_80"),
    (LLM, "matmul_float16", "x86-64-v3"),
    (LLM, "attention_varlen_causal_bfloat16", "sm_90a"),
    (LLM, "packed_linear_bfloat16", "sm_90a"),
    (LLM, "linear_fp8_blocks", "sm_90a"),
    (LLM, "decode_paged_float16", "sm_80"),
    (LLM, "cumsum", "sm_90a"),
    (LLM, "topk_gating", "x86-64-v4"),
    (LLM, "linear_grouped", "sm_90a"),
    (VISION, "conv3x3_silu_float16", "sm_90a"),
    (OWN, "warp_specialised", "sm_80"),
    (OWN, "gemv_int4", "sm_80"),
    (OWN, "mha_bwd", "x86-64-v3"),
    (OWN, "w4a8_matmul", "x86-64-v3"),
]


@cache
def _variants(manifest: str) -> tuple[Any, ...]:
    return load_manifest(ROOT / manifest).variants


def _variant(manifest: str, kernel: str, target: str) -> Any:
    return next(v for v in _variants(manifest) if (v.kernel, v.target.name) == (kernel, target))


def _forms(variant: Any) -> Any:
    kernel = elaborate_variant(variant).kernel
    yield "tile", kernel
    with naming(variant):
        for step in passes(variant.target):
            before, kernel = kernel, step.apply(kernel, variant.target)
            if not _is_one(before.body, kernel.body):
                yield step.name, kernel


def _is_one(before: Any, after: Any) -> bool:
    """Whether a pass has left all statements of a launch alone, and what it says of launches."""
    if isinstance(before, tuple) and isinstance(after, tuple):
        return len(before) == len(after) and all(map(_is_one, before, after))
    if isinstance(before, ir.Launch) and isinstance(after, ir.Launch):
        return all(_is_one(getattr(before, each.name), getattr(after, each.name)) for each in fields(before))
    return before is after


def _printed(kernel: ir.Kernel) -> Printer:
    printer = Printer()
    printer.header(kernel)
    printer.block(kernel.body)
    return printer


def _same(left: Any, right: Any, names: tuple[Printer, Printer]) -> bool:
    """Whether two statements, or two fields of them, agree in all that is no aside."""
    if isinstance(left, Expr):
        return names[0].expr(left) == names[1].expr(right)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(_same(a, b, names) for a, b in zip(left, right, strict=True))
    if not is_dataclass(left):
        return bool(left == right)
    known = [part.name for part in parts(type(left)) if part.word not in ("aside", "hints")]
    return type(left) is type(right) and all(
        _same(getattr(left, name), getattr(right, name), names) for name in known
    )


@pytest.mark.parametrize(("manifest", "kernel", "target"), CASES)
def test_every_form_parses_back(manifest, kernel, target):
    for name, form in _forms(_variant(manifest, kernel, target)):
        text = format_kernel(form)
        again = parse_kernel(text)
        assert format_kernel(again) == text, name
        assert _same(form.body, again.body, (_printed(form), _printed(again))), name


HEAD = """kernel("k")
x = tensor(float16, (64, 64), ("64", "64"), access="in")
with launch(2, threads=(256, 1, 1)) as ((bx,), (tx, ty, tz)):
    s = alloc(float16, (2, 64, 64), "shared.dyn")
    f = alloc(float32, (64, 64), "local.fragment")
    r = alloc(float32, (2,), "local")
    full = alloc_barriers((128, 1), cluster=True)
    count = alloc(uint32, (1,), "shared.dyn")
"""
TILE = 'tile=warp_tile("m16n8k16", warps=(2, 2), tiles=(1, 4), steps=4)'
PRODUCT = f"(s[0:+1, 0:+64, 0:+64], s[1:+1, 0:+64, 0:+64], f[0:+64, 0:+64], trans_b=True, clear=False, {TILE}"
LINES = [
    "init_barriers(full, counts=(128, 1))",
    "arrive_once(full[0], block=1 - bx)",
    "complete_bytes(full[1], 64, alone=True)",
    'remote_store(s[0, 0, tx], x[0, tx], block=1, kind="store")',
    "grid_meet(count)",
    "warp_sync(mask=65535)",
    "sync_threads()",
    "cluster_copy(x[0:+64, 0:+64], s[0:+1, 0:+64, 0:+64], block=1, barrier=full[0])",
    f'first_operands{PRODUCT}, more=bx < 1, registers="ahead")',
    f"rotated_mma{PRODUCT}, next_a=s[0:+1, 0:+64, 0:+64], next_b=s[1:+1, 0:+64, 0:+64], more=bx < 1,"
    ' pending=1, registers="ahead")',
    "gather_load(x[bx * 8, 0], s[0:+1, 0:+64, 0:+64])",
    "v = lane_shfl_xor(r[0], 16, width=16)",
    "v = lane_ballot(tx < 3)",
    'old = atomic_add(count[0], uint32(1), order="acq_rel")',
    "r[0] = thread_reduce(lambda a, b: a + b, 0.0, r[1], True, axes=(0,))",
    "r[0] = join_threads(lambda a, b: max(a, b), 0.0, r[1], True, axes=(0,), masks=(1, 2),"
    " digits=digits(parts=((4, 2),)), scratch=s)",
    'lane_mma(r[0], x[0, 0], x[1, 0], tx, shape="m16n8k16")',
    'lane_mma_sp(r[0], x[0, 0], x[1, 0], tx, count[0], shape="m16n8k32", selector=1)',
    "lane_load(r[0], s[0, tx, 0], tx, count=4, trans=False)",
    "with rest(tx < 3):\n        with then:\n            thread_return()",
    "print('{}', tx)",
    'check(tx < 3, "it\'s three")',
    "for i, j, k in promotion(0, run=8):\n        factor = r[0]",
    "grid_barrier()",
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.partition("(")[0])
def test_a_statement_is_what_its_line_says(line):
    text = f"{HEAD}    {line}\n"
    assert format_kernel(parse_kernel(text)) == text
