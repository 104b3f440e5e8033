"""What emission shares between families of targets."""

import pytest
from tvm import sym, tirx

from tilec.backends.cpu.emit.emitter import LaneEmitter
from tilec.backends.cuda.emit.emitter import DeviceEmitter
from tilec.ir.exprs import int_value, substitute
from tilec.ir.nodes import Bind, For
from tilec.lowering.emission.context import Context
from tilec.lowering.emission.loops import unit_steps


def number(value):
    return tirx.const(value, "int32")


@pytest.mark.parametrize(
    "values", [range(10, 0, -3), range(0, 10, 4), range(3, 3, 2), range(5, 0, 2), range(-4, 5, 3)]
)
def test_a_loop_of_any_step_counts_the_trips_of_range(values):
    var = tirx.Var("i", "int32")
    start, stop, step = map(number, (values.start, values.stop, values.step))
    loop = unit_steps(For("unroll", var, start, stop, step, ()))
    assert int_value(loop.start) == 0
    assert int_value(sym.Analyzer().simplify(loop.stop)) == len(values)
    assert int_value(loop.step) == 1
    assert loop.kind == "serial"
    assert isinstance(loop.body[0], Bind)
    places = (substitute(loop.body[0].value, {loop.var: number(trip)}) for trip in range(len(values)))
    found = [int_value(sym.Analyzer().simplify(place)) for place in places]
    assert found == list(values)


def test_a_loop_of_unit_steps_stays():
    loop = For("unroll", tirx.Var("i", "int32"), number(2), number(9), number(1), ())
    assert unit_steps(loop) is loop


def test_each_family_decides_all_that_the_base_leaves_open():
    assert Context.__abstractmethods__ == {"combined", "emit", "foreign", "loop", "named", "wrapping"}
    assert {child.processor for child in (LaneEmitter, DeviceEmitter)} == {"CPU", "CUDA"}
    assert not LaneEmitter.__abstractmethods__ | DeviceEmitter.__abstractmethods__
