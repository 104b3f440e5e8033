"""What each pass makes of a small kernel: pass_texts/<target>/<pass>.txt has the tile IR before and after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tilec.backends.base import backend_of
from tilec.backends.cuda.idioms.order import IDIOMS
from tilec.backends.cuda.passes.loads.hold_ahead import HoldAhead
from tilec.backends.cuda.strategies import STRATEGIES
from tilec.ir.nodes import Kernel, Launch
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.targets import parse_target

TEXTS = Path(__file__).parent / "pass_texts"
BETWEEN = "\n======== becomes ========\n"
#: The passes of other GPUs that those of NVIDIA have not.
OTHERS = {
    "gfx1100": (HoldAhead,),
    "metal3": (HoldAhead,),
}


def steps() -> dict[str, Pass]:
    """Every pass by "target/name", the rules for idioms too; one that several targets have by the first of
    them, but what is held ahead, for which each has other registers."""
    found: dict[str, Pass] = {}
    for name in ("x86-64-v3", "sm_80", "sm_90a", "sm_100a", "gfx942"):
        target = parse_target(name)
        met = [type(each) for each in found.values()]
        found |= {
            f"{name}/{each.name}": each for each in backend_of(target).passes(target) if type(each) not in met
        }
    for name, kinds in OTHERS.items():
        target = parse_target(name)
        own = (each for each in backend_of(target).passes(target) if isinstance(each, kinds))
        found |= {f"{name}/{each.name}": each for each in own}
    met = [type(each) for each in found.values()]
    return found | {f"sm_90a/{each.name}": each for each in IDIOMS if type(each) not in met}


STEPS = steps()
#: Targets of passes that do nothing for the one in their name.
TARGETS = {
    "sm_80/split_rows": "sm_90a",
    "sm_80/hold_turned": "sm_90a",
    "sm_80/stage_reads": "sm_90a",
    "x86-64-v3/turn_few_rows": "x86-64-v4+amx",
    "gfx942/copy_straight": "gfx950",
    "gfx942/renew_elements": "gfx1100",
}


def parse(text: str) -> Kernel:
    """The kernel of a text. Texts leave the strategy of a launch out: its statement of roles tells it."""

    def with_strategy(launch: Launch) -> Launch:
        taken = [each for each in STRATEGIES if isinstance(launch.body[-1], each.roles)]
        return replace(launch, strategy=taken[0]) if taken else launch

    return rewrite_launches(parse_kernel(text), with_strategy)


@pytest.mark.parametrize("name", STEPS)
def test_the_text_of_a_pass(name: str, request: pytest.FixtureRequest) -> None:
    path = TEXTS / f"{name}.txt"
    assert path.is_file(), f"{path} is to hold a kernel as tile IR; --update-golden adds what becomes of it"
    before, _, after = path.read_text(encoding="utf-8").partition(BETWEEN)
    kernel = parse(before)
    target = parse_target(TARGETS.get(name, name.partition("/")[0]))
    found = format_kernel(STEPS[name].apply(kernel, target))
    assert found != format_kernel(kernel), "the pass does nothing with this kernel"
    if request.config.getoption("--update-golden"):
        path.write_text(f"{before}{BETWEEN}{found}", encoding="utf-8")
        return
    assert found == after


def test_every_text_is_of_a_pass() -> None:
    here = {str(path.relative_to(TEXTS).with_suffix("")) for path in TEXTS.glob("*/*.txt")}
    assert not here ^ set(STEPS)
