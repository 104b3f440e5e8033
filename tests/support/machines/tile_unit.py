"""The matrix unit of x86 for machines without one: its instructions as calls of plain C (tile_unit.c)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from unittest.mock import patch

from tilec.backends.cpu.codegen.foreign import llvm_text
from tilec.backends.cpu.products.forms.tile_forms import TILE_FORMS
from tilec.targets import Target, parse_target, runs_here

_SOURCE = Path(__file__).with_suffix(".c")
_AVX2 = parse_target("x86-64-v3")
_DECLARATION = re.compile(r"^declare void @llvm\.x86\..*$", re.MULTILINE)


@lru_cache(maxsize=1)
def _emulator() -> str:
    return llvm_text(_SOURCE.read_text(), _AVX2)


@contextmanager
def emulated_tiles() -> Iterator[None]:
    """Within the context products on the matrix unit are compiled for the emulated one."""
    forms = {name: replace(form, source=_with_calls(form.source)) for name, form in TILE_FORMS.items()}
    with patch.dict(TILE_FORMS, forms):
        yield


def _with_calls(text: str) -> str:
    """Its unit's state is static: a kernel of several products has one for each."""
    return _emulator() + _DECLARATION.sub("", text).replace("@llvm.x86.", "@emulated_")


def as_here(target: Target) -> Target:
    """``target``, with what is told of the machine cut to what this one has beside the unit: all else of the
    target, its level alone, or AVX2."""
    if runs_here(target):
        return target
    level, *features = target.name.split("+")
    others = "+".join([level, *(name for name in features if name != "amx")])
    here = next(filter(runs_here, map(parse_target, (others, level))), _AVX2)
    kept = (*here.features, "amx")
    return replace(
        target,
        features=kept,
        vector_bits=here.vector_bits,
        vector_registers=here.vector_registers,
        mcpu=here.mcpu,
        mattr=here.mattr,
        bits=here.bits,
    )
