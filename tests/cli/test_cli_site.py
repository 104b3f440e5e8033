"""The site of the pages builds without a warning, and every link in it leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tilec.cli.reference import reference

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """What a page links and what may be linked in it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects targets and ids."""
        values = dict(attrs)
        self.links += [values[name] or "" for name in ("href", "src") if name in values]
        self.anchors.add(values.get("id") or "")


def built(out: Path) -> dict[Path, Page]:
    """The pages of the site, made in an empty folder."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {file: Page(file) for file in out.rglob("*.html") if file.name != "404.html"}


def broken(file: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Links of a page to files or anchors of the site that are not there."""
    for link in pages[file].links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        if target.is_dir():
            target /= "index.html"
        known = pages[target].anchors if target in pages else {"", unquote(parts.fragment)}
        if not target.exists() or unquote(parts.fragment) not in known:
            yield f"{file.name}: {link}"


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    pages = built(tmp_path.resolve())
    assert {"manifest.html", "changelog.html"} <= set(pages[tmp_path.resolve() / "index.html"].links)
    assert [link for file in sorted(pages) for link in broken(file, pages)] == []


def test_the_page_of_commands_is_what_the_program_says() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == reference(), "run `make docs`"
