"""The text of groups and barriers parses back, and the verifier knows their rules."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilec.errors import IRError
from tilec.ir.rules.verifier import verify
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel

HEAD = """kernel("k")
x = tensor(float16, (64, 32), ("64", "32"), access="in")
with launch(2, threads=(256, 1, 1)) as (bx,):
    t = alloc(float16, (64, 32), "shared.dyn")
"""
BODY = """    full = alloc_barriers((128, 1))
    far = alloc_barriers((256,), cluster=True)
    with thread_group(0, 128):
        barrier_expect(full[1], 4096)
        bulk_load(x[0:+64, 0:+32], t[0:+64, 0:+32], full[1])
        bulk_load(x[0:+64, 0:+32], t[0:+64, 0:+32], full[1], alone=True)
        barrier_arrive(full[0])
        barrier_arrive(full[1], expect=4096)
        barrier_arrive(far[0], block=1 - bx)
    with thread_group(128, 128):
        barrier_wait(full[0], 0)
    cluster_barrier("arrive_relaxed")
    cluster_barrier("wait")
    named_arrive(1, 64)
"""


def test_text_parses_back():
    kernel = parse_kernel(HEAD + BODY)
    verify(kernel)
    assert format_kernel(kernel) == HEAD + BODY


def test_the_parser_alone_knows_all_statements_of_authors():
    """A process that has imported no more than it, as one that verifies a library."""
    code = "import sys; from tilec.ir.text.parser import parse_kernel; parse_kernel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, HEAD + BODY], check=True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("with thread_group(8, 128):\n        pass", "a group of the threads 8 to 135"),
        ("with thread_group(0, 0):\n        pass", "a group of 0 threads"),
        ("b = alloc_barriers((0,))", "b has the counts"),
        ("barrier_wait(t[0], 0)", "t has rank 2"),
        ("named_arrive(1, 20)", "the named barrier 1 of 20 threads"),
        ('cluster_barrier("leave")', "barrier of a cluster of kind 'leave'"),
    ],
)
def test_rules(line, said):
    with pytest.raises(IRError, match=said):
        verify(parse_kernel(f"{HEAD}    {line}\n"))
