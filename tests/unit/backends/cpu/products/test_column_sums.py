"""Few rows times weights (K, N) of few bits, several along N in an integer: numbers are summed as stored."""

from __future__ import annotations

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library, numpy_type

from tilec.backends.cpu.nodes import AskAhead
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Gemm, If, walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

TEXT = """
kernel("k")
M = dim(int32)
N = dim(int32, div=8)
K = dim(int32, div=32)
A = tensor({wide}, (M, K), ("M", "K"), access="in")
W = tensor({stored}, (K, N // {each}), ("K", "N // {each}"), access="{access}")
Z = tensor(int32, ((K + 63) // 64, N // 8), ("(K + 63) // 64", "N // 8"), access="in")
S = tensor(float16, ((K + 63) // 64, N), ("(K + 63) // 64", "N"), access="in")
C = tensor(float32, (M, N), ("M", "N"), access="out")
with launch((N + {n} - 1) // {n}, (M + {m} - 1) // {m}, threads=(128, 1, 1)) as (bx, by):
    As = alloc({wide}, ({m}, 64), "shared.dyn")
    Ws = alloc({wide}, (64, {n}), "shared.dyn")
    acc = alloc(float32, ({m}, {n}), "local.fragment")
    fill(acc[0:+{m}, 0:+{n}], 5.0)
    for ko in pipelined(0, (K + 63) // 64, num_stages=2):
        {activations}
        for k, j in parallel(64, {n}):
            Ws[k, j] = cast({wide}, {value})
        gemm(As[0:+{m}, 0:+64], Ws[0:+64, 0:+{n}], acc[0:+{m}, 0:+{n}], clear=False)
    {behind}
    copy(acc[0:+{m}, 0:+{n}], C[by * {m}:+{m}, bx * {n}:+{n}])
"""
COPY = "copy(A[by * {m}:+{m}, ko * 64:+64], As[0:+{m}, 0:+64])"
MOVED = (
    "for i, k in parallel({m}, 64):\n            As[i, k] = A[by * {m} + i, ko * 64 + k] + cast({wide}, 1)"
)
PLACE = "(bx * {n} + j)"
ORDER = "(j % 2 * 4 + j % 8 // 2) * 4"
WORD = f"(W[ko * 64 + k, {PLACE} // 8] >> {ORDER} & 15)"
ZERO = f"(Z[ko, {PLACE} // 8] >> {ORDER} & 15)"
SCALE = f"cast(float32, S[ko, {PLACE}])"
NIBBLE = f"(cast(int32, W[ko * 64 + k, {PLACE} // 2]) >> j % 2 * 4 & 15)"
PAIR = f"(cast(int32, W[ko * 64 + k, {PLACE} // 4]) >> j % 4 * 2 & 3)"
#: Values of weights by the type that stores them and how many it holds.
FORMS = {
    "words": ("int32", 8, f"cast(float32, {WORD} - {ZERO}) * {SCALE}"),
    "minima": ("int32", 8, f"cast(float32, {WORD}) * {SCALE} + {SCALE} * 2.0"),
    "nibbles": ("uint8", 2, f"cast(float32, {NIBBLE} - 8) * {SCALE}"),
    "plain": ("uint8", 2, f"cast(float32, {NIBBLE})"),
    "pairs": ("uint8", 4, f"cast(float32, {PAIR} - 2) * {SCALE}"),
}


def text(form: str, rows: int = 1, columns: int = 128, wide: str = "float16", **other: str) -> str:
    stored, each, value = FORMS[form]
    parts = {"activations": COPY, "access": "in", "value": value, "behind": ""} | other
    sizes = {"m": rows, "n": columns, "wide": wide}
    parts = {name: part.format(**sizes) for name, part in parts.items()}
    return TEXT.format(stored=stored, each=each, **sizes, **parts)


def _stmts(kernel: str, target: str = "x86-64-v4") -> list:
    return list(walk(lower(parse_kernel(kernel), parse_target(target), until="sum_groups").body))


def _count(kernel: str, kind: type, target: str = "x86-64-v4") -> int:
    return sum(isinstance(stmt, kind) for stmt in _stmts(kernel, target))


@pytest.mark.parametrize(
    ("form", "rows", "target"),
    [("nibbles", 8, "x86-64-v4"), ("plain", 1, "x86-64-v3"), ("pairs", 4, "x86-64-v4")],
)
def test_few_rows_make_no_tile(form: str, rows: int, target: str) -> None:
    """Tiles that are whole and others have sums of their own, and those of numbers with a scale that are not
    finite are made anew."""
    kernel = text(form, rows)
    assert (_count(kernel, Gemm, target), _count(kernel, If, target)) == (0, 3 if form != "plain" else 1)


