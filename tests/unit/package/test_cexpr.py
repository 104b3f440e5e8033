from __future__ import annotations

import pytest

from tilec.errors import PackageError
from tilec.package.text.c_sizes import to_c
from tilec.sizes import names_in

NAMES = {"M": "dims[0]", "n": "params[1].i"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("M", "dims[0]"),
        ("4096", "INT64_C(4096)"),
        ("(M + 127) // 128", "int_floordiv(&ok, int_add(&ok, dims[0], INT64_C(127)), INT64_C(128))"),
        ("M % n", "int_floormod(&ok, dims[0], params[1].i)"),
        ("-M * 2", "int_mul(&ok, int_sub(&ok, 0, dims[0]), INT64_C(2))"),
        ("min(M, max(n, 1))", "int_min(dims[0], int_max(params[1].i, INT64_C(1)))"),
        ("select(M < 4, 1, M)", "((dims[0] < INT64_C(4)) ? INT64_C(1) : dims[0])"),
        ("M > 1 and not n", "((dims[0] > INT64_C(1)) && (!params[1].i))"),
    ],
)
def test_to_c(text: str, wanted: str) -> None:
    assert to_c(text, NAMES) == wanted


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Q", "unknown name 'Q'"),
        ("M / 2", "made of integers"),
        ("1.5", 'has "1.5"'),
        ("abs(M)", 'has "abs(M)"'),
        ("M +", "is no size"),
        ("M < n < 3", "comparisons of two"),
        (str(2**63), f"{2**63} has more than 64 bits"),
    ],
)
def test_refusals_name_the_text(text: str, problem: str) -> None:
    with pytest.raises(PackageError, match="the size") as caught:
        to_c(text, NAMES)
    assert problem in str(caught.value)
    assert repr(text) in str(caught.value)


def test_names_in_leaves_functions_out() -> None:
    assert names_in("min(M, N) + M * K") == ("M", "N", "K")
