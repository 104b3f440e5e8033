"""`tilec explain --html`: the page tells of lines, pipelines and layouts what lowering decided."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tilec.cli.main import run

MANIFEST = """
edition = 1
[package]
name = "shown"
[targets]
cpu = ["x86-64-v3"]
cuda = ["sm_90a"]
host = "x86_64-linux-gnu.2.17"
[[kernel]]
name = "product"
source = "product.py:product"
dims = { M = "dynamic", N = "%8", K = "%8" }
fallback = "none"
"""
KERNEL = '''
import tilec
import tilec.language as T


def helper():
    return 1 < 2  # no statement of the kernel is from here


@T.macro
def loaded(A, As, by, ko):
    T.copy(A[by * 128, ko * 64], As)


@tilec.jit(out_idx=[-1])
def product(M, N, K, dtype="float16"):
    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        """C = A @ B & more <b>."""
        with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=128) as (bx, by):
            As = T.alloc_shared((128, 64), dtype)
            Bs = T.alloc_shared((64, 128), dtype)
            acc = T.alloc_fragment((128, 128), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, 64), num_stages=3):
                loaded(A, As, by, ko)
                T.copy(B[ko * 64, bx * 128], Bs)
                T.gemm(As, Bs, acc)
            for i, j in T.Parallel(128, 128):
                acc[i, j] = T.max(acc[i, j], 0.0)
            T.copy(acc, C[by * 128, bx * 128])

    return main
'''


class Page(HTMLParser):
    """The rows of code by their places, and the cells of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[tuple[str, str]] = []
        self.tables: list[list[list[str]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in ("meta", "link"):
            self.open.append(tag)
        if values.get("class") == "row":
            self.rows.append((values["data-place"] or "", ""))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "code" and self.rows:
            self.rows[-1] = (self.rows[-1][0], data)
        if self.open and self.open[-1] in ("th", "td"):
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shown")
    (made / "product.py").write_text(KERNEL)
    (made / "shown.toml").write_text(MANIFEST)
    return made


@pytest.fixture(scope="module")
def page(folder: Path) -> Callable[[str], str]:
    """The text of the page for a target."""

    @cache
    def text(target: str) -> str:
        where = ["--target", target, "--html", str(folder / "page.html")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TILEC_CACHE_DIR", str(folder / "cache"))
            assert run(["explain", str(folder / "shown.toml"), "product", *where]) == 0
        return (folder / "page.html").read_text()

    return text


def line_of(text: str) -> int:
    return KERNEL.splitlines().index(next(line for line in KERNEL.splitlines() if text in line)) + 1


def test_source_and_tile_ir_know_each_other(page: Callable[[str], str], folder: Path) -> None:
    text = page("sm_90a")
    rows = Page(text).rows
    at = {place for place, row in rows if row.strip().startswith(("copy(A[", "tma_load("))}
    assert f"product.py:{line_of('T.copy(A[')}" in at
    assert f"product.py:{line_of('T.copy(B[')}" in at
    assert any(row.strip() == "T.gemm(As, Bs, acc)" for _, row in rows)
    assert not any("no statement of the kernel" in row for _, row in rows)
    assert "C = A @ B &amp; more &lt;b&gt;." in text
    assert re.search(r"As, Bs -&gt; acc: wgmma", text)
    assert str(folder) not in text


def test_copies_run_ahead_in_the_timeline(page: Callable[[str], str]) -> None:
    tables = Page(page("sm_90a")).tables
    (rows,) = (rows for rows in tables if len(rows[0]) > 2)
    assert [(row[0].partition(":")[0], row[1:6]) for row in rows] == [
        ("A -> As", ["0", "1", "2", "3", "4"]),
        ("B -> Bs", ["0", "1", "2", "3", "4"]),
        ("As, Bs -> acc", ["", "", "", "", "0"]),  # of the 3 stages that were asked for 5 have room
    ]


def tiles_of(text: str) -> dict[str, Any]:
    (found,) = re.findall(r"^const tiles = (.*);$", text, re.MULTILINE)
    return {tile["name"]: tile for tile in json.loads(found)}


def test_layouts_are_those_of_the_code(page: Callable[[str], str]) -> None:
    tiles = tiles_of(page("sm_90a"))
    shared = tiles["As"]
    assert (shared["in_memory"], shared["shape"]) == (True, [5, 128, 64])
    cells = [cell for row in shared["rows"] for cell in row]
    assert len(set(cells)) == len(cells) == 64 * 64
    first_chunks = {row[0] // 4 % 32 for row in shared["rows"][:8]}
    assert len(first_chunks) == 8  # the swizzle spreads a column over banks


def test_a_cpu_has_no_pipeline_and_says_so(page: Callable[[str], str]) -> None:
    text = page("x86-64-v3")
    assert "No statement of a loop runs ahead of the others." in text
    assert "As_rows, Bs_panels -&gt; acc: product by 6 x 16 blocks of float32" in text


def test_a_fragment_names_threads(tilec: Callable, tmp_path: Path) -> None:
    kernel = KERNEL.replace("T.gemm(As, Bs, acc)", "pass").replace(
        "T.max(acc[i, j], 0.0)", "acc[i, j] + T.Cast('float32', As[i, j % 64])"
    )
    (tmp_path / "product.py").write_text(kernel)
    (tmp_path / "shown.toml").write_text(MANIFEST)
    outcome = tilec("explain", "shown.toml", "product", "--target", "sm_90a", "--html", "page.html")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("page.html: product on ")
    acc = tiles_of((tmp_path / "page.html").read_text())["acc"]
    assert not acc["in_memory"]
    cells = [tuple(cell) for row in acc["rows"] for cell in row]
    assert len(set(cells)) == len(cells)
    assert {lane for lane, _, _ in cells} <= set(range(32))


def test_a_page_that_cannot_be_written_is_an_error(tilec: Callable, tmp_path: Path) -> None:
    (tmp_path / "product.py").write_text(KERNEL)
    (tmp_path / "shown.toml").write_text(MANIFEST)
    outcome = tilec("explain", "shown.toml", "product", "--html", "none/page.html")
    assert outcome.code == 2
    assert "error: the file cannot be written\n  where: none/page.html\n" in outcome.err
