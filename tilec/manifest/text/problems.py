"""What pydantic found wrong, told in the words of the manifest: file, line, key, nearest name."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tilec.errors import ManifestError
from tilec.manifest.model import Kernel, Manifest
from tilec.manifest.text.document import Document, KeyPath, format_path
from tilec.spelling import nearest, suggestion

_TYPES = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a table",
    "model_type": "a table",
    "tuple_type": "a list",
}


def manifest_error(document: Document, error: ValidationError) -> ManifestError:
    """The first problem of the file as an error; further ones are named in its ``why``."""
    ranked = sorted(error.errors(), key=lambda one: _rank(document, one))
    first = _describe(document, ranked[0])
    more = _more(ranked)
    if more:
        first.why = f"{first.why}; {more}" if first.why else more
    return first


def _more(ranked: Sequence[ErrorDetails]) -> str:
    """The keys of all problems but the first one's, by what is the matter with them."""
    told: set[str] = {format_path(_key_path(ranked[0]))}
    found: dict[str, list[str]] = {"wrong": [], "missing": []}
    for one in ranked[1:]:
        name = format_path(_key_path(one))
        if name not in told:
            found["missing" if one["type"] == "missing" else "wrong"].append(name)
        told.add(name)
    return "; ".join(_counted(names, what) for what, names in found.items() if names)


def _counted(names: Sequence[str], what: str) -> str:
    are = "more key is" if len(names) == 1 else "more keys are"
    return f"{len(names)} {are} {what}: {', '.join(names)}"


def _rank(document: Document, one: ErrorDetails) -> tuple[bool, bool, int]:
    """Another edition first; a misspelt key before the key that it leaves missing; then by line."""
    path, missing = _key_path(one), one["type"] == "missing"
    return (missing or path != ("edition",), missing, document.place(*path).line or 0)


def _key_path(one: ErrorDetails) -> KeyPath:
    """The location without the tags that pydantic adds for members of a union."""
    path: KeyPath = ()
    for part in one["loc"]:
        if isinstance(part, str) and not _has_keys(path):
            break
        path += (part,)
    return path


def _has_keys(path: KeyPath) -> bool:
    """Whether names behind ``path`` are keys, as in a model or a free table, not pydantic's of a choice."""
    return not path or model_at(path) is not None or _is_free_table(path)


def _is_free_table(path: KeyPath) -> bool:
    owner = model_at(path[:-1])
    if owner is None or not isinstance(path[-1], str):
        return False
    field = _fields(owner).get(path[-1])
    return field is not None and typing.get_origin(field) is dict


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """Key in the file to annotation."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def model_at(path: KeyPath) -> type[BaseModel] | None:
    """The model of the table at a key path; None where the table is free or the key holds no table."""
    model: type[BaseModel] | None = Manifest
    for part in path:
        if isinstance(part, int):
            continue
        if model is None:
            return None
        model = _model_in(_fields(model).get(part))
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside ``Model``, ``tuple[Model, ...]``, ``Model | None`` or an ``Annotated`` of these."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    if typing.get_origin(annotation) is dict:
        return None
    return next((model for inner in typing.get_args(annotation) if (model := _model_in(inner))), None)


def _describe(document: Document, one: ErrorDetails) -> ManifestError:
    path = _key_path(one)
    place = document.place(*path)
    name = str(path[-1]) if path else ""
    kind = one["type"]
    if kind == "extra_forbidden":
        model = model_at(path[:-1]) or Manifest
        known = _fields(model)
        lost = model is Kernel and nearest(name, known) is None
        why = "parameters of the kernel stand in dims, args or config" if lost else ""
        return ManifestError(f'unknown key "{name}"', place=place, why=why, remedy=suggestion(name, known))
    if kind == "missing":
        purpose = _fields_text(path).removesuffix(".")
        return ManifestError(
            f'the key "{name}" is missing', place=place, why=purpose, remedy=_addition(path, name)
        )
    if path == ("edition",):
        return ManifestError(
            f"unknown edition {one['input']!r}",
            place=place,
            why="this tilec reads edition 1",
            remedy="write edition = 1, or use the tilec that the manifest was written for",
        )
    return ManifestError(
        f'the value of "{name}" cannot be used', place=place, why=_reason(one), remedy=_remedy(path, one)
    )


def _fields_text(path: KeyPath) -> str:
    """The description of a field that is missing."""
    field = _field(path)
    return (field.description or "") if field is not None else ""


def _field(path: KeyPath) -> FieldInfo | None:
    """What the model knows of the key at a path."""
    model = model_at(path[:-1])
    if model is None:
        return None
    fields = (field for name, field in model.model_fields.items() if (field.alias or name) == path[-1])
    return next(fields, None)


def _reason(one: ErrorDetails) -> str:
    """Why a value was refused."""
    if one["type"] == "value_error":
        return str(one["ctx"]["error"])
    wanted = _TYPES.get(one["type"])
    if wanted:
        return f"it must be {wanted}, and {one['input']!r} is {toml_type(one['input'])}"
    return f"{one['msg']} (found {one['input']!r})"


def toml_type(value: object) -> str:
    """What the file calls a value: `an integer`."""
    names = {
        bool: "a boolean",
        int: "an integer",
        float: "a float",
        str: "a string",
        dict: "a table",
        list: "a list",
    }
    return names.get(type(value), f"a {type(value).__name__}")


def _addition(path: KeyPath, name: str) -> str:
    """What to write for a key that is missing."""
    field = _field(path)
    examples = field.examples if field is not None else None
    return f'add "{name}", for example {examples[0]}' if examples else f'add "{name}"'


def _remedy(path: KeyPath, one: ErrorDetails) -> str:
    """A right line for the key, or for the nearest table above it that has one."""
    if one["type"] == "tuple_type" and isinstance(one["input"], dict) and model_at(path) is not None:
        return f"write [[{'.'.join(part for part in path if isinstance(part, str))}]], once for each of them"
    for end in range(len(path), 0, -1):
        field = _field(path[:end])
        if field is not None and field.examples:
            return f"write for example {field.examples[0]}"
    return "correct the value"
