"""The library that the dispatch benchmark calls: kernels with many variants and one empty body."""

from __future__ import annotations

import hashlib
import itertools
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilec.codegen.image import Image, LaunchCode
from tilec.codegen.toolchain import find_toolchain
from tilec.ir.guards import Guard
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, ParamRecord, VariantRecord
from tilec.targets import native_host, native_target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "bench"
_SCHEDULES = Path(__file__).parents[2] / "manifests" / "llm.schedules.toml"
CLASSES = ("exact", "guarded", "fallback", "chosen", "growing", "again", "turns", "weights", "miss")
Guards = tuple[tuple[str, Guard], ...]
Shape = tuple[int, int, int]

_ENTRY = """
#include <stdint.h>
void bench_entry(float* a, int64_t m, int64_t n, int64_t k, void* scratch, int64_t begin, int64_t end) {}
"""
#: Which dims each of the four sets pins, and what its variants demand beside that.
_SETS = (("MNK", ""), ("NK", "M"), ("MK", "N"), ("K", "M"))
_MOST = 4096
_FEW = 8
_WEIGHTS: Guards = (("N", Guard(eq=_MOST)), ("K", Guard(eq=_MOST)))


@dataclass(frozen=True)
class Workload:
    """A library, and random shapes for each class: served by a variant that pins all dims (exact), by one of
    three further sets of pinned dims with a guard beside (guarded), by the variant without guards (fallback),
    by one of several schedules in its place (chosen), the same for one dim that grows by 1 from call to call
    (growing), for few shapes in any order (again) and for two in turns (turns), for any number of rows of a
    kernel whose other dims are pinned (weights) or, in a kernel that has none of these, by none (miss)."""

    spec: PackageSpec
    shapes: dict[str, list[Shape]]


def workload(variants: int, shapes: int, seed: int = 0) -> Workload:
    """``variants`` is what the kernel "open" has; "closed" lacks its fallback, and "priced" has the schedules
    of the shipped 16-bit products in its place; "weights" has these alone, for one N and K."""
    rng = random.Random(seed)
    guards = _guards(variants - 1, rng)
    image = _image()
    priced = [*((each, "") for each in guards), *(((), cost) for cost in _costs())]
    kernels = (
        _kernel("closed", [(each, "") for each in guards], image),
        _kernel("open", [*((each, "") for each in guards), ((), "")], image),
        _kernel("priced", priced, image),
        _kernel("weights", [(_WEIGHTS, cost) for cost in _costs()], image),
    )
    pinned = [each for each in guards if _pins(each) == 3]
    others = [each for each in guards if _pins(each) < 3]
    missed = [_missed(guards, rng) for _ in range(shapes)]
    drawn = {
        "exact": [_admitted(rng.choice(pinned), rng) for _ in range(shapes)],
        "guarded": [_guarded(others, pinned, rng) for _ in range(shapes)],
        "fallback": missed,
        "chosen": missed,
        "growing": _growing(guards, rng, shapes),
        "again": rng.choices(missed[:_FEW], k=shapes),
        "turns": [missed[each % 2] for each in range(shapes)],
        "weights": [_admitted(_WEIGHTS, rng) for _ in range(shapes)],
        "miss": missed,
    }
    return Workload(PackageSpec(NAME, "0", native_host(), kernels), drawn)


def _guards(count: int, rng: random.Random) -> list[Guards]:
    """The guards of ``count`` variants; half of them pin all dims, the others are spread over three sets."""
    wanted = [count - 3 * (count // 6), *[count // 6] * 3]
    found = [list(itertools.islice(_draw(*each, rng), n)) for each, n in zip(_SETS, wanted, strict=True)]
    return list(itertools.chain.from_iterable(found))


def _draw(pins: str, guarded: str, rng: random.Random) -> Iterator[Guards]:
    """Different variants of one set, without end."""
    seen = set()
    while True:
        chosen = {name: Guard(eq=16 * rng.randint(1, _MOST // 16)) for name in pins}
        if guarded:
            chosen[guarded] = rng.choice((Guard(div=8), Guard(min=1, max=512)))
        guards = tuple((name, chosen[name]) for name in "MNK" if name in chosen)
        if guards not in seen:
            seen.add(guards)
            yield guards


def _pins(guards: Guards) -> int:
    return sum(guard.eq is not None for _, guard in guards)


def _admits(guards: Guards, shape: Shape) -> bool:
    values = dict(zip("MNK", shape, strict=True))
    return all(guard.admits(values[name]) for name, guard in guards)


def _admitted(guards: Guards, rng: random.Random) -> Shape:
    """A random shape that ``guards`` admit."""
    wanted = dict(guards)
    m, n, k = (_value(wanted.get(name, Guard()), rng) for name in "MNK")
    return m, n, k


def _value(guard: Guard, rng: random.Random) -> int:
    if guard.eq is not None:
        return guard.eq
    return guard.div * rng.randint(1, (guard.max or _MOST) // guard.div)


def _guarded(others: list[Guards], pinned: list[Guards], rng: random.Random) -> Shape:
    exact = {tuple(guard.eq for _, guard in each) for each in pinned}
    while True:
        shape = _admitted(rng.choice(others), rng)
        if shape not in exact:
            return shape


def _missed(guards: list[Guards], rng: random.Random) -> Shape:
    """A shape of the sizes of the others that no variant admits."""
    while True:
        shape = (rng.randint(1, _MOST), 16 * rng.randint(1, _MOST // 16), 8 * rng.randint(1, _MOST // 8))
        if not any(_admits(each, shape) for each in guards):
            return shape


def _growing(guards: list[Guards], rng: random.Random, count: int) -> list[Shape]:
    """Shapes that no variant admits, of more and more rows."""
    while True:
        _, n, k = _missed(guards, rng)
        shapes = [(m, n, k) for m in range(1, count + 1)]
        if not any(_admits(each, shape) for shape in shapes for each in guards):
            return shapes


def _image() -> Image:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "entry.c")
        source.write_text(_ENTRY)
        made = find_toolchain().compile(source, Path(folder))
        code = made.read_bytes()
    launch = LaunchCode("bench_entry", ("M",), (1, 1, 1))
    return Image(native_target().level, code, hashlib.sha256(code).hexdigest(), (launch,))


def _costs() -> list[str]:
    """Of the schedules that the shipped 16-bit products have for many rows."""
    with _SCHEDULES.open("rb") as file:
        return [each["cost"] for each in tomllib.load(file)["matmul_16"]]


def _kernel(name: str, variants: list[tuple[Guards, str]], image: Image) -> KernelRecord:
    params = (ParamRecord("a", "tensor", "float32", "inout", extents=("4",)),)
    records = tuple(VariantRecord(image.target, guards, image, cost=cost) for guards, cost in variants)
    return KernelRecord(name, params, tuple(map(DimRecord, "MNK")), records)
