"""Code that is kept by its tile IR, and the lines that its roads name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tilec.build.reuse.kept_code import Origin, find_code, keep_code, origin_of
from tilec.cache import Store
from tilec.codegen.image import Image, LaunchCode
from tilec.ir.nodes import Kernel
from tilec.ir.roads import Road, decode, encode
from tilec.ir.stmt import Loc
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """kernel("k", doc="{doc}")
n = dim(int32)
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (n,), ("n",), access="out")
with launch((n + 31) // 32, threads=(32, 1, 1)) as (bx,):
    for i in parallel(32):
        y[bx * 32 + i] = x[bx * 32 + i] * {factor}
"""


def origin(doc: str = "", factor: str = "2.0", line: int = 7, target: str = "x86-64-v3") -> Origin:
    """That of a kernel whose launch stands in ``line``."""
    text = TEXT.format(doc=doc, factor=f"float32({factor})")
    kernel = parse_kernel(text)
    body = tuple(replace(stmt, loc=Loc("/author/k.py", line)) for stmt in kernel.body)
    located: Kernel = replace(kernel, body=body)
    return origin_of(located, text, parse_target(target))


def image(*lines: int) -> Image:
    roads = [Road("x -> y", "vectors", "vectors", "k.py", line) for line in lines]
    return Image(
        "x86-64-v3", b"code\n\0", "sha", (LaunchCode("k_0", ("1",), (32, 1, 1), roads=encode(roads)),)
    )


def test_words_and_lines_make_no_other_code() -> None:
    assert origin(doc="A word.", line=9).key == origin().key
    assert origin(line=9).lines == (("k.py", 9),)
    others = {origin(factor="3.0").key, origin(target="x86-64-v4").key, origin().key}
    assert len(others) == 3


def test_roads_move_with_their_statements(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert find_code(store, origin()) is None
    keep_code(store, origin(), image(7))
    assert find_code(store, origin()) == image(7)
    assert find_code(store, origin(line=9)) == image(9)


def test_roads_in_lines_of_no_statement_are_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep_code(store, origin(), image(7, 8))
    assert find_code(store, origin()) is None
    twice = replace(origin(), lines=(("k.py", 7), ("k.py", 7)))
    keep_code(store, twice, image(7))
    assert find_code(store, twice) is None


def test_lines_of_the_same_file_change_places(tmp_path: Path) -> None:
    store, at = Store(tmp_path), Origin("key", (("k.py", 7), ("k.py", 8)))
    keep_code(store, at, image(7, 8))
    found = find_code(store, replace(at, lines=(("k.py", 8), ("k.py", 12))))
    assert found is not None
    assert [road.line for road in decode(found.launches[0].roads)] == [8, 12]
