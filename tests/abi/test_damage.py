"""Damaged libraries: reading one either works or says what is wrong, whatever byte was hit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilec.errors import LibraryError
from tilec.inspect import read_library
from tilec.package.write import BuildReport


def problem_of(path: Path) -> LibraryError | None:
    """What reading says is wrong; any other exception is a failure."""
    try:
        read_library(path).ir_texts()
    except LibraryError as error:
        return error
    return None


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_is_a_library_error(sample: BuildReport, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(sample.library.read_bytes())
    tables = st.one_of(st.integers(0, 63), st.integers(len(content) - 64 * 30, len(content) - 1))
    for place in data.draw(st.lists(st.one_of(tables, st.integers(0, len(content) - 1)), max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    path = _written(tmp_path / "damaged.so", content[:end])
    problem = problem_of(path)
    assert problem is None or (str(path) in problem.what and problem.why)


@pytest.mark.parametrize("place", [40, 58, 60, 62])
def test_extreme_fields_of_the_elf_header(sample: BuildReport, tmp_path: Path, place: int) -> None:
    content = bytearray(sample.library.read_bytes())
    content[place : place + 2] = b"\xff\xff"
    content[46:48] = b"\xff\xff"
    with pytest.raises(LibraryError):
        read_library(_written(tmp_path / "damaged.so", content))


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_flipped_byte_of_the_metadata_is_seen(sample: BuildReport, tmp_path: Path) -> None:
    content = bytearray(sample.library.read_bytes())
    content[content.index(b'"kernels"') + 1] ^= 1
    with pytest.raises(LibraryError, match="sha256"):
        read_library(_written(tmp_path / "damaged.so", content))


#: Loads each damaged copy in a child of its own and says how that ended.
LOAD_COPIES = """
import os, sys
from pathlib import Path
from tilec.loader import LibraryError, load
original, copy = Path(sys.argv[1]).read_bytes(), sys.argv[2]
count = int.from_bytes(original[56:58], "little")
for place in range(64, 64 + 56 * count):
    changed = {0, original[place] ^ (1 << place % 8), 0xFF} - {original[place]}
    for value in changed if place % 8 < 3 else {0x5A}:
        Path(copy).write_bytes(original[:place] + bytes([value]) + original[place + 1 :])
        child = os.fork()
        if child == 0:
            try:
                load(copy).kernels["add"].select(N=5)
            except LibraryError:
                os._exit(3)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(place, value, os.waitstatus_to_exitcode(status))  # a signal is below zero
"""


def test_damaged_program_headers_do_not_crash_the_loader(sample: BuildReport, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOAD_COPIES, str(sample.library), str(tmp_path / "copy.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    endings = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert len(endings) > 500
    assert not [each for each in endings if each[2] not in ("0", "3")]
