from __future__ import annotations

import ctypes
import platform

import pytest

from tilec.codegen import toolchain
from tilec.codegen.linkers import SharedLibrary
from tilec.codegen.toolchain import find_toolchain
from tilec.errors import CompileError, EnvironmentError_, PackageError
from tilec.targets import parse_host

SOURCE = """
static __thread int calls;
int helper(void) { return ++calls; }
__attribute__((visibility("default"))) int demo_next(void) { return helper(); }
__attribute__((visibility("default"))) int secret(void) { return 7; }
"""
needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="loads an x86-64 library")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "demo.c").write_text(SOURCE)
    return tmp_path


def _link(folder, name="libdemo.so"):
    tools = find_toolchain(parse_host("x86_64-linux-gnu"))
    made = tools.compile(folder / "demo.c", folder / "obj")
    tools.link_shared([made], SharedLibrary(folder / name, "libdemo.so.1", ("demo_*",)))
    return folder / name


@needs_x86
def test_shared_library_exports_what_the_script_lists(folder):
    library = ctypes.CDLL(str(_link(folder)))
    assert (library.demo_next(), library.demo_next()) == (1, 2)
    assert not hasattr(library, "secret")


def test_same_sources_in_other_folders_give_the_same_bytes(folder, tmp_path):
    first = _link(folder).read_bytes()
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "demo.c").write_bytes((folder / "demo.c").read_bytes())
    second = _link(other).read_bytes()
    assert first == second
    assert str(folder).encode() not in first
    assert b"libdemo.so.1" in first
    assert b"GLIBC_2.34" not in first


def test_archives_are_reproducible(folder):
    tools = find_toolchain()
    made = tools.compile(folder / "demo.c", folder / "obj")
    tools.archive([made], folder / "a.a")
    tools.archive([made], folder / "b.a")
    assert (folder / "a.a").read_bytes() == (folder / "b.a").read_bytes()
    assert (folder / "a.a").read_bytes().startswith(b"!<arch>\n")


def test_compiler_and_linker_errors_carry_their_words(folder):
    tools = find_toolchain()
    (folder / "bad.c").write_text("int f(void) { return nowhere; }\n")
    with pytest.raises(CompileError, match=r"compiling bad\.c failed") as caught:
        tools.compile(folder / "bad.c", folder)
    assert "nowhere" in caught.value.why
    with pytest.raises(PackageError, match=r"linking x\.so failed"):
        tools.link_shared([folder / "absent.o"], SharedLibrary(folder / "x.so", "x", "*"))


def test_no_compiler_is_an_environment_error(monkeypatch):
    monkeypatch.delenv("TILEC_CC", raising=False)
    monkeypatch.setattr(toolchain, "_find_zig", lambda: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentError_, match="no C compiler") as caught:
        find_toolchain()
    assert caught.value.exit_code == 3


def test_a_system_compiler_does_not_cross_compile(monkeypatch):
    monkeypatch.setenv("TILEC_CC", "python3")
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    with pytest.raises(EnvironmentError_, match="builds for this machine"):
        find_toolchain(parse_host(f"{other}-linux-gnu"))


@pytest.mark.parametrize("command", ["/opt/zig cc", "python3 -m ziglang cc"])
def test_zig_as_chosen_compiler_is_told_the_target(monkeypatch, command):
    monkeypatch.setenv("TILEC_CC", command)
    tools = find_toolchain(parse_host("aarch64-linux-gnu"))
    assert tools.kind == "zig"
    assert " ".join(tools.driver) == f"{command} -target aarch64-linux-gnu.2.17 -mcpu=baseline"
    assert " ".join(tools.archiver) == command.removesuffix("cc") + "ar"


def test_versions_name_every_tool():
    versions = toolchain.tool_versions()
    assert set(versions) == {"tilec", "tvm", find_toolchain().kind}
    assert all(versions.values())
