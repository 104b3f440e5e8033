"""What the pages need to be a site: a hook of MkDocs.

README.md, CHANGELOG.md and CONTRIBUTING.md become pages beside those of docs/, and the pages that a text
names by their path in the repository (`docs/abi.md`) become links. A link to any other file outside of docs/
is left as it is, which `mkdocs build --strict` refuses.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
#: Files of the repository to the pages that they are on the site.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_TARGET = re.compile(r"(?<=\]\()([\w./-]+)")
_NAMED = re.compile(r"(?<!\[)`((?:docs/)?[\w/-]+\.md)`")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that lie outside of docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Turns paths of the repository into links between pages, outside of code blocks."""
    uri = page.file.src_uri
    home = next((source for source, made in PAGES.items() if made == uri), f"docs/{uri}")
    parts = _FENCED.split(markdown)
    parts[::2] = (_linked(text, home, uri, files) for text in parts[::2])
    return "".join(parts)


def _linked(text: str, home: str, uri: str, files: Files) -> str:
    def there(path: str) -> str | None:
        """The way to a file of the repository from this page, where the site has it."""
        target = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
        if files.get_file_from_path(target) is None:
            return None
        return posixpath.relpath(target, posixpath.dirname(uri) or ".")

    def moved(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), found[1]))
        return there(path) or found[1]

    def named(found: re.Match[str]) -> str:
        target = there(found[1])
        return f"[{found[0]}]({target})" if target else found[0]

    return _NAMED.sub(named, _TARGET.sub(moved, text))
