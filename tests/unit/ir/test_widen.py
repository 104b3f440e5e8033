"""Index arithmetic in as many bits as it needs: what changes, what does not, and that it is exact."""

from __future__ import annotations

import operator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tvm import tirx
from tvm.ir import Var

from tilec.ir.analysis.numbers.widen import widened
from tilec.ir.exprs import dtype_of
from tilec.ir.guards import largest_dim
from tilec.ir.nodes import Assume, Store, walk
from tilec.ir.rules.verifier import verify
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel

HEAD = """
kernel("wide")
M = dim(int32)
N = dim(int32)
K = dim(int32)
A = tensor(float16, (M, K), ("M", "K"), access="in")
B = tensor(float16, (K, N), ("K", "N"), access="in")
C = tensor(float32, (M, N), ("M", "N"), access="inout")
X = tensor(int32, (M,), ("M",), access="in")
Z = tensor(int64, (64,), ("64",), access="inout")
p = scalar(int32)
"""
PRODUCT = """
with launch((N + 63) // 64, (M + 63) // 64, threads=(128, 1, 1)) as (bx, by):
    a = alloc(float16, (64, 32), "shared.dyn")
    b = alloc(float16, (32, 64), "shared.dyn")
    c = alloc(float32, (64, 64), "local.fragment")
    for k in pipelined(0, (K + 31) // 32):
        copy(A[by * 64:+64, k * 32:+32], a[0:+64, 0:+32])
        copy(B[k * 32:+32, bx * 64:+64], b[0:+32, 0:+64])
        gemm(a[0:+64, 0:+32], b[0:+32, 0:+64], c[0:+64, 0:+64], clear=False)
    for i, j in parallel(64, 64):
        {body}
"""
LOOP = """
with launch((M + 63) // 64, threads=(128, 1, 1)) as (by,):
    for i in parallel(64):
        {body}
"""


def kernel(text: str, body: str):
    return parse_kernel(HEAD + text.format(body=body))


def changed(text: str, body: str, **how) -> list[str]:
    """The lines of a kernel that widening makes."""
    before = kernel(text, body)
    after = widened(before, **how)
    verify(after)
    old = format_kernel(before).splitlines()
    return [line.strip() for line in format_kernel(after).splitlines() if line not in old]


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (PRODUCT, "C[by * 64 + i, bx * 64 + j] = c[i, j]"),
        (LOOP, "Z[i] = cast(int64, X[by * 64 + i] * 1103515245 + 12345)"),
        (LOOP, "Z[i] = cast(int64, max(M - (by * 64 + i), 0))"),
        (LOOP, "Z[(by * 64 + i) % 64] = cast(int64, (by * 64 + i) // 64)"),
        (LOOP, "C[X[by * 64 + i], i] = 1.0"),
        (LOOP, "Z[i] = cast(int64, p + by * 64)"),
    ],
)
def test_what_fits_and_what_wraps_by_its_type_stays(text, body) -> None:
    before = kernel(text, body)
    assert widened(before) is before
    assert widened(before, may_refuse=True) is before


def test_what_may_leave_32_bits_is_done_in_64() -> None:
    (line,) = changed(LOOP, "Z[i] = cast(int64, M * N - by)")
    assert line == "Z[i] = cast(int64, M) * cast(int64, N) - cast(int64, by)"
    (line,) = changed(LOOP, "Z[i] = cast(int64, (by * 64 + i) * N % N)")
    assert line.endswith("cast(int32, cast(int64, by * 64 + i) * cast(int64, N) % cast(int64, N)))"), line


def test_trips_are_of_the_type_that_counts_them() -> None:
    (line,) = changed(LOOP, "for k in parallel(min(64, M - by * N)):\n            Z[k] = int64(1)")
    assert line.startswith("for k in parallel(cast(int32, max(min(int64(64), cast(int64, M) - "), line
    assert line.endswith(", int64(0)))):")


def test_a_choice_is_of_the_type_of_its_sides() -> None:
    far, _ = changed(LOOP, "far = if_then_else(i < p, M * N, 0)\n        Z[i] = cast(int64, far)")
    assert far == "far = if_then_else(i < p, cast(int64, M) * cast(int64, N), int64(0))"


def test_products_with_data_are_exact_on_the_way_to_an_index() -> None:
    (line,) = changed(LOOP, "Z[X[i] * 64] = int64(1)")
    assert line == "Z[cast(int64, X[i]) * int64(64)] = int64(1)"
    (line,) = changed(LOOP, "Z[i] = cast(int64, X[i] * N)")
    assert line == "Z[i] = cast(int64, X[i]) * cast(int64, N)"


def test_sums_with_data_widen_where_they_must_not_wrap() -> None:
    assert changed(LOOP, "Z[X[i] - i] = int64(1)") == ["Z[cast(int64, X[i]) - cast(int64, i)] = int64(1)"]
    assert not changed(LOOP, "Z[X[i] - i] = int64(1)", wide_sums=False)


