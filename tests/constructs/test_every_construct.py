"""What docs/porting.md says of every construct: a kernel with it is built for every kind of target."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from breadth import diagonal, parametrized
from example_modules import module_of

import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import UnsupportedError
from tilec.ir.guards import Guard
from tilec.language.frontend import catalogue
from tilec.language.frontend.elaborate import elaborate
from tilec.language.frontend.jitted import JitFunction
from tilec.language.values import scalars
from tilec.targets import native_target, parse_target

#: [names] and behind it the statements of a block, or a whole function.
_KERNEL = re.compile(r"^\[([\w\s]+)\]\n(.*?)(?=^\[|\Z)", re.M | re.S)
#: What there is of a kernel with each name.
SNIPPETS = {
    name: re.sub(r"\bNAME\b|(?<=of_)NAME", name, text.strip())
    for names, text in _KERNEL.findall(Path(__file__).with_name("every_construct.txt").read_text())
    for name in names.split()
}
TARGETS = {"cpu": native_target(), "sm_80": parse_target("sm_80"), "sm_90a": parse_target("sm_90a")}

#: Promised, and refused so far.
OPEN: set[str] = set()
PAGE = Path(__file__).resolve().parents[2] / "docs" / "porting.md"
_HEAD = """import tilec
import tilec.language as T

PLUS_ONE = "static __inline__ float plus_one(const float* x) { return *x + 1.0f; }"
"""
_FRAME = """
@T.prim_func
def of_{name}(
    A: T.Tensor((128, 128), "float16"), F: T.Tensor((128, 128), "float32"), I: T.Tensor((128,), "int32"),
    O: T.Tensor((128, 128), "float32"), J: T.Tensor((128,), "int32"), U: T.Tensor((128,), "uint32"),
    B: T.Tensor((128,), "bool"),
):
    with T.Kernel(2, threads=128) as bx:
{body}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """The kernels of all snippets."""
    return Kernels(tmp_path_factory.mktemp("constructs"))


class Kernels:
    """The kernels by name: statements in one module, whole functions in one each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        texts = (
            _FRAME.format(name=name, body=textwrap.indent(body, " " * 8)) for name, body in SNIPPETS.items()
        )
        self._statements = self._module("statements", "\n".join(texts))

    def _module(self, name: str, text: str) -> ModuleType:
        file = self._folder / f"{name}.py"
        file.write_text(_HEAD + text)
        return module_of(file, "construct_kernels")

    def entry(self, name: str) -> Any:
        """The decorated function."""
        module = self._module(name, SNIPPETS[name]) if _is_whole(name) else self._statements
        return getattr(module, f"of_{name}")


def _is_whole(name: str) -> bool:
    return f"def of_{name}(" in SNIPPETS[name]


def outcome(kernels: Kernels, name: str, target: str) -> str:
    """What became of a kernel with the construct: "" or the refusal."""
    try:
        entry, dims = kernels.entry(name), {"N": Guard(eq=256)}
        if not isinstance(entry, JitFunction):
            dims = {}
        kernel = elaborate(entry, name="k", dims=dims, args={}, config={})
        to_tir(lower(kernel, TARGETS[target]), TARGETS[target])
    except UnsupportedError as error:
        return error.what
    return ""


def expected(name: str, target: str) -> str:
    """What the page says of it."""
    state = catalogue.state(name, "cpu" if target == "cpu" else "cuda")
    if state == "sm_90a":
        return "works" if target == "sm_90a" else "refused"
    return state.replace("ignored", "works")


def names() -> list[str]:
    """Of everything that was not promised to be refused."""
    return [name for name, cuda, _ in catalogue.promises() if cuda != "refused"]


def test_the_catalogue_lists_the_language():
    listed = [name for name, _, _ in catalogue.promises()]
    assert len(listed) == len(set(listed)), "a name stands in FAMILIES twice"
    offered = {name for name in dir(T) if name not in scalars.NAMES}
    assert not offered ^ set(listed), "in the language or in FAMILIES (frontend/constructs.py) alone"


def test_every_construct_has_a_kernel():
    assert not set(SNIPPETS) ^ set(names()), "every_construct.txt has a kernel of each construct"


@parametrized(
    ("name", "target"),
    [(name, target) for name in names() for target in TARGETS],
    fast=diagonal(names(), list(TARGETS)),
)
def test_a_kernel_with_it_meets_what_the_page_says(name: str, target: str, kernels: Kernels):
    refusal = outcome(kernels, name, target)
    assert ("refused" if refusal else "works") == expected(name, target), refusal


@pytest.mark.parametrize("name", [name for name, cuda, _ in catalogue.promises() if cuda == "refused"])
def test_what_is_refused_says_what_to_write(name: str):
    with pytest.raises(UnsupportedError) as caught:
        getattr(T, name)()
    assert name in caught.value.what
    assert caught.value.remedy


def test_what_was_promised_and_is_open():
    open_ones = {
        name
        for name, *promised in catalogue.promises()
        for kind, level in zip(("cuda", "cpu"), promised, strict=True)
        if level in ("must", "should") and catalogue.state(name, kind) == "refused"
    }
    assert open_ones == OPEN


def test_the_page_has_the_table_of_today():
    page = PAGE.read_text(encoding="utf-8")
    assert catalogue.update(page) == page, "make docs writes it"
