from __future__ import annotations

import pytest
from tvm import tirx

from tilec.errors import UnsupportedError
from tilec.lowering.emission.texts import int_text


@pytest.fixture
def dims():
    M, N = tirx.Var("m_var", "int32"), tirx.Var("n_var", "int32")
    return M, N, {M: "M", N: "N"}


def test_arithmetic_keeps_its_brackets(dims):
    M, N, names = dims
    assert int_text((M + 63) // 64 * N, names) == "((M + 63) // 64) * N"
    assert int_text(tirx.max(M % 8, 1) - tirx.min(N, 4), names) == "max(M % 8, 1) - min(N, 4)"


def test_choices_and_casts(dims):
    M, N, names = dims
    assert int_text(tirx.if_then_else(M > 3, N, 1), names) == "select(M > 3, N, 1)"
    assert int_text(tirx.Select(M == N, M, N + 0), names) == "select(M == N, M, N)"
    assert int_text(tirx.Cast("int64", M) * 4, names) == "M * 4"
    assert int_text(7, names) == "7"


def test_the_text_means_what_the_expression_means(dims):
    M, N, names = dims
    text = int_text(tirx.truncdiv(M + 5, 3) * (N - 2), names)
    assert eval(text, {}, {"M": 10, "N": 6}) == 20


def test_other_expressions_are_refused(dims):
    M, _, names = dims
    with pytest.raises(UnsupportedError, match="no plain integer arithmetic"):
        int_text(M & 3, names)
    with pytest.raises(UnsupportedError):
        int_text(tirx.Var("stranger", "int32"), names)
