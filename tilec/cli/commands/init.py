"""`tilec init`: writes a working project."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from tilec.disk import require_writable
from tilec.errors import InputError, Place
from tilec.reserved import package_problem
from tilec.targets import native_host

_TEMPLATES = Path(__file__).parents[1] / "project"
_FILES = ("kernels/saxpy.py", "manifest.toml", "main.c", "README.md")
_LONGEST = 40
_TARGETS = {"x86_64": '"x86-64-v2", "x86-64-v3", "x86-64-v4"', "aarch64": '"aarch64"'}


@click.command("init")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=".")
def command(directory: Path) -> None:
    """Create a working project in DIRECTORY (default: here): kernel, manifest, C consumer.

    The library is named after the folder. Files that are there already are never overwritten.
    """
    name = _library_name(directory)
    texts = {directory / _place(file, name): _text(file, name) for file in _FILES}
    existing = next((path for path in texts if path.exists()), None)
    if existing is not None:
        raise InputError(
            f"{existing} exists",
            place=Place(str(existing)),
            remedy="choose another folder, or remove the file",
        )
    require_writable(directory)
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(f"wrote {path}")
    click.echo(f"next: cd {shlex.quote(str(directory))} && tilec build {name}.toml")


def _library_name(directory: Path) -> str:
    """The folder's name as a C identifier."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", directory.resolve().name)[:_LONGEST].strip("_").lower()
    return name if not package_problem(name) else f"lib_{name}" if name else "kernels"


def _place(file: str, name: str) -> str:
    return f"{name}.toml" if file == "manifest.toml" else file


def _text(file: str, name: str) -> str:
    text = (_TEMPLATES / file).read_text(encoding="utf-8")
    return text.replace("@NAME@", name).replace("@TARGETS@", _TARGETS[native_host().arch])
