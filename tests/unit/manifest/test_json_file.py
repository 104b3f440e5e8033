"""JSON files of people: what is none is told with the line, and with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.errors import InputError
from tilec.manifest.text.json_file import read_json


def test_a_byte_order_mark_is_no_part_of_it(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n')
    assert read_json(file, "") == {"a": 1}


@pytest.mark.parametrize(
    ("content", "what", "why", "line", "remedy"),
    [
        (b'{\n"a": x}', "is not valid JSON", "Expecting value", 2, "give one"),
        (b"", "is not valid JSON", "Expecting value", 1, "give one"),
        (b"[" * 100_000, "is not valid JSON", "it is nested too deeply", None, "give one"),
        (
            "{}".encode("utf-16"),
            "is not UTF-8 text",
            "it begins as UTF-16 does",
            None,
            "save it as UTF-8",
        ),
        (b'{\n"a": "caf\xe9"}', "is not UTF-8 text", "byte 0xe9 is of no UTF-8", 2, "save it as UTF-8"),
        (None, "cannot read", "No such file or directory", None, "check the path"),
    ],
)
def test_what_is_none(
    tmp_path: Path, content: bytes | None, what: str, why: str, line: int | None, remedy: str
) -> None:
    file = tmp_path / "a.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_json(file, "give one")
    error = caught.value
    assert what in error.what
    assert error.why.startswith(why)
    assert (error.place.file, error.place.line, error.remedy) == (str(file), line, remedy)
