"""Every fault of a library's file is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from verify_samples import build

from tilec.cli.main import run
from tilec.elf import EXECUTABLE, FLAGS_1, LOAD_SEGMENT, RELRO_SEGMENT, STACK_SEGMENT, WRITABLE, parse_library
from tilec.errors import LibraryError
from tilec.package.library.inspect import read_library
from tilec.verify import audit, audit_library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("audited"))


def test_a_right_library_passes(library: Path) -> None:
    findings = audit_library(library)
    assert [finding.problem for finding in findings] == [""] * len(findings)
    assert [finding.what for finding in findings][:3] == ["digests", "tile IR", "symbols"]
    assert next(finding.detail for finding in findings if finding.what == "SONAME") == "libscales.so.1"


def without(tags: tuple[tuple[int, int], ...], tag: int) -> tuple[tuple[int, int], ...]:
    return tuple(pair for pair in tags if pair[0] != tag)


@pytest.mark.parametrize(
    ("change", "what", "problem"),
    [
        (lambda elf: {"exports": elf.exports | {"scales_more"}}, "symbols", "exports scales_more besides"),
        (lambda elf: {"exports": elf.exports - {"scales_right"}}, "symbols", "lacks scales_right"),
        (lambda elf: {"needed": (*elf.needed, "libz.so.1")}, "needed libraries", "needs libz.so.1"),
        (lambda elf: {"versions": elf.versions | {"GLIBC_2.34"}}, "glibc", "needs GLIBC_2.34"),
        (lambda elf: {"soname": "libscales.so"}, "SONAME", "should be libscales.so.1"),
        (lambda elf: {"tags": (*elf.tags, (25, 0x1000))}, "loading", "constructors"),
        (lambda elf: {"tags": (*elf.tags, (22, 0))}, "loading", "its code is relocated"),
        (lambda elf: {"tags": (*elf.tags, (29, 1))}, "loading", "a search path"),
        (lambda elf: {"tags": without(elf.tags, FLAGS_1)}, "loading", "may be unloaded"),
        (
            lambda elf: {"segments": (*elf.segments, (LOAD_SEGMENT, EXECUTABLE | WRITABLE))},
            "loading",
            "a segment is written and run",
        ),
        (lambda elf: {"segments": (*elf.segments, (STACK_SEGMENT, EXECUTABLE))}, "loading", "a stack"),
        (lambda elf: {"segments": without(elf.segments, RELRO_SEGMENT)}, "loading", "stays writable"),
    ],
)
def test_planted_faults_are_found(library: Path, change, what: str, problem: str) -> None:
    elf, info = parse_library(library.read_bytes()), read_library(library)
    planted = replace(elf, **change(elf))
    (found,) = [check(info, planted) for check in audit._CHECKS if check(info, planted).problem]
    assert found.what == what
    assert problem in found.problem


@pytest.mark.slow
def test_an_extra_symbol_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from tilec.package import write

    known = write.exported_symbols
    monkeypatch.setattr(write, "exported_symbols", lambda spec: (*known(spec), "scales_more"))
    library = build(tmp_path, '__attribute__((visibility("default"))) int scales_more(void) { return 1; }\n')
    case = ["--kernel", "right", "--dims", "m=4,n=3,ld=3"]
    assert run(["verify", str(library), *case]) == 1
    said = capfd.readouterr()
    assert "symbols" in said.out
    assert "FAILED" in said.out
    assert f"{library}: symbols: exports scales_more besides" in said.err
    assert "1 case: 0 failed" in said.err


def test_a_tile_ir_that_lacks_variants_is_found(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = read_library(library)
    monkeypatch.setattr(type(info), "ir_texts", lambda self: ["kernel"])
    assert "1 texts for" in audit._tile_ir(info).problem


def test_damage_is_an_error(library: Path, tmp_path: Path) -> None:
    data = bytearray(library.read_bytes())
    for cut in (0, 63, 100, len(data) // 2):
        with pytest.raises(ValueError, match="it is no"):
            parse_library(bytes(data[:cut]))
    data[data.index(b"scales_right")] ^= 1
    (tmp_path / "damaged.so").write_bytes(data)
    with pytest.raises(LibraryError, match="damaged"):
        audit_library(tmp_path / "damaged.so")