def test_tiles_that_are_surely_whole_have_sums_once() -> None:
    kernel = text("plain").replace("N = dim(int32, div=8)", "N = dim(int32, div=128)")
    assert _count(kernel, If) == 0


@pytest.mark.parametrize(
    ("target", "columns", "form", "rows", "together"),
    [
        ("x86-64-v4", 128, "words", 1, 1),
        ("x86-64-v4", 256, "words", 1, 2),
        ("x86-64-v4", 384, "words", 1, 1),
        ("x86-64-v4", 256, "words", 2, 1),
        ("x86-64-v3", 256, "words", 1, 1),
        ("x86-64-v4", 256, "pairs", 1, 4),
        ("x86-64-v4", 256, "pairs", 2, 2),
    ],
)
def test_vectors_of_integers_together(target: str, columns: int, form: str, rows: int, together: int) -> None:
    """As many as half of the registers hold sums of, and as come out even; in whole tiles and in others."""
    assert _count(text(form, rows, columns), AskAhead, target) == 2 * together


@pytest.mark.parametrize(
    ("form", "target", "wide", "placed"),
    [
        ("words", "x86-64-v3", "float32", True),
        ("words", "x86-64-v4", "float32", False),
        ("raw", "x86-64-v3", "float16", True),
        ("raw", "x86-64-v3", "float32", False),
        ("words less 8", "x86-64-v3", "float32", False),
    ],
)
def test_numbers_of_words_stay_in_their_place(form: str, target: str, wide: str, placed: bool) -> None:
    """Where lanes look none up, nothing is part of a number, and sums that are so much larger are finite."""
    values = {"raw": f"cast(float32, {WORD})", "words less 8": f"cast(float32, {WORD} - 8) * {SCALE}"}
    kernel = text("words", wide=wide, **({"value": values[form]} if form in values else {}))
    summed = format_kernel(lower(parse_kernel(kernel), parse_target(target), until="sum_groups"))
    assert ("word & 240" in summed) == placed


@pytest.mark.parametrize(
    "parts",
    [
        {"rows": 9},
        {"columns": 12},
        {"activations": MOVED},
        {"value": f"cast(float32, {NIBBLE} - k) * {SCALE}"},
        {"value": f"cast(float32, {NIBBLE}) * cast(float32, S[k, {PLACE}])"},
        {"value": f"cast(float32, cast(int32, W[ko * 64 + k, k // 2]) >> j % 2 * 4 & 15) * {SCALE}"},
        {"access": "inout", "behind": "W[bx, by] = uint8(1)"},
    ],
)
def test_other_products_stay(parts: dict) -> None:
    """More rows than registers hold sums of (behind a test of how many there are) and integers that fill no
    half vector have the loop; so have activations that are not 0 beyond their tensor, what varies along K
    besides numbers, integers that do not lie along N, and weights that the launch changes."""
    rows = parts.get("rows", 1)
    assert _count(text("nibbles", **parts), If) == (rows > 8) * 12
    assert _count(text("nibbles", **parts), Gemm) == 1


