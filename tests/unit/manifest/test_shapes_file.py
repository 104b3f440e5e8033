"""The shapes file: what is wrong with one is said in the file's own words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilec.errors import InputError
from tilec.manifest.shapes import read_shapes


@pytest.mark.parametrize(
    ("content", "key", "why"),
    [
        ([], "", "the file must be an object, and [] is not"),
        ({}, "calls", 'the key "calls" is missing'),
        ({"calls": 3}, "calls", '"calls" must be a list, and 3 is not'),
        ({"calls": ["x"]}, "calls[0]", 'a call must be an object, and "x" is not'),
        ({"calls": [{"kernel": 1}]}, "calls[0].kernel", '"kernel" must be a string, and 1 is not'),
        ({"calls": [{"kernel": "a", "dim": {}}]}, "calls[0].dim", '"dim" is no key that is known here'),
        ({"calls": [{"kernel": "a", "dims": {"M": 0}}]}, "calls[0].dims.M", '"M" is 0; it must be 1 or more'),
        (
            {"calls": [{"kernel": "a", "dims": {"M": 1.5}}]},
            "calls[0].dims.M",
            '"M" must be an integer, and 1.5 is not',
        ),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(tmp_path: Path, content: object, key: str, why: str) -> None:
    file = tmp_path / "shapes.json"
    file.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        read_shapes(file, None)  # type: ignore[arg-type]
    assert (caught.value.place.key, caught.value.why) == (key, why)
