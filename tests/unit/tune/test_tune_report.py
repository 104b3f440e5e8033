"""The page: everything in it, nothing from elsewhere, and it opens in a browser."""

from __future__ import annotations

import csv
import io
import re
import shutil
import struct
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from tilec.cli.tuning.live import result_text
from tilec.tune.outcome.results import About, Final, PointFacts, Result, Row
from tilec.tune.report import report, table, write_report

H200 = {
    "name": "NVIDIA H200", "driver": "CUDA 13.0", "clock_khz": 1980000, "multiprocessors": 132,
    "memory_khz": 3201000, "bus_bits": 6016, "major": 9, "minor": 0,
}  # fmt: skip


def result() -> Result:
    configs = tuple(
        {"bM": bM, "bN": bN, "swap": swap}
        for bM in (64, 128)
        for bN in (64, 128, 256)
        for swap in (False, True)
    )
    point = PointFacts("M=4096 N=4096 K=4096", 1, 2 * 4096.0**3, "float16", 3 * 2 * 4096.0**2)
    rows = [Row(n, "ok", (200.0 + 7 * n % 50,), "168 registers, 0 bytes spilled", n * 0.2) for n in range(10)]
    rows.append(Row(10, "wrong result", detail="C: 3 of 2048 <sampled> elements are wrong"))
    known = About(
        "matmul sm_90a M=dynamic", "matmul", "sm_90a", {"M": "dynamic", "N": "%8"}, (point,), configs, "00",
        pruned=((11, "shared memory", "the shared tiles take 300000 bytes, a block of sm_90a has 232448"),),
        predicted={n: 190.0 + n for n in range(11)}, size=12,
    )  # fmt: skip
    finals = {0: Final(201.0, 0.004, (201.0,)), 7: Final(190.0, 0.003, (190.0,))}
    return Result(known, tuple(rows), finals, H200, winner=7)


def test_the_page_needs_nothing_else_and_is_whole() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    page = report([result()], "Tuning of llm.toml")
    sources = re.findall(r'(?:src|href)="([^"]{1,30})', page)
    assert sources
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in sources)
    assert "http" not in re.sub(r"base64,[^\"]*", "", page)
    assert "1.058" in page  # 201 / 190
    assert "the shared tiles take 300000 bytes" in page
    assert "&lt;sampled&gt;" in page
    assert page.count("<option>") == 3  # bM x bN, bM x swap, bN x swap
    assert report([result()], "Tuning of llm.toml") == page


def test_a_line_says_whether_time_was_up_or_nothing_works() -> None:
    none = replace(result(), winner=None)
    assert result_text(none).endswith(": no config works; 11 configs (1 wrong result)")
    assert result_text(replace(none, rows=())).endswith(": time was up before any config")
    refused = tuple((number, "config", "no parameter blok") for number in range(len(none.about.configs)))
    left_out = replace(none, rows=(), about=replace(none.about, pruned=refused))
    assert ": nothing is left to try: " in result_text(left_out)


def test_the_table_has_every_config() -> None:
    rows = list(csv.DictReader(io.StringIO(table([result()]))))
    assert len(rows) == 12
    assert [row["outcome"] for row in rows[-2:]] == ["wrong result", "left out: shared memory"]
    assert [row["number"] for row in rows if row["winner"] == "True"] == ["7"]


def test_the_page_opens_in_a_browser(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("chromium is not installed")
    write_report(tmp_path / "report.html", [result()], "Tuning of llm.toml")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=900,1800"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={tmp_path / 'page.png'}"]
    script = "--virtual-time-budget=2000"
    page = (tmp_path / "report.html").as_uri()
    subprocess.run([browser, *options, script, page], check=True, capture_output=True, timeout=120)
    dumped = subprocess.run(
        [browser, *options[:3], options[-2], "--dump-dom", page],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    assert "Tuning of llm.toml" in dumped
    width, height, colours = _picture(tmp_path / "page.png")
    assert (width, height) == (900, 1800)
    assert colours > 50  # text, bars and a heat map, not an empty page


def _picture(path: Path) -> tuple[int, int, int]:
    """Width, height and how many kinds of bytes a PNG file has."""
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    at, body = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body += data[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    return width, height, len(set(zlib.decompress(body)))
