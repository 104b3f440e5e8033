from __future__ import annotations

from dataclasses import replace

from records import variant

from tilec.ir.guards import Guard
from tilec.package.dispatch.order import dispatch_order, target_order


def test_the_order_of_the_design() -> None:
    best_to_worst = [
        variant("two_pins", M=Guard(eq=8), N=Guard(eq=8)),
        variant("pin_and_range", M=Guard(min=1, max=9), N=Guard(eq=8)),
        variant("pin", M=Guard(eq=8)),
        variant("two_ranges", M=Guard(min=1, max=90), N=Guard(min=1, max=90)),
        variant("narrow", M=Guard(min=1, max=9)),
        variant("wide_divided", M=Guard(min=1, max=10, div=4)),
        variant("wide", M=Guard(min=1, max=10)),
        variant("div_16", M=Guard(div=16)),
        variant("div_8", M=Guard(div=8)),
        variant("above_128", M=Guard(min=128)),
        variant("above_64", M=Guard(min=64)),
        variant("below_64", M=Guard(max=64)),
        replace(variant("aligned"), align=(("A", 64),)),
        variant("open"),
        variant("open_later"),
        variant("lower_level", "x86-64-v2", M=Guard(eq=8), N=Guard(eq=8)),
    ]
    mixed = [*best_to_worst[::2], *best_to_worst[1::2]]
    mixed.sort(key=lambda each: each.ir_text == "kernel open_later")
    assert [v.ir_text for v in dispatch_order(mixed)] == [v.ir_text for v in best_to_worst]


def test_schedules_of_a_list_stand_where_the_guards_of_all_of_them_do() -> None:
    any_rows, aligned = (), (("N", Guard(div=8)),)
    best_to_worst = [
        replace(variant("aligned_wide", N=Guard(min=1, max=100, div=8)), listed_under=aligned),
        replace(variant("aligned_rest", N=Guard(div=8)), listed_under=aligned),
        replace(variant("any_narrow", N=Guard(min=1, max=10)), listed_under=any_rows),
        replace(variant("any_wide", N=Guard(min=11, max=100)), listed_under=any_rows),
        replace(variant("any_rest"), listed_under=any_rows),
    ]
    assert list(dispatch_order(best_to_worst[::-1])) == best_to_worst


def test_targets_best_first() -> None:
    names = ("x86-64-v2", "x86-64-v4+vnni", "x86-64-v4", "x86-64-v3", "x86-64-v3")
    variants = [variant(f"v{i}", name) for i, name in enumerate(names)]
    assert target_order(variants) == ("x86-64-v4+vnni", "x86-64-v4", "x86-64-v3", "x86-64-v2")
