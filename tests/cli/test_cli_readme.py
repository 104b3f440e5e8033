"""The README's kernel, manifest and C call are what they claim to be."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.manifest import load_manifest
from tilec.targets import native_host

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The first code block of a language."""
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.mark.skipif(native_host().arch != "x86_64", reason="the README's manifest is for x86-64")
def test_the_screen_of_the_readme_works(tilec: Callable, tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "gemm.py").write_text(block("python"))
    (tmp_path / "engine.toml").write_text(block("toml"))
    outcome = tilec("build", "engine.toml", "--target", "x86-64-v3", "-j", "1")
    assert outcome.code == 0, outcome.err
    header = (tmp_path / "dist" / "engine" / "include" / "engine.h").read_text()
    declared = re.search(r"tilec_status engine_matmul\((.*?)\);", header, re.DOTALL)
    called = re.search(r"engine_matmul\((.*?)\);", block("c"))
    assert declared is not None
    assert called is not None
    names = [part.split()[-1].lstrip("*") for part in declared.group(1).split(",")]
    assert names[1:] == ["A", "B", "C", "M", "K", "N"]
    assert len(names) == len(called.group(1).split(","))
    run_as_written(tmp_path)


def run_as_written(folder: Path) -> None:
    """The C lines of the README inside of a main, by the command of its table, without any environment."""
    compile_line = re.search(r"^\| C \| .*`(cc main\.c [^`]*)`", README, re.MULTILINE)
    assert compile_line is not None
    if shutil.which("cc") is None:
        pytest.skip("no cc, which the README's line names")
    include, _, *calls = block("c").splitlines()
    operands = "static float A[4096], B[4096 * 4096], C[4096]; const int64_t M = 1;"
    body = "\n".join([operands, *calls, "return status;"])
    main = f"#include <stdio.h>\n{include}\nint main(void) {{\n{body}\n}}\n"
    (folder / "main.c").write_text(main)
    subprocess.run(["sh", "-c", compile_line.group(1)], cwd=folder, check=True)
    subprocess.run([folder / "a.out"], cwd="/", env={}, check=True)


def test_the_readme_counts_what_the_shipped_manifest_holds() -> None:
    plan = load_manifest(Path(__file__).parents[2] / "manifests" / "llm.toml")
    assert f"{len(plan.kernels)} kernels, {len(plan.variants)} variants" in " ".join(README.split())


def test_the_commands_of_the_readme_are_those_of_the_program(tilec: Callable) -> None:
    listed = re.findall(r"^\| `tilec (\w+)", README, re.MULTILINE)
    shown = re.findall(r"^  (\w+)  ", tilec("--help").out.partition("Commands:")[2], re.MULTILINE)
    assert listed == shown


ROOT = Path(__file__).parents[2]
FIGURE = re.compile(r"(?<![\w.])\d+(?:\.\d+| %)(?![\w.])")


#: Pages with tables of figures that say where each is from -> the text in front of and behind these tables.
SUMMARIES = {
    "README.md": ("## How fast", "## Limits"),
    "docs/performance.md": ("# Performance", "| page |"),
}
SECTION = re.compile(r"\(([\w/-]*(?:\.md)?)#([\w-]+)\)")


def measured_rows() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Rows of summaries that have figures: the page that each is on, and the sections that it links."""
    found = []
    for page, (begin, end) in SUMMARIES.items():
        tables = (ROOT / page).read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
        rows = [line for line in tables.splitlines() if line.startswith("| ") and FIGURE.search(line)]
        found += [(page, row, SECTION.findall(row)) for row in rows]
    return found


def section(page: Path, slug: str) -> str:
    """The text below a heading, up to the next one of its level."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^(#+) (.*)$", text, re.MULTILINE):
        if re.sub(r"[^\w -]", "", found.group(2).lower()).replace(" ", "-") == slug:
            rest = text[found.end() :]
            return re.split(rf"^#{{1,{len(found.group(1))}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    raise AssertionError(f"{page} has no section #{slug}")


def test_there_are_measured_rows() -> None:
    assert {page for page, _, _ in measured_rows()} == {*SUMMARIES}
    assert len(measured_rows()) >= 30


@pytest.mark.parametrize(("page", "row", "links"), measured_rows())
def test_every_figure_stands_where_its_row_links(page: str, row: str, links: list[tuple[str, str]]) -> None:
    assert links, f"no link to a page of measurements: {row}"
    here = ROOT / page
    texts = [section(here.parent / other if other else here, slug) for other, slug in links]
    known = {figure for text in texts for figure in FIGURE.findall(text)}
    missing = [figure for figure in FIGURE.findall(row) if figure not in known]
    assert not missing, f"{links} have no {', '.join(missing)}: {row}"
