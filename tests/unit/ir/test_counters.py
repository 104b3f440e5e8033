"""Variables that count the same become one, where nobody can tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilec.ir.analysis.threads.counters import counted_once
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel

HEAD = """
kernel("small")
Z = tensor(int32, (64,), ("64",), access="inout")
n = scalar(int32)
with launch(1, threads=(128, 1, 1)) as (bx,):
    one = alloc(int32, (1,), "local.var", init=0)
    other = alloc(int32, (1,), "local.var", init={init})
"""


def made(body: str, init: int = 0) -> str:
    """The statements of a launch with variables that count once."""
    text = HEAD.format(init=init) + "".join(f"    {line}\n" for line in body.splitlines())
    kernel = parse_kernel(text)
    (launch,) = kernel.launches
    launch = replace(launch, body=counted_once(launch.body))
    return format_kernel(replace(kernel, body=(launch,)))


STEP = "one[0] = one[0] + n\n{between}other[0] = other[0] + n\n"
READ = "Z[one[0]] = other[0]\n"


def test_variables_that_change_side_by_side_are_one():
    text = made(STEP.format(between="") + READ)
    assert "other" not in text
    assert "Z[one[0]] = one[0]" in text


def test_names_of_the_same_value_are_one():
    text = made("a = one[0] + n\nZ[a] = 1\nb = one[0] + n\nZ[b] = 2\n")
    assert "b = " not in text
    assert "Z[a] = 2" in text


def test_what_nobody_reads_goes():
    text = made("a = one[0] * 2\none[0] = one[0] + n\n")
    assert "one" not in text
    assert "a = " not in text


@pytest.mark.parametrize(
    ("body", "init"),
    [
        (STEP.format(between="") + READ, 1),
        (STEP.format(between="Z[0] = one[0]\n") + READ, 0),
        ("one[0] = one[0] + n\nother[0] = other[0] + 1\n" + READ, 0),
        ("one[0] = one[0] + n\nif n > 3:\n    other[0] = other[0] + n\n" + READ, 0),
        ("one[0] = Z[3]\nZ[3] = 4\nother[0] = Z[3]\n" + READ, 0),
    ],
    ids=["start", "read between", "value", "branch", "source"],
)
def test_others_stay(body, init):
    assert "other[0]" in made(body, init)
