"""Text to kernels and back."""

from __future__ import annotations

import importlib
import math
import pkgutil

import pytest
from ir_samples import F32, SAMPLES, buffer, scale_kernel, var
from tvm import tirx

import tilec.ir
from tilec.errors import IRError
from tilec.ir import nodes as ir
from tilec.ir.layout import Digit, Layout
from tilec.ir.text.forms import statements
from tilec.ir.text.parser import parse_kernel, parse_layout
from tilec.ir.text.printer import format_kernel, format_layout

EXPRESSIONS = """\
v0 = (n + 1) * 2 - (n - (n - 3))
v1 = truncdiv(n, 3) + truncmod(n, -4) + n // 2 % 5
v2 = not (n < 3 and n >= 1) or n == 4 and (n != 5 and True)
v3 = ~n << 2 | n & 7 ^ n >> 1
v4 = min(n, 3) * max(n, int32_name)
v5 = exp(a) + 0.1 * -2.5e-30 - float32("-inf")
v6 = cast(float16, a) * float16(0.5) + float16("nan")
v7 = cast(bool, n)
v8 = if_then_else(likely(n < 3), x[n, 0], 1.0) / select(isnan(a), 0.0, -0.0)
v9 = reinterpret(int32, a) + cast(int32, popcount(n))
v10 = int64(9223372036854775807) - cast(int64, n) * int64(-3)
v11 = call(float32, "tirx.call_pure_extern", "f", n)
v12 = let(t, n * 2, t + t)
v13 = broadcast(a, 4) + cast(float32x4, ramp(n, 1, 4))
v14 = bfloat16(1.5) * cast(bfloat16, float8_e4m3fn(-2.0))
"""


def _kernel(lines: str) -> str:
    head = 'kernel("k")\nn = dim(int32)\nint32_name = dim(int32)\na = scalar(float32)\n'
    return head + 'x = tensor(float32, (n, 4), ("n", "4"), access="in")\n' + lines


@pytest.mark.parametrize("name", SAMPLES)
def test_round_trip(name):
    text = format_kernel(SAMPLES[name]())
    assert format_kernel(parse_kernel(text)) == text


@pytest.mark.parametrize("line", EXPRESSIONS.splitlines())
def test_expressions_round_trip(line):
    text = _kernel(line + "\n")
    assert format_kernel(parse_kernel(text)) == text


STATEMENTS = """\
w = alloc(uint8, (n, 4), "global.workspace")
with launch(n // 2, 3, threads=(64, 2, 1), hints={"use_swizzle": (10, "row")}) as (bx, by):
    t = alloc(float32, (64, 32), "shared.dyn", layout="32:1 2:8192, 32:32@lane", place=("scratch", 128))
    u = alloc(float32, (64,), "local", strides=(2,), place="stack")
    for i, j in parallel(n - 1, 4, dtypes=(int64, int32), hints={"coalesced_width": 4}):
        pass
    for k in pipelined(1, n, num_stages=3, stage=(0, 1), order=(1, 0)):
        copy(x[k:+(n - 1), 0:+(n * 2)], t[0:+64, 0:+32])
        break
    for k_1 in unroll(0, 4, 2):
        if k_1 == 2:
            continue
        else:
            if k_1 == 3:
                pass
    reduce_absmax(t[0:+64, 0:+32], u[0:+64], axis=1, clear=False, nan_propagate=True)
    gemm(t[0:+8, 0:+8], t[0:+8, 0:+8], t[8:+8, 8:+8], trans_a=True, clear=bx == 0, policy=1)
    x[bx, 3] = 0.0
"""


def test_statements_round_trip():
    text = _kernel(STATEMENTS)
    assert format_kernel(parse_kernel(text)) == text


