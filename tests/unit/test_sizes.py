"""Sizes: one grammar, in `tilec.sizes` and in the loader, which walks over them by itself; nothing runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilec.errors import LibraryError, TilecError
from tilec.package import model
from tilec.portable import loader
from tilec.sizes import SizeError, evaluate_size, names_in

DIMS = {"M": 9, "N": 4, "K_1": 2**62, "zero": 0, "below": -3, "max": 7, "select": 5}

#: Gets at `os.system` without a single builtin.
ESCAPE = (
    "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]"
    ".__init__.__globals__['system']('touch {}')"
)
HOSTILE = (
    "__import__('os').system('true')",
    ESCAPE.format("witness"),
    "M.__class__",
    "(lambda: M)()",
    "[M for M in (1, 2)]",
    "M if N else K_1",
    "f'{M}'",
    "(M := 3)",
    "M[0]",
    "eval('1')",
    "open('x')",
    "min(*[1, 2])",
    "max(M, N, key=M)",
    "min(M)",
    "min(M, N, 3)",
    "select(M, N)",
    "M ** N",
    "2 ** 99 ** 99",
    "M << 3",
    "M / N",
    "1.5",
    "'M'",
    "M < N < 3",
    "M is N",
    "M in N",
    "",
    "M +",
    "M; N",
    "M\x00",
    "\ud800",
    "(" * 300 + "M" + ")" * 300,
    "-" * 19_000 + "M",
    "M+" * 15_000 + "M",
)

#: Texts that have no value for DIMS.
WITHOUT_VALUE = (
    "Q",
    "M + Q",
    "min + 1",
    "M // zero",
    "M % zero",
    "K_1 * 4",
    "K_1 + K_1",
    "-(-K_1 - K_1) ",
    "1 // (M - 9)",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_size_is_an_error_everywhere(text: str) -> None:
    for evaluate, error in ((evaluate_size, SizeError), (model.evaluate, LibraryError)):
        with pytest.raises(error) as caught:
            evaluate(text, DIMS)
        assert isinstance(caught.value, TilecError)
    with pytest.raises(loader.LibraryError):
        loader.evaluate_size(text, DIMS)


@pytest.mark.parametrize("text", WITHOUT_VALUE)
def test_what_has_no_value_is_an_error_everywhere(text: str) -> None:
    with pytest.raises(SizeError):
        evaluate_size(text, DIMS)
    with pytest.raises(LibraryError, match="metadata"):
        model.evaluate(text, DIMS)
    with pytest.raises(loader.LibraryError):
        loader.evaluate_size(text, DIMS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" M // 2 + min(N, 3) ", 7),
        ("(M + 127) // 128 * 128", 128),
        ("-M % N", 3),
        ("below // 2", -2),
        ("select(zero == 0, N, M // zero)", 4),
        ("select(M > 4 and not zero, 1, 0) + (N >= 4)", 2),
        ("zero and M // zero", 0),
        ("(N or M // zero) + 1", 2),
        ("True + 1", 2),
        ("max", 7),
        ("max(max, 3) - min(select, max)", 2),
        ("select(select < max, select, max)", 5),
        ("K_1 + (K_1 - 1)", 2**63 - 1),
    ],
)
def test_values(text: str, value: int) -> None:
    for evaluate in (evaluate_size, model.evaluate, loader.evaluate_size):
        found = evaluate(text, DIMS)
        assert (found, type(found)) == (value, int)


def _calls(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "//", "%", "<", "<=", ">", ">=", "==", "!=", "and", "or"])
    pairs = st.tuples(parts, operators, parts).map(lambda each: f"({each[0]} {each[1]} {each[2]})")
    extrema = st.tuples(st.sampled_from(["min", "max"]), parts, parts).map(
        lambda each: f"{each[0]}({each[1]}, {each[2]})"
    )
    chosen = st.tuples(parts, parts, parts).map(lambda each: f"select({', '.join(each)})")
    return st.one_of(
        pairs, extrema, chosen, parts.map(lambda each: f"(-{each})"), parts.map("(not {})".format)
    )


SIZE_TEXTS = st.recursive(
    st.one_of(st.sampled_from([*DIMS, "Q"]), st.integers(0, 300).map(str)), _calls, max_leaves=8
)


@settings(max_examples=200)
@given(SIZE_TEXTS)
def test_the_loader_finds_the_same_values(text: str) -> None:
    answers: list[int | None] = []
    for evaluate in (evaluate_size, loader.evaluate_size):
        try:
            answers.append(evaluate(text, DIMS))
        except (SizeError, loader.LibraryError):
            answers.append(None)
    lazy = "Q" in names_in(text)  # the loader meets a name only where its value is needed
    assert answers[0] == answers[1] or (lazy and answers[0] is None)
