"""The configuration file of a transformer (``config.json`` beside its weights) as sizes by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilec.errors import InputError, Place
from tilec.manifest.text.json_file import read_json
from tilec.manifest.transformers.families import ACTIVATIONS, KINDS
from tilec.manifest.transformers.layers import Sizes
from tilec.spelling import suggestion

_REQUIRED = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "max_position_embeddings",
    "vocab_size",
)
_LARGEST = 2**31
_REMEDY = "name the config.json of a model"


@dataclass(frozen=True)
class ModelConfig:
    """``kind``: the model's type, one of `KINDS`; ``dtype``: of its weights, as tilec names it; ``sizes``:
    every integer of the file by its key (true and false count as 1 and 0, a list as its length), and those
    that its kind says where the file leaves them out, such as ``head_dim`` and ``num_key_value_heads``."""

    path: Path
    kind: str
    dtype: str
    sizes: Mapping[str, int]


def read_model_config(path: Path) -> ModelConfig:
    """Raises InputError for a file that is none, or one of a kind that is not known."""
    data = _read(path)
    kind = str(data.get("model_type"))
    if kind not in KINDS:
        known = suggestion(kind, KINDS)
        raise _error(path, "model_type", f'a model of the type "{kind}" is not known', known)
    sizes = Sizes(_numbers(data), KINDS[kind].sizes)
    for key in _REQUIRED:
        if not 0 < _size(path, data, sizes, key) < _LARGEST:
            raise _error(path, key, f'the key "{key}" is {data.get(key)!r}', "it must be a positive integer")
    _check_heads(path, data, sizes)
    _check_activation(path, data)
    for key in KINDS[kind].sizes:
        _size(path, data, sizes, key)
    whole = {key: int(value) for key, value in sizes.items() if isinstance(value, int)}
    return ModelConfig(path, kind, _dtype(path, data), whole)


def _numbers(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says in numbers, a newer one partly in ``rope_parameters``; ``layer_types`` says how many
    blocks see a window alone."""
    rotary = data.get("rope_parameters")
    said = {**rotary, **data} if isinstance(rotary, dict) else data
    found = {key: value for key, value in said.items() if isinstance(value, (int, float))}
    lists = {key: value for key, value in data.items() if isinstance(value, list)}
    found |= {key: len(value) for key, value in lists.items()}
    if "layer_types" in lists:
        found["sliding_layers"] = lists["layer_types"].count("sliding_attention")
    return found


def _size(path: Path, data: Mapping[str, Any], sizes: Sizes, key: str) -> int:
    """A size that the file gives, or that its kind makes of others."""
    try:
        return int(sizes[key])
    except KeyError as error:
        name = str(error.args[0])
        found = f"is {data[name]!r}" if name in data else "is missing"
        raise _error(path, name, f'the key "{name}" {found}', "it must be a positive integer") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        what = f'the size "{key}" cannot be computed: {error}'
        raise _error(path, key, what, "correct the keys that it is made of") from error


def _read(path: Path) -> dict[str, Any]:
    data = read_json(path, _REMEDY)
    if not isinstance(data, dict) or "model_type" not in data:
        raise _error(path, "model_type", f"{path} is no model's configuration", _REMEDY)
    inner = data.get("text_config")
    return {**data, **inner} if isinstance(inner, dict) else data


def _check_heads(path: Path, data: Mapping[str, Any], sizes: Sizes) -> None:
    names = ("num_attention_heads", "num_key_value_heads")
    heads, shared = (_size(path, data, sizes, name) for name in names)
    if shared < 1 or heads % shared:
        text = f"{heads} heads cannot share {shared} heads of keys evenly"
        raise _error(path, "num_key_value_heads", text, "the first must be a multiple of the second")


def _check_activation(path: Path, data: Mapping[str, Any]) -> None:
    """A layer computes one activation, whatever the file says."""
    known = {act for name, act in ACTIVATIONS.items() if name in KINDS[data["model_type"]].names}
    found = data.get("hidden_act") or next(iter(known))
    if found not in known:
        what = f'a {data["model_type"]} model with the activation "{found}" is not known'
        raise _error(path, "hidden_act", what, suggestion(str(found), sorted(known)))


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
