"""Libraries that zig's linker makes without its driver, as the driver has been seen to call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilec.cache import Store
from tilec.codegen import link_lines, toolchain
from tilec.codegen.link_lines import LinkLine
from tilec.codegen.linkers import SharedLibrary
from tilec.codegen.toolchain import Toolchain, find_toolchain
from tilec.errors import PackageError

needs_zig = pytest.mark.skipif(find_toolchain().kind != "zig", reason="the linker is not zig's")
SAID = "ld.lld -o m.so\nld.lld -shared -o {path} -soname {name} -version-script {script} {objects} /bin/sh\n"


@pytest.fixture(autouse=True)
def _apart(monkeypatch, tmp_path) -> None:
    """Nothing is known but what a test has seen."""
    monkeypatch.setattr(link_lines, "_met", {})
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def commands(monkeypatch) -> list[str]:
    """Which of zig's programs run."""
    found: list[str] = []
    ran = toolchain._ran

    def seen(command, what):
        found.append(next((word for word in command if word in ("cc", "ld.lld")), ""))
        return ran(command, what)

    monkeypatch.setattr(toolchain, "_ran", seen)
    return found


def made(folder: Path, tools: Toolchain) -> Path:
    """An object with functions that a library needs its C library, mathematics and compiler-rt for."""
    folder.mkdir(exist_ok=True)
    (folder / "demo.c").write_text(
        "#include <math.h>\n#include <string.h>\n"
        '#define PUBLIC __attribute__((visibility("default")))\n'
        "PUBLIC void *demo_copied(void *a, void *b, unsigned long n) { return memcpy(a, b, n); }\n"
        "PUBLIC float demo_power(float x) { return expf(x); }\n"
        "PUBLIC unsigned __int128 demo_part(unsigned __int128 a, unsigned __int128 b) { return a / b; }\n"
    )
    return tools.compile(folder / "demo.c", folder)


def linked(folder: Path, tools: Toolchain) -> bytes:
    """What such a library has."""
    path = folder / "libdemo.so"
    tools.link_shared([made(folder, tools)], SharedLibrary(path, "libdemo.so.1", ("demo_*",)))
    return path.read_bytes()


@needs_zig
def test_the_linker_alone_makes_the_bytes_that_its_driver_makes(tmp_path, commands) -> None:
    tools = find_toolchain()
    first = linked(tmp_path / "first", tools)
    del commands[:]
    assert linked(tmp_path / "second", tools) == first
    assert commands == ["cc", "ld.lld"], "compiled, and linked without the driver"


@needs_zig
def test_another_process_learns_it_from_the_cache(tmp_path, commands, monkeypatch) -> None:
    tools = find_toolchain()
    first = linked(tmp_path / "first", tools)
    monkeypatch.setattr(link_lines, "_met", {})
    del commands[:]
    assert linked(tmp_path / "second", tools) == first
    assert commands == ["cc", "ld.lld"]


@needs_zig
@pytest.mark.parametrize("words", [["--no-such-flag", "@path"], ["/gone/libc.so", "@path"]])
def test_the_driver_links_where_a_line_does_not_serve(tmp_path, commands, words) -> None:
    tools = find_toolchain()
    first = linked(tmp_path / "first", tools)
    Store(tmp_path / "cache").put("link", tools._link_key, json.dumps(words).encode())
    link_lines._met.clear()
    assert linked(tmp_path / "second", tools) == first


@needs_zig
def test_errors_are_those_of_the_driver(tmp_path) -> None:
    tools = find_toolchain()
    linked(tmp_path / "first", tools)
    with pytest.raises(PackageError, match=r"linking x\.so failed") as caught:
        tools.link_shared([tmp_path / "absent.o"], SharedLibrary(tmp_path / "x.so", "x", "*"))
    assert "absent.o" in caught.value.why
    assert " cc " in caught.value.remedy


def line(folder: Path, objects: list[Path], said: str = SAID) -> LinkLine | None:
    """The line of a driver that says it of some objects."""
    wanted = SharedLibrary(folder / "lib.so", "lib.so.1", "*")
    spelled = " ".join(map(str, objects))
    text = said.format(path=wanted.path, name=wanted.loaded, script=wanted.script, objects=spelled)
    return LinkLine.said(text, objects, wanted)


def test_a_line_serves_other_objects() -> None:
    found = line(Path("/one"), [Path("/one/a.o"), Path("/one/b.o")])
    assert found is not None
    other = SharedLibrary(Path("/two/c.so"), "c.so.3", "*")
    assert found.arguments([Path("/two/c.o")], other) == [
        "-shared", "-o", "/two/c.so", "-soname", "c.so.3", "-version-script", "/two/exports.map", "/two/c.o",
        "/bin/sh",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        pytest.param("/with a space", SAID, id="spaces"),
        pytest.param("/one", SAID.replace("/bin/sh", "/gone/libc.so"), id="gone"),
        pytest.param("/one", SAID.replace("-soname {name} ", ""), id="another form"),
        pytest.param("/one", SAID.replace("ld.lld", "lld-link"), id="another linker"),
    ],
)
def test_other_lines_do_not(folder, said) -> None:
    assert line(Path(folder), [Path(folder) / "a.o"], said) is None
