"""Runs every variant of a library at the edges of its guards and compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from tilec.inspect import LibraryInfo, read_library
from tilec.loader import Kernel, LaunchError, load
from tilec.manifest import Plan
from tilec.targets import parse_target, runs_here
from tilec.verify.arguments import with_strides
from tilec.verify.oracle import Author, author_of, expected, make_arguments, mismatch
from tilec.verify.shapes import edge_shapes, guard_of


@dataclass(frozen=True)
class Outcome:
    """One variant. ``shapes`` were run; ``error`` is the largest absolute one; ``problem`` is empty when all
    agreed; ``skipped`` says why nothing was run."""

    kernel: str
    variant: int
    target: str
    guards: str
    oracle: str
    shapes: int = 0
    error: float = 0.0
    problem: str = ""
    skipped: str = ""


def verify_library(
    path: Path,
    *,
    plan: Plan | None = None,
    kernels: Sequence[str] = (),
    seed: int = 0,
    progress: Callable[[Outcome], None] | None = None,
) -> tuple[Outcome, ...]:
    """Checks the variants of the kernels that match one of the globs (all by default).

    With ``plan``, the manifest's references, inputs and tolerances count; else the interpreter runs the tile
    IR that the library carries. Variants that this machine cannot run are skipped. Raises LibraryError for a
    file that is no library.
    """
    info = read_library(path)
    outcomes = []
    for outcome in _outcomes(info, plan, kernels, seed):
        outcomes.append(outcome)
        if progress is not None:
            progress(outcome)
    return tuple(outcomes)


def _outcomes(info: LibraryInfo, plan: Plan | None, globs: Sequence[str], seed: int) -> Iterator[Outcome]:
    library = load(info.path)
    texts = info.ir_texts()
    plans = {kernel.name: kernel for kernel in plan.kernels} if plan else {}
    for kernel in info.metadata["kernels"]:
        if globs and not any(fnmatchcase(kernel["name"], glob) for glob in globs):
            continue
        author = author_of(plans.get(kernel["name"]))
        for variant in kernel["variants"]:
            rng = np.random.default_rng([seed, variant["id"]])
            callee = library.kernels[kernel["name"]]
            yield _verify_variant(callee, kernel, variant, author, texts[variant["id"]], rng)


def _verify_variant(
    callee: Kernel,
    kernel: dict[str, Any],
    variant: dict[str, Any],
    author: Author,
    ir_text: str,
    rng: np.random.Generator,
) -> Outcome:
    guards = {dim["name"]: guard_of(variant["guards"].get(dim["name"])) for dim in kernel["dims"]}
    text = " ".join(f"{name}={guard}" for name, guard in guards.items())
    oracle = "reference" if author.reference is not None else "interpreter"
    head = (kernel["name"], variant["id"], variant["target"], text, oracle)
    if not runs_here(parse_target(variant["target"])):
        return Outcome(*head, skipped=f"this machine does not run {variant['target']}")
    worst, shapes = 0.0, edge_shapes(guards)
    for number, shape in enumerate(shapes, 1):
        dims = with_strides(kernel["params"], shape)
        if not all(guard.admits(dims[name]) for name, guard in guards.items()):
            continue
        error, problem = _run_once(callee, kernel, variant["id"], dims, author, ir_text, rng)
        worst = max(worst, error)
        if problem:
            return Outcome(*head, shapes=number, error=worst, problem=f"{_shape_text(dims)}: {problem}")
    return Outcome(*head, shapes=len(shapes), error=worst)


def _run_once(
    callee: Kernel,
    kernel: dict[str, Any],
    variant: int,
    dims: dict[str, int],
    author: Author,
    ir_text: str,
    rng: np.random.Generator,
) -> tuple[float, str]:
    """(largest error, what is wrong) of one call."""
    params = kernel["params"]
    values = make_arguments(params, dims, author, rng)
    want = expected(params, dims, values, author, ir_text)
    free: dict[str, Any] = {name: value for name, value in dims.items() if name not in values}
    try:
        callee(*(values[param["name"]] for param in params), variant=variant, **free)
    except LaunchError as refusal:
        return 0.0, str(refusal)
    worst = 0.0
    for name, right in want.items():
        error, share = mismatch(values[name], right, author)
        worst = max(worst, error)
        if share > author.max_mismatch:
            return worst, f"{name} differs in {share:.2%} of its elements, by up to {error:.3g}"
    return worst, ""


def _shape_text(dims: dict[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in dims.items())
