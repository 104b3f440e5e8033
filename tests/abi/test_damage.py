"""Damaged libraries: reading one either works or says what is wrong, whatever byte was hit."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilec.cli.main import run
from tilec.errors import LibraryError
from tilec.package.library.inspect import read_library
from tilec.package.library.metadata import meta_section, to_json
from tilec.package.library.sums import seal
from tilec.package.write import BuildReport
from tilec.portable import loader


def problem_of(path: Path) -> LibraryError | None:
    """What reading says is wrong; any other exception is a failure."""
    try:
        read_library(path).ir_texts()
    except LibraryError as error:
        return error
    return None


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def sections_of(data: bytes) -> dict[str, tuple[int, int]]:
    """The sections that hold something, by name: place and size."""
    return {name: place for name, place in loader.section_places(data).items() if place[1]}


def test_truncated_libraries_are_refused(sample: BuildReport, tmp_path: Path) -> None:
    data = sample.library.read_bytes()
    headers = 64 + 56 * int.from_bytes(data[56:58], "little")
    ends = {edge for at, size in sections_of(data).values() for edge in (at, at + 1, at + size)}
    path = tmp_path / "cut.so"
    for length in sorted(
        {0, 1, 4, 16, 63, 64, 65, headers - 1, headers, len(data) // 2, len(data) - 1, *ends}
    ):
        path.write_bytes(data[:length])
        with pytest.raises(loader.LibraryError):
            loader.load(path)
        with pytest.raises(LibraryError):
            read_library(path)


def test_every_byte_of_the_metadata_counts(sample: BuildReport, tmp_path: Path) -> None:
    data = bytearray(sample.library.read_bytes())
    at, size = sections_of(data)[".tilec.meta"]
    (length,) = struct.unpack_from("<Q", data, at + 16)
    assert size == 56 + length
    unused = range(at + 12, at + 16)  # the word that every build leaves 0
    assert not loader.damage_of(data)
    for place in range(at, at + size):
        data[place] ^= 1 << place % 8
        assert loader.damage_of(data), place
        if place % 97 == 0:
            assert place in unused or problem_of(_written(tmp_path / "damaged.so", data)), place
        data[place] ^= 1 << place % 8


def test_every_section_counts(sample: BuildReport, tmp_path: Path) -> None:
    data = bytearray(sample.library.read_bytes())
    path = tmp_path / "damaged.so"
    names = []
    for name, (at, size) in sections_of(data).items():
        if name in (".shstrtab", ".tilec.sums"):
            continue
        for place in (at, at + size // 2, at + size - 1):
            data[place] ^= 0x10
            path.write_bytes(data)
            with pytest.raises(loader.LibraryError, match=f"damaged: .*{name}"):
                loader.load(path)
            found = problem_of(path)
            assert found is not None
            assert name in found.why
            data[place] ^= 0x10
        names.append(name)
    assert {".text", ".rodata", ".dynamic", ".dynsym", ".tilec.ir", ".data"} <= set(names)


def test_program_headers_and_the_digests_themselves_count(sample: BuildReport) -> None:
    data = bytearray(sample.library.read_bytes())
    at, _ = sections_of(data)[".tilec.sums"]
    (length,) = struct.unpack_from("<Q", data, at + 16)
    headers = range(64, 64 + 56 * int.from_bytes(data[56:58], "little"))
    for place in (*headers, *range(at, at + 12), *range(at + 16, at + 56 + length, 5)):
        data[place] ^= 0x20
        assert loader.damage_of(data), place
        data[place] ^= 0x20


@settings(max_examples=150)
@given(st.data())
def test_the_check_of_a_file_never_fails_itself(sample: BuildReport, data: st.DataObject) -> None:
    content = bytearray(sample.library.read_bytes())
    table = int.from_bytes(content[40:48], "little")
    places = st.one_of(st.integers(0, 63), st.integers(64, 600), st.integers(table, len(content) - 1))
    values = st.one_of(st.sampled_from([0, 0xFF, 0x80, 0x7F]), st.integers(0, 255))
    for place in data.draw(st.lists(places, min_size=1, max_size=6)):
        content[place] = data.draw(values)
    assert isinstance(loader.damage_of(content), str)


#: Loads each damaged copy in a child of its own and says how that ended. The digests in a copy are made anew,
#: so that what else is looked at has to find the damage.
LOAD_COPIES = """
import contextlib, os, sys
from pathlib import Path
from tilec.portable.loader import LibraryError, load, section_places
from tilec.package.library.sums import seal
original, copy, step = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), int(sys.argv[3])
count = int.from_bytes(original[56:58], "little")
table = int.from_bytes(original[40:48], "little")
dynamic, size = section_places(original)[".dynamic"]
sections, entries = range(table, len(original), step), range(dynamic, dynamic + size, step // 4 + 1)
for place in [*range(16, 64 + 56 * count), *sections, *entries]:
    changed = {0, original[place] ^ (1 << place % 8), 0xFF} - {original[place]}
    for value in changed if place % 8 < 2 and place < 64 + 56 * count or step == 1 else {0x5A}:
        copy.write_bytes(original[:place] + bytes([value]) + original[place + 1 :])
        with contextlib.suppress(Exception):  # of a copy whose sections cannot be found
            seal(copy)
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


def endings(library: Path, folder: Path, step: int) -> list[list[str]]:
    """Place, value and exit code of every copy; 127 is how the dynamic loader ends a process."""
    command = [sys.executable, "-c", LOAD_COPIES, str(library), str(folder / "copy.so"), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1200)
    return [line.split(maxsplit=2) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_hostile_headers_do_not_crash_the_loader(sample: BuildReport, tmp_path: Path) -> None:
    found = endings(sample.library, tmp_path, 31)
    assert len(found) > 700
    assert not [each for each in found if each[2] not in ("0", "3")]


@pytest.mark.fuzz
def test_no_byte_of_a_header_crashes_the_loader(sample: BuildReport, tmp_path: Path) -> None:
    found = endings(sample.library, tmp_path, 1)
    assert len(found) > 5000
    assert not [each for each in found if each[2] not in ("0", "3")]


def test_every_byte_of_the_dynamic_section_counts(sample: BuildReport) -> None:
    """Whatever the digests say, which a forger makes anew: it is about the sections that are there."""
    data = bytearray(sample.library.read_bytes())
    at, size = sections_of(data)[".dynamic"]
    entries = list(struct.iter_unpack("<QQ", data[at : at + size]))
    free = {30: "FLAGS", 0x6FFFFFFB: "FLAGS_1", 3: "PLTGOT", 0x6FFFFFF9: "RELACOUNT", 0: "behind the end"}
    assert not loader._dynamic_problem(data)
    for place in range(at, at + size):
        tag, is_value = entries[(place - at) // 16][0], (place - at) % 16 >= 8
        for value in {0, 0xFF, data[place] ^ (1 << place % 8)} - {data[place]}:
            kept, data[place] = data[place], value
            assert loader._dynamic_problem(data) or (is_value and tag in free), (place - at, value)
            data[place] = kept
    count = at + 16 * next(row for row, (tag, _) in enumerate(entries) if tag == 0x6FFFFFF9) + 9
    data[count] += 1
    assert "relocations" in loader._dynamic_problem(data)


def test_a_file_without_digests_is_refused(sample: BuildReport, tmp_path: Path) -> None:
    """Headers that hide the section of the digests hide no damage."""
    data = bytearray(sample.library.read_bytes())
    place = data.rindex(b".tilec.sums\0")
    data[place] ^= 1
    with pytest.raises(loader.LibraryError, match=r"no section \.tilec\.sums"):
        loader.load(_written(tmp_path / "hidden.so", data))


# ---- forged libraries: whole files with right digests, written by somebody else ----

#: Gets at `os.system` without a single builtin.
_RUNS_CODE = (
    "[c for c in ().__class__.__base__.__subclasses__() if c.__name__=='_wrap_close'][0]"
    ".__init__.__globals__['system']('touch {}')"
)


def forge(library: Path, out: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy whose metadata is changed and signed anew; what it loses pays for what it gains."""
    data = bytearray(library.read_bytes())
    at, size = sections_of(data)[".tilec.meta"]
    metadata = json.loads(data[at + 56 : at + size])
    for image in [variant["image"] for kernel in metadata["kernels"] for variant in kernel["variants"]]:
        image["sha256"] = ""
    change(metadata)
    content = to_json(metadata).ljust(size - 56)
    assert len(content) == size - 56
    data[at : at + size] = meta_section(content)
    seal(_written(out, data))
    return out


def _hostile_extent(metadata: dict[str, Any], text: str) -> None:
    metadata["kernels"][0]["params"][-1]["extents"] = [text]


@pytest.mark.parametrize("text", ["__import__('os').system('touch {}')", _RUNS_CODE])
def test_a_forged_size_runs_no_code(
    sample: BuildReport,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = forge(
        sample.library, tmp_path / "forged.so", lambda found: _hostile_extent(found, text.format("witness"))
    )
    with pytest.raises(loader.LibraryError, match="size"):
        loader.load(path)
    problem = problem_of(path)
    assert problem is not None
    assert "size" in problem.why
    for command in (["inspect"], ["verify"], ["verify", "--emulate"]):
        assert run([*command, str(path)]) == 2, capsys.readouterr().err
    assert not (tmp_path / "witness").exists()


@pytest.mark.parametrize("key", ["params", "dims", "variants"])
def test_metadata_without_its_keys_is_an_error(sample: BuildReport, tmp_path: Path, key: str) -> None:
    path = forge(sample.library, tmp_path / "forged.so", lambda found: found["kernels"][0].pop(key))
    with pytest.raises(loader.LibraryError, match="metadata"):
        loader.load(path)
    if key != "dims":
        assert problem_of(path) is not None
