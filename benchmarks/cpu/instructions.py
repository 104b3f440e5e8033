"""Instructions that the microkernels of aarch64 take for a multiply-add, counted in their machine code.

    python benchmarks/cpu/instructions.py

Counted is the innermost loop with the most products of each kernel in instructions.toml: one register block,
some steps of K. "Ideal" is the least that 32 vector registers allow: every vector of an operand is read once
a step, two by one instruction, and nothing else is done but products, by the best block for it.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilec.build.written.stages import stage_text
from tilec.manifest import Variant, load_manifest

MANIFEST = Path(__file__).resolve().with_suffix(".toml")
_REGISTERS = 32
#: By instruction the multiply-adds that it does, and how many sums' products one vector of the left operand
#: takes part in per column of vectors: four where it is taken by lane, one where it is taken whole.
PRODUCTS = {"fmla": (4, 4), "sdot": (16, 4), "bfmmla": (16, 1), "smmla": (32, 1)}
_LABEL = re.compile(r"^(\.?L\w+):")
_BACK = re.compile(r"^(?:b\.?\w*|cbn?z|tbn?z)\s.*?(\.L\w+)$")
_NO_INSTRUCTION = re.compile(r"^(?:[.#]|//|\w+:|$)")


@dataclass(frozen=True)
class InnerLoop:
    """How often each instruction stands in a loop without loops."""

    counts: Counter[str]

    @property
    def products(self) -> int:
        """How many of them multiply."""
        return sum(self.counts[name] for name in PRODUCTS)

    @property
    def stores(self) -> int:
        """How many of them write memory, which sums that stay in registers have no need of."""
        return sum(count for name, count in self.counts.items() if name.startswith("st"))


@dataclass(frozen=True)
class Count:
    """Instructions a product of ``instruction``: what there are, and the least."""

    kernel: str
    target: str
    instruction: str
    counted: float
    ideal: float
    stores: int


def inner_loops(assembly: str) -> Iterator[InnerLoop]:
    """The loops of the assembly of aarch64 that no other loop is part of."""
    start, counts = "", Counter[str]()
    for line in map(str.strip, assembly.splitlines()):
        label = _LABEL.match(line)
        if label:
            start, counts = label[1], Counter()
        if label or _NO_INSTRUCTION.match(line):
            continue
        counts[line.split()[0]] += 1
        back = _BACK.match(line)
        if back and back[1] == start:
            yield InnerLoop(counts.copy())
        if back:
            start = ""


def least(instruction: str) -> float:
    """Instructions a product of the best block of ``high`` times ``wide`` vectors of operands, whose sums fit
    the registers beside one side's operands and one vector of the other's."""
    _, served = PRODUCTS[instruction]
    return min(
        1 + (high + wide) / 2 / (served * high * wide)
        for high in range(1, _REGISTERS)
        for wide in range(1, _REGISTERS)
        if served * high * wide + min(high, wide) + 1 <= _REGISTERS
    )


def counts() -> list[Count]:
    """One for each variant of the manifest."""
    plan = load_manifest(MANIFEST)
    return [_count(variant) for kernel in plan.kernels for variant in kernel.variants]


def _count(variant: Variant) -> Count:
    found = max(inner_loops(stage_text(variant, "asm")), key=lambda loop: loop.products)
    instruction = max(PRODUCTS, key=lambda name: found.counts[name])
    counted = found.counts.total() / found.products
    return Count(variant.kernel, variant.target.name, instruction, counted, least(instruction), found.stores)


def main() -> None:
    """Prints a table in Markdown."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    print("| kernel | target | by | instructions a product | ideal | over it | a multiply-add | ideal |")
    print("|---|---|---|---|---|---|---|---|")
    for each in counts():
        print(f"| {' | '.join(_cells(each))} |")


def _cells(each: Count) -> list[str]:
    products, _ = PRODUCTS[each.instruction]
    numbers = [f"{each.counted:.3f}", f"{each.ideal:.3f}", f"{each.counted / each.ideal - 1:.1%}"]
    numbers += [f"{value / products:.4f}" for value in (each.counted, each.ideal)]
    return [f"`{each.kernel}`", f"`{each.target}`", f"`{each.instruction}`", *numbers]


if __name__ == "__main__":
    main()