def test_floats_survive_bit_for_bit():
    values = [0.1, 1e-45, 3.4028234663852886e38, math.pi, -0.0, 1 / 3]
    lines = "".join(f"v{i} = {value!r}\n" for i, value in enumerate(values))
    body = parse_kernel(_kernel(lines)).body
    assert [math.copysign(stmt.value.value, stmt.value.value) for stmt in body] == values
    assert math.copysign(1, body[4].value.value) == -1


def test_parameters_keep_names_strides_and_defaults():
    lda, n = var("lda", "int64"), var("n")
    a = buffer("A", (n, 4), "float16", strides=(lda, 1))
    kernel = ir.Kernel(
        "k",
        (
            ir.TensorParam("lambda", a, ("n", "4"), ("lda", "1"), "inout", True),
            ir.ScalarParam("copy", var("copy", F32), math.inf),
            ir.ScalarParam("n", n),
        ),
        (ir.Dim("n", n, scale_kernel().dims[0].guard), ir.Dim("lda", lda, scale_kernel().dims[0].guard)),
        (),
    )
    again = parse_kernel(format_kernel(kernel))
    assert format_kernel(again) == format_kernel(kernel)
    assert [param.name for param in again.params] == ["lambda", "copy", "n"]
    assert again.params[0].strides == ("lda", "1")
    assert again.params[1].default == math.inf
    assert again.params[2].var.same_as(again.dims[0].var)


def test_parsed_kernels_share_variables():
    kernel = parse_kernel(format_kernel(scale_kernel()))
    assert kernel.params[0].buffer.shape[0].same_as(kernel.dims[0].var)
    assert kernel.launches[0].body[1].src.buffer.same_as(kernel.params[0].buffer)


def test_layout_text():
    layout = Layout(((Digit(32, 1), Digit(2, 8192)), (Digit(64, 32, "lane"),)))
    assert format_layout(layout) == "32:1 2:8192, 64:32@lane"
    assert parse_layout(format_layout(layout)) == layout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("v = unknown + 1", "unknown is not defined"),
        ("v = nosuch(n)", "no function of the IR: nosuch"),
        ("v = n + 1.0", "cannot build"),
        ("v = n ** 2", "no operator"),
        ("v = 1 < n < 3", "not one comparison"),
        ("copy(x[0:4, 0:4], x[0:+4, 0:+4])", "expected start:+extent"),
        ("copy(x[0:+4, 0:+4])", "copy needs dst"),
        ("import os", "no statement of the IR"),
        ("x[0, 0] = cast(flat32, n)", "expected a dtype"),
        ("for i in range(4):\n    pass", "no statement of the IR"),
        ("gemm(x[0:+4, 0:+4], x[0:+4, 0:+4], x[0:+4, 0:+4])", "clear"),
        ("fill(x[0:+4, 0:+4], x", "no tile IR text"),
    ],
)
def test_bad_text_names_the_line(line, words):
    with pytest.raises(IRError, match="(?s)" + words.replace("+", r"\+")) as caught:
        parse_kernel(_kernel(line))
    assert caught.value.place.line >= 6


def test_text_must_start_with_the_kernel():
    with pytest.raises(IRError, match="first line"):
        parse_kernel("n = dim(int32)")
    with pytest.raises(IRError, match="empty"):
        parse_kernel("")


def test_all_statements_that_a_kernel_is_made_of_are_known_with_the_nodes():
    """What a process reads must not follow from which analyses it has imported."""
    for module in pkgutil.walk_packages(tilec.ir.__path__, "tilec.ir."):
        importlib.import_module(module.name)
    kinds = (kind for kind, _ in statements().values() if kind.__module__.startswith("tilec.ir."))
    assert {kind.__module__ for kind in kinds if not kind.__module__.startswith("tilec.ir.nodes.")} == set()


def test_tvm_types_are_rebuilt():
    kernel = parse_kernel(_kernel("v = exp(a)\n"))
    assert isinstance(kernel.body[0].value.op, type(tirx.exp(var("x", F32)).op))
    assert str(kernel.body[0].value.ty.dtype) == F32
