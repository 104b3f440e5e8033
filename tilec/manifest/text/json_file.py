"""Reads JSON files that people give: shapes, configurations of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tilec.errors import InputError, Place
from tilec.manifest.text.document import no_text, unreadable


def read_json(path: Path, remedy: str) -> Any:
    """What a file holds, which may begin with a byte order mark. ``remedy``: what to do where it is no JSON.
    Raises InputError there, and where it cannot be read or is no UTF-8."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise no_text(path, error) from error
    except json.JSONDecodeError as error:
        raise _not_json(path, error.lineno, error.msg, remedy) from error
    except RecursionError as error:
        raise _not_json(path, None, "it is nested too deeply", remedy) from error


def _not_json(path: Path, line: int | None, why: str, remedy: str) -> InputError:
    return InputError(f"{path} is not valid JSON", place=Place(str(path), line), why=why, remedy=remedy)