def _dense(w: np.ndarray, form: str) -> np.ndarray:
    """The numbers of ``w`` (K, words) by columns."""
    stored, each, _ = FORMS[form]
    bits = min(8 * np.dtype(stored).itemsize // each, 4)
    order = [j % 2 * 4 + j // 2 for j in range(8)] if each == 8 else range(each)
    shifts = np.array(order) * bits
    return ((w.astype(np.int64)[..., None] >> shifts) & (1 << bits) - 1).reshape(len(w), -1)


def _weights(form: str, w: np.ndarray, z: np.ndarray, s: np.ndarray) -> np.ndarray:
    q, s = _dense(w, form), s.astype(np.float64).repeat(64, 0)[: len(w)]
    zeros = _dense(z, "words").repeat(64, 0)[: len(w)]
    values = {
        "words": (q - zeros) * s,
        "minima": q * s + 2 * s,
        "nibbles": (q - 8) * s,
        "plain": q.astype(np.float64),
        "pairs": (q - 2) * s,
    }
    return values[form]


@parametrized(
    ("target", "rows", "columns", "wide", "forms"),
    [
        ("x86-64-v4", 1, 128, "float16", ("words", "nibbles")),
        ("x86-64-v3", 1, 64, "float32", ("words", "minima")),
        ("x86-64-v4", 1, 256, "float32", ("words", "pairs")),
        ("x86-64-v3", 2, 256, "float16", ("plain", "pairs")),
        ("x86-64-v4+avx512bf16", 2, 128, "bfloat16", ("words", "pairs")),
        ("x86-64-v4", 16, 64, "float32", ("minima", "nibbles")),
        ("x86-64-v2", 1, 128, "float32", ("words", "plain")),
    ],
    fast=[
        ("x86-64-v4", 1, 128, "float16", ("words", "nibbles")),
        ("x86-64-v4", 1, 256, "float32", ("words", "pairs")),
        ("x86-64-v3", 1, 64, "float32", ("words", "minima")),
    ],
)
def test_results(target: str, rows: int, columns: int, wide: str, forms: tuple[str, ...]) -> None:
    """Rows and columns that fill no tile, a last step of K that is not whole, sums that begin elsewhere."""
    library = Library({str(at): text(form, rows, columns, wide) for at, form in enumerate(forms)}, target)
    rng, (n, k) = np.random.default_rng(0), (columns + 40, 64 * 3 + 32)
    z = rng.integers(-(1 << 31), 1 << 31, (4, n // 8), np.int32)
    s = rng.uniform(0.5, 1, (4, n)).astype(np.float16)
    for at, form in enumerate(forms):
        stored, each, _ = FORMS[form]
        bounds = np.iinfo(stored)
        w = rng.integers(bounds.min, bounds.max, (k, n // each), stored, endpoint=True)
        for m in (1, rows + 2):
            a = rng.standard_normal((m, k)).astype(numpy_type(wide))
            c = np.zeros((m, n), np.float32)
            library.run(str(at), [a, w, z, s, c], {"M": m, "N": n, "K": k})
            wanted = a.astype(np.float64) @ _weights(form, w, z, s) + 5
            np.testing.assert_allclose(c, wanted, rtol=1e-3, atol=1.0 if wide == "bfloat16" else 0.1)


def test_infinite_activations() -> None:
    """A number less its zero point, times infinity: NaN where they are the same, and nowhere else."""
    library, rng, (n, k) = Library({"k": text("words")}, "x86-64-v3"), np.random.default_rng(0), (128, 64)
    w = rng.integers(-(1 << 31), 1 << 31, (k, n // 8), np.int32)
    z = rng.integers(-(1 << 31), 1 << 31, (1, n // 8), np.int32)
    a, s, c = np.ones((1, k), np.float16), np.ones((1, n), np.float16), np.zeros((1, n), np.float32)
    a[0, 3] = np.inf
    library.run("k", [a, w, z, s, c], {"M": 1, "N": n, "K": k})
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(c, a.astype(np.float32) @ _weights("words", w, z, s).astype(np.float32))


#: Numbers along K: words as GPTQ has them, groups told by k, and bytes of two.
ALONG_K = {
    "words": (
        "int32",
        8,
        f"cast(float32, (W[(ko * 64 + k) // 8, {PLACE}] >> k % 8 * 4 & 15)"
        f" - ((Z[(ko * 64 + k) // 64, {PLACE} // 8] >> j % 8 * 4 & 15) + 1))"
        f" * cast(float32, S[(ko * 64 + k) // 64, {PLACE}])",
    ),
    "nibbles": (
        "uint8",
        2,
        f"cast(float32, (cast(int32, W[(ko * 64 + k) // 2, {PLACE}]) >> k % 2 * 4 & 15) - 8) * {SCALE}",
    ),
}


def text_along_k(form: str, rows: int = 1, columns: int = 128, wide: str = "float16", **other: str) -> str:
    """`text` with the weights of ALONG_K."""
    stored, each, value = ALONG_K[form]
    rest = {"value": value, **other}
    kernel = text("words", rows, columns, wide, **rest)
    return kernel.replace(
        'W = tensor(int32, (K, N // 8), ("K", "N // 8")',
        f'W = tensor({stored}, (K // {each}, N), ("K // {each}", "N")',
    )


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("rows", "together"), [(1, 8), (4, 2), (8, 1)])
def test_numbers_along_k_go_to_one_sum(target: str, rows: int, together: int) -> None:
    """Of as many vectors as additions that wait for each other leave room for, with each row."""
    kernel = text_along_k("nibbles", rows)
    assert _count(kernel, Gemm, target) == 0
    assert _count(kernel, AskAhead, target) == 2 * together


@pytest.mark.parametrize(
    "value",
    [
        f"cast(float32, W[(ko * 64 + k) // 8, {PLACE}] >> k % 4 * 4 & 15) * cast(float32, S[k, {PLACE}])",
        f"cast(float32, W[(ko * 64 + k) // 8, {PLACE}] >> k % 8 * 4 & j) * {SCALE}",
        f"cast(float32, W[(ko * 64 + k) // 8, {PLACE} // 2] >> k % 8 * 4 & 15) * {SCALE}",
        f"cast(float32, W[(ko * 64 + k) // 8, {PLACE}] >> (k + ko) % 8 * 4 & 15) * {SCALE}",
    ],
)
def test_other_words_along_k_stay(value: str) -> None:
    """Scales of elements, numbers that the column or the trip has a part in, and words of two columns."""
    assert _count(text_along_k("words", value=value), Gemm) == 1


@parametrized(
    ("target", "form", "rows", "columns", "wide"),
    [
        ("x86-64-v4", "words", 1, 128, "float16"),
        ("x86-64-v4", "nibbles", 4, 128, "float32"),
        ("x86-64-v3", "words", 4, 64, "bfloat16"),
        ("x86-64-v3", "nibbles", 16, 128, "float16"),
        ("x86-64-v2", "words", 2, 128, "float32"),
    ],
    fast=[("x86-64-v4", "words", 1, 128, "float16"), ("x86-64-v3", "words", 4, 64, "bfloat16")],
)
def test_results_of_numbers_along_k(target: str, form: str, rows: int, columns: int, wide: str) -> None:
    """Rows and columns that fill no tile, and a last step of K that is not whole."""
    stored, each, _ = ALONG_K[form]
    rng, (n, k) = np.random.default_rng(0), (columns + 40, 64 * 3 + 32)
    z = rng.integers(-(1 << 31), 1 << 31, (4, n // 8), np.int32)
    s, bounds = rng.uniform(0.5, 1, (4, n)).astype(np.float16), np.iinfo(stored)
    w = rng.integers(bounds.min, bounds.max, (k // each, n), stored, endpoint=True)
    q = (w.astype(np.int64)[:, None] >> np.arange(each)[:, None] * 4 & 15).reshape(k, n)
    zeros = (z.astype(np.int64)[..., None] >> np.arange(8) * 4 & 15).reshape(4, n) + 1
    zeros = zeros.repeat(64, 0)[:k] if form == "words" else 8
    dense = (q - zeros) * s.astype(np.float64).repeat(64, 0)[:k]
    library = Library({"k": text_along_k(form, rows, columns, wide)}, target)
    for m in (1, rows + 2):
        a = rng.standard_normal((m, k)).astype(numpy_type(wide))
        c = np.zeros((m, n), np.float32)
        library.run("k", [a, w, z, s, c], {"M": m, "N": n, "K": k})
        np.testing.assert_allclose(
            c, a.astype(np.float64) @ dense + 5, rtol=1e-3, atol=1.0 if wide == "bfloat16" else 0.1
        )


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("form", ["words", "minima", "nibbles", "along_k"])
def test_infinite_scales(target: str, form: str) -> None:
    """Zero times infinity is NaN in a weight, and in a sum that begins with it: sums of numbers know neither
    of a number that is 0 nor of one whose sum is."""
    along_k, rng, (n, k) = form == "along_k", np.random.default_rng(0), (128, 128)
    library = Library({"k": text_along_k("nibbles") if along_k else text(form)}, target)
    kind, each, _ = ALONG_K["nibbles"] if along_k else FORMS[form]
    w = rng.integers(1, 7, (k // 2, n) if along_k else (k, n // each)).astype(kind) * 0x11
    w = w | w << 8 | w << 16 | w << 24 if kind == "int32" else w
    q = np.repeat(w & 15, each, 0 if along_k else 1).astype(np.float32)
    z = np.full((2, n // 8), 0x77777777, np.int32)
    a, s, c = np.ones((1, k), np.float16), np.ones((2, n), np.float16), np.zeros((1, n), np.float32)
    s[0, 3], s[1, 40], s[1, 77] = np.inf, -np.inf, np.nan
    a[0, ::2] = -1
    library.run("k", [a, w, z, s, c], {"M": 1, "N": n, "K": k})
    with np.errstate(invalid="ignore"):
        scale = s.astype(np.float32).repeat(64, 0)
        weights = {"words": (q - 7) * scale, "minima": q * scale + 2 * scale}.get(form, (q - 8) * scale)
        np.testing.assert_array_equal(c, (a.T.astype(np.float32) * weights).sum(0, keepdims=True) + 5)
