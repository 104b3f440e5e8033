"""The steps of functions, and names inside of values, get arrays, choices of functions branches; all other
statements stay as they are."""

from __future__ import annotations

import pytest
import tvm
from tvm import tirx

from tilec.backends.cpu.codegen.keep_steps import keep_steps

X = tirx.decl_buffer((8,), "float32", name="x")
ELEMENT = tirx.BufferLoad(X, [tirx.const(0)])
NAME = tirx.Var("t", "float32")


def kept(value: tirx.Expr) -> list[tirx.Stmt]:
    """What the pass makes of a statement that stores ``value``."""
    stored = tirx.BufferStore(X, value, [tirx.const(1)])
    module = tvm.IRModule({"f": tirx.PrimFunc([], stored)})
    with tvm.target.Target("llvm"):
        made = keep_steps()(module)["f"].body
    assert made.same_as(stored) or isinstance(made, tirx.SeqStmt)
    return list(made.seq) if isinstance(made, tirx.SeqStmt) else [made]


@pytest.mark.parametrize("value", [ELEMENT * ELEMENT + tirx.const(1.0), tirx.abs(ELEMENT)])
def test_arithmetic_and_other_calls_stay(value: tirx.Expr) -> None:
    assert len(kept(value)) == 1


@pytest.mark.parametrize(
    "value", [tirx.exp(ELEMENT) + tirx.const(1.0), tirx.Let(NAME, ELEMENT * ELEMENT, NAME * NAME)]
)
def test_functions_and_names_get_arrays(value: tirx.Expr) -> None:
    *steps, last = kept(value)
    assert isinstance(steps[0], tirx.AllocBuffer)
    assert "exp" not in str(last.value)
    assert not isinstance(last.value, tirx.Let)


def test_a_choice_of_functions_becomes_a_branch_that_has_their_steps() -> None:
    deep = tirx.log(tirx.exp(tirx.sin(tirx.tanh(ELEMENT))))
    array, branch, last = kept(tirx.if_then_else(ELEMENT > 0, deep, ELEMENT) + tirx.const(1.0))
    assert isinstance(array, tirx.AllocBuffer)
    assert isinstance(branch, tirx.IfThenElse)
    assert isinstance(branch.then_case, tirx.SeqStmt)
    assert isinstance(branch.else_case, tirx.BufferStore)
    assert not any(name in str((branch, last)) for name in ("log(", "exp(", "sin(", "tanh("))
