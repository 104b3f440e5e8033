from __future__ import annotations

import tvm
from tvm import tirx

from tilec.ir.exprs import same
from tilec.lowering.emission.body_passes import body_pass


def test_a_function_in_which_nothing_changes_stays_what_it_is() -> None:
    x = tirx.Var("x", "int32")
    module = tvm.IRModule({"f": tirx.PrimFunc([x], tirx.Evaluate(x * 3))})
    for step in (body_pass("None", lambda _: []), body_pass("Same", lambda _: [(tirx.Mul, lambda it: it)])):
        assert step(module)["f"].same_as(module["f"])
    added = body_pass("Sum", lambda _: [(tirx.Mul, lambda it: it.a + it.b)])
    assert same(added(module)["f"].body.value, x + 3)
