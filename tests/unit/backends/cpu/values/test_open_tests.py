"""Stores of small elements under tests that constants decide: LLVM writes no element beside them."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library, numpy_type

TEXT = """
kernel("{name}")
n = scalar(int32)
X = tensor({source}, (8, 33), ("8", "33"), access="in")
Y = tensor({dtype}, (8, 33), ("8", "33"), access="inout")
with launch(1, threads=(32, 1, 1)) as (bx,):
    for i in parallel(8):
        if i % 2 == 0:
            for v in serial({trips}):
                if {test}:
                    Y[i, v] = cast({dtype}, {value})
"""
#: Name to the trips of a loop, the test of its variable, and the variable's values that pass.
FORMS = {
    "one behind a vector": ("0, 32, 1", "v < 17", range(17)),
    "one of a vector": ("0, 16, 1", "v * 5 % 16 == 3", [7]),
    "downwards": ("15, -1, -1", "v // 2 == 0", range(2)),
    "beside another": ("0, 32, 1", "v < 17 and i < n", range(17)),
}
TYPES = {
    "bfloat16": ("float32", "X[i, v] + 1.0"),
    "int8": ("int32", "max(X[i, v] + 1, X[i, 0])"),
    "int32": ("int64", "max(X[i, v] + int64(1), X[i, 0])"),
}
LEVELS = ("x86-64-v3", "x86-64-v4")


def name_of(form, dtype):
    return f"{form} in {dtype}".replace(" ", "_")


@pytest.fixture(scope="module", params=LEVELS)
def library(request):
    texts = {}
    for form, (trips, test, _) in FORMS.items():
        for dtype, (source, value) in TYPES.items():
            name = name_of(form, dtype)
            texts[name] = TEXT.format(
                name=name, source=source, dtype=dtype, trips=trips, test=test, value=value
            )
    return Library(texts, request.param)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TYPES)
def test_no_element_beside_those_that_pass_is_written(library, form, dtype):
    source, _ = TYPES[dtype]
    x = np.random.default_rng(0).integers(-5, 6, (8, 33)).astype(source)
    y = np.full((8, 33), 77).astype(numpy_type(dtype))
    expected = y.copy()
    stored = x + 1 if dtype == "bfloat16" else np.maximum(x + 1, x[:, :1])
    places = np.ix_(range(0, 8, 2), list(FORMS[form][2]))
    expected[places] = stored[places].astype(expected.dtype)
    library.run(name_of(form, dtype), [8, x, y], {})
    np.testing.assert_array_equal(y, expected)
