"""How many variants the library of a manifest would hold, without making the code of GPUs.

    python tools/held_variants.py MANIFEST [--kernel GLOB]... [--target T]... [-j N]

A library does without variants whose calls get the same code from others (tilec/build/answers/served.py),
which a build sees when all is compiled. Here those variants alone are made whose config and cost are another
one's, too, of the same kernel and family: on a CPU to machine code, else to what decides it, the lowered TIR.
Others count as code of their own, so that a build holds at most as many.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tilec.build.answers.served import without_served
from tilec.build.elaborated.frontend import elaborate_variant
from tilec.build.processes.pool import default_jobs, run_tasks
from tilec.build.records import compile_one, listed_under, restricted
from tilec.codegen.image import Image
from tilec.families import family_of
from tilec.manifest import Variant, load_manifest
from tilec.package.model import KernelRecord, VariantRecord


def main() -> None:
    """Prints a line for each kernel, and the sums by target."""
    options = _options()
    plan = load_manifest(options.manifest, targets=options.target, kernels=options.kernel)
    records = [_stub(variant, str(number)) for number, variant in enumerate(plan.variants)]
    twins = _twins(plan.variants)
    run_tasks(
        made, [plan.variants[at] for at in twins], options.jobs, lambda at, one: _put(records, twins[at], one)
    )
    held, in_order = Counter[str](), iter(records)
    for kernel in plan.kernels:
        own = tuple(islice(in_order, len(kernel.variants)))
        kept = without_served(KernelRecord(kernel.name, (), (), own)).variants
        found = Counter(each.target for each in kept)
        print(f"{kernel.name}: {sum(found.values())} of {len(own)}", *_by_target(found), flush=True)
        held += found
    print(f"{held.total()} of {len(records)} variants", *_by_target(held))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--kernel", action="append", default=[], metavar="GLOB")
    parser.add_argument("--target", action="append", default=[], metavar="T")
    parser.add_argument("-j", "--jobs", type=int, default=default_jobs())
    return parser.parse_args()


def made(variant: Variant) -> VariantRecord:
    """A variant with its code, or in its place the text that decides it; runs in a compile process."""
    if family_of(variant.target).on_host:
        return replace(compile_one(variant).record, ir_text="")
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir
    from tilec.build.reuse.images import symbol_prefix

    lowered = to_tir(lower(elaborate_variant(variant).kernel, variant.target), variant.target)
    return _stub(variant, symbol_prefix(lowered, variant.target))


def _stub(variant: Variant, code: str) -> VariantRecord:
    return VariantRecord(
        target=variant.target.name,
        guards=restricted(variant),
        image=Image(variant.target.name, code.encode(), code, ()),
        cost=variant.cost,
        listed_under=listed_under(variant),
    )


def _twins(variants: Sequence[Variant]) -> list[int]:
    """The numbers of those that others of their kernel and family share config and cost with."""
    keys = [
        json.dumps([each.kernel, each.target.family, each.config, each.cost], sort_keys=True, default=str)
        for each in variants
    ]
    counts = Counter(keys)
    return [at for at, key in enumerate(keys) if counts[key] > 1]


def _put(records: list[VariantRecord], at: int, record: VariantRecord) -> None:
    records[at] = record


def _by_target(counts: Counter[str]) -> list[str]:
    return [f"{target} {count}" for target, count in counts.items()]


if __name__ == "__main__":
    import held_variants  # compile processes import what they run by name

    held_variants.main()