def test_launches_with_products_say_what_dims_have_to_fulfil() -> None:
    body = "C[(by * 64 + i) * N // N, bx * 64 + j] = c[i, j]"
    (line,) = changed(PRODUCT, body, may_refuse=True)
    assert line.startswith("assume(")
    assert line.endswith("* cast(int64, N) <= int64(2147483647))")
    assert not any(line.startswith("assume(") for line in changed(PRODUCT, body))


def test_no_condition_refuses_all_calls() -> None:
    lines = changed(PRODUCT, "Z[i] = cast(int64, -2147483648 - N)", may_refuse=True)
    assert lines == ["Z[i] = int64(-2147483648) - cast(int64, N)"]


WAVES = """
with launch(N, threads=(128, 1, 1)) as (bx,):
    whole = {whole}
    for i in parallel(64):
        {body}
"""


@pytest.mark.parametrize("whole", ["M // 132 * 132", "132 * (M // 132)"])
def test_whole_parts_and_rests_do_not_exceed_their_number(whole) -> None:
    text = WAVES.replace("{whole}", whole)
    assert changed(text, "Z[0] = cast(int64, (M - whole) * 16000000)") == []
    assert changed(text, "Z[whole + i] = Z[0]") == changed(text, "Z[M + i] = Z[0]") == []
    assert changed(text, "Z[0] = cast(int64, (N - whole) * 16000000)") != []


def test_a_loop_that_is_walked_backwards_is_not_negative() -> None:
    text = LOOP.replace(
        "    for i", "    blocks = (min(X[0], M) + 63) // 64\n    for q in serial(0, blocks, 1):\n      for i"
    )
    assert not changed(text, "C[(blocks - 1 - q) * 64 + i, 0] = 1.0", wide_sums=False)


# ---- exactness ----

_WHOLE = {
    tirx.Add: operator.add, tirx.Sub: operator.sub, tirx.Mul: operator.mul, tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod, tirx.Min: min, tirx.Max: max, tirx.LE: operator.le,
}  # fmt: skip


def machine(expr, values) -> int:
    """What a machine makes of an expression, whose types wrap around."""
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    if isinstance(expr, Var):
        return values[str(expr.name)]
    if isinstance(expr, tirx.Cast):
        return cut(machine(expr.value, values), dtype_of(expr))
    found = _WHOLE[type(expr)](machine(expr.a, values), machine(expr.b, values))
    return cut(found, dtype_of(expr))


def cut(value: int, dtype: str) -> int:
    if dtype == "bool":
        return value
    bits = int(dtype.removeprefix("int"))
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def python(text: str, values) -> int:
    return eval(text, {"min": min, "max": max}, values)  # texts are made below


_LEAVES = st.sampled_from(["M", "N", "K", "by * 64 + i", "i", "7", "65536", "1"])
_TEXTS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
        st.builds(
            "({} {} {})".format, inner, st.sampled_from(["//", "%"]), st.sampled_from(["3", "N", "64"])
        ),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
    ),
    max_leaves=6,
)
_DIMS = st.sampled_from([1, 63, 64, 1000, 46341, 65535, 65536, 65537, 10**6, 2**30, largest_dim(32)])


@settings(max_examples=60)
@given(_TEXTS, _DIMS, _DIMS, _DIMS, st.integers(0, 63), st.floats(0, 1), st.booleans())
def test_widened_arithmetic_is_exact(text, m, n, k, i, part, refuse) -> None:
    """With 64 bits, or with 32 where the conditions on dims hold."""
    blocks = -(-m // 64)
    values = {"M": m, "N": n, "K": k, "by": int(part * (blocks - 1)), "i": i, "bx": 0, "j": 0}
    exact = python(text, values)
    made = widened(kernel(PRODUCT if refuse else LOOP, f"Z[i] = cast(int64, {text})"), may_refuse=refuse)
    conditions = [stmt.cond for stmt in made.body if isinstance(stmt, Assume)]
    assume(all(machine(cond, values) for cond in conditions))
    assume(all(abs(python(part, values)) < 2**62 for part in _parts(text)))
    (store,) = (stmt for stmt in walk(made.body) if isinstance(stmt, Store))
    assert machine(store.value, values) == exact


def _parts(text: str) -> list[str]:
    """All operations in brackets."""
    found, opened = [text], []
    for place, letter in enumerate(text):
        if letter == "(":
            opened.append(place)
        elif letter == ")":
            found.append(text[opened.pop() : place + 1])
    return [part for part in found if not _is_pair(part)]


def _is_pair(part: str) -> bool:
    """The two operands of min or max."""
    return isinstance(python(part, dict.fromkeys(("M", "N", "K", "by", "i"), 1)), tuple)
