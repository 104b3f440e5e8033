"""The configuration file of a transformer (``config.json`` beside its weights) as sizes by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilec.errors import InputError, Place
from tilec.manifest.document import unreadable
from tilec.manifest.layers import KINDS
from tilec.manifest.problems import suggestion

_REQUIRED = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "max_position_embeddings",
    "vocab_size",
)
_LARGEST = 2**31


@dataclass(frozen=True)
class ModelConfig:
    """``kind``: the model's type, one of `KINDS`; ``dtype``: of its weights, as tilec names it; ``sizes``:
    every integer of the file by its key (true and false count as 1 and 0); ``head_dim`` and
    ``num_key_value_heads`` are there too where the file leaves them out."""

    path: Path
    kind: str
    dtype: str
    sizes: Mapping[str, int]


def read_model_config(path: Path) -> ModelConfig:
    """Raises InputError for a file that is none, or one of a kind that is not known."""
    data = _read(path)
    kind = data.get("model_type")
    if kind not in KINDS:
        known = suggestion(str(kind), KINDS)
        raise _error(path, "model_type", f'a model of the type "{kind}" is not known', known)
    sizes = {key: int(value) for key, value in data.items() if isinstance(value, int)}
    for key in _REQUIRED:
        if not 0 < sizes.get(key, 0) < _LARGEST:
            found = f"is {data[key]!r}" if key in data else "is missing"
            raise _error(path, key, f'the key "{key}" {found}', "it must be a positive integer")
    return ModelConfig(path, str(kind), _dtype(path, data), {**sizes, **_derived(path, sizes)})


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    except (json.JSONDecodeError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(f"{path} is not valid JSON", place=Place(str(path), line), why=str(error)) from error
    if not isinstance(data, dict) or "model_type" not in data:
        raise _error(
            path, "model_type", f"{path} is no model's configuration", "name the config.json of a model"
        )
    return data


def _derived(path: Path, sizes: Mapping[str, int]) -> dict[str, int]:
    """What files may leave out."""
    heads = sizes["num_attention_heads"]
    shared = sizes.get("num_key_value_heads") or heads
    if heads % shared:
        text = f"{heads} heads cannot share {shared} heads of keys evenly"
        raise _error(path, "num_key_value_heads", text, "the first must be a multiple of the second")
    return {
        "head_dim": sizes.get("head_dim") or sizes["hidden_size"] // heads,
        "num_key_value_heads": shared,
    }


def _dtype(path: Path, data: Mapping[str, Any]) -> str:
    """``torch_dtype`` or, in newer files, ``dtype``; float32 where there is neither."""
    from tilec.dtypes import DTYPES

    key = "torch_dtype" if "torch_dtype" in data else "dtype"
    text = data.get(key) or "float32"
    name = str(text).rpartition(".")[2]
    if name not in DTYPES:
        raise _error(path, key, f'the element type "{text}" is not known', suggestion(name, DTYPES))
    return name


def _error(path: Path, key: str, what: str, remedy: str) -> InputError:
    return InputError(what, place=Place(str(path), key=key), remedy=remedy)
