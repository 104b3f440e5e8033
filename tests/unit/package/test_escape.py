"""Free text in generated files: compilers and parsers read them, whatever a version or a docstring holds."""

from __future__ import annotations

import ast
import email
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import kernel, matmul, scalar, spec, tensor, variant

from tilec.codegen.toolchain import find_toolchain
from tilec.package import templates
from tilec.package.bindings.build_systems import build_files
from tilec.package.bindings.c import header_source
from tilec.package.bindings.cpp import cpp_header_source
from tilec.package.bindings.python import python_files
from tilec.package.bindings.rust import crate_files
from tilec.package.bindings.wheel import metadata_files
from tilec.package.dispatch.order import target_order
from tilec.package.hub.card import card
from tilec.package.hub.folder import variant_texts
from tilec.package.library.metadata import describe, to_json
from tilec.package.library.runtime import dlpack_folder, runtime_folder, runtime_source
from tilec.package.model import KernelRecord, PackageSpec
from tilec.package.places import places
from tilec.package.tables.library import tables_source
from tilec.package.text import escape
from tilec.portable.loader import default_of
from tilec.targets import native_host

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NASTY = (
    *("1.0*/ x", "/* // /**/ /*/", "1.0\\", "a\\\nb", "*\\", "*", "/", "***/", "??/ ??' ??) ????/"),
    *('"', "'''", '"""', 'a"""b\\', '" "', "ends with backslash\\", "\\N{BELL} \\u0041 \\x41 \\777"),
    *("${HOME}", "$ENV{HOME} $<CONFIG> $$ $(x)", "@VAR@ @", "]] ]=] [==[ [[", "$name", "{{}} {name}"),
    *("#comment", "a # b", "# x\n[package]\nname = 1", "%s %n %", "--", "|;&<>", "#!/bin/sh", "`x`"),
    *("\0", "a\0b", "\ud800", "\udfff\ud800 x", "é ü 日本", "\U0001f4a9", "\ufeff", "\u200b", "\ufffe"),
    *("\u202e rtl \u2066", "\r\n", "\r", "\t", "\x0b\x0c\x1c\x85\u2028\u2029", "\x1b[31m", "\x7f"),
    *("<script>[a](b)", " ", "", "x" * 3000, "*/ #include <nothing>", "/// //! //", "\\U0001F600"),
)
BUILD = "0123456789abcdef"


def with_text(text: str, name: str = "demo", *more: KernelRecord) -> PackageSpec:
    """A package whose version and docstring are ``text``."""
    return replace(spec(replace(matmul(), doc=text), *more), name=name, version=text)


def documented(texts: Sequence[str]) -> PackageSpec:
    """A package with a kernel for each docstring, and all of them in its version."""
    kernels = [
        replace(kernel([tensor("x", "M", access="out")], ["M"], variant(f"v{at}"), name=f"k{at}"), doc=text)
        for at, text in enumerate(texts)
    ]
    return replace(spec(*kernels), version=" ".join(texts))


def consumers_of(package: PackageSpec) -> dict[str, str]:
    return build_files(places((package,)), package.version)


def crate_of(package: PackageSpec) -> dict[str, str]:
    return crate_files(package, BUILD, places((package,)))


def run(command: Sequence[object], folder: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    return done.stdout.decode()


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def compiler(*flags: str) -> list[object]:
    """Of C and C++, with all warnings as errors."""
    folders = (runtime_folder() / "include", runtime_folder() / "src", dlpack_folder())
    include = [part for folder in folders for part in ("-I", folder)]
    warnings = ("-c", "-O0", "-o", "made.o", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    return [*find_toolchain(native_host()).driver, *warnings, *include, *flags]


# ---- C and C++ ----


def test_headers_of_c_and_cpp_compile(tmp_path: Path) -> None:
    lines = []
    for at, text in enumerate(NASTY):
        each = with_text(text, f"lib{at}")
        (tmp_path / f"lib{at}.h").write_text(header_source(each, BUILD), encoding="utf-8")
        (tmp_path / f"lib{at}.hpp").write_text(cpp_header_source(each), encoding="utf-8")
        size = len(escape.valid(text).encode()) + 1
        lines += [f'#include "lib{at}.h"', f'static_assert(sizeof(LIB{at}_VERSION) == {size}, "");']
    (tmp_path / "all.c").write_text("\n".join(["#include <assert.h>", *lines]))
    (tmp_path / "all.cc").write_text("\n".join(lines).replace('.h"', '.hpp"'))
    run(compiler("-std=c11", "-trigraphs", "-I.", "all.c"), tmp_path)
    command = compiler("-std=c++17", "-trigraphs", "-I.", "all.cc")
    run(["c++" if part == "cc" else part for part in command], tmp_path)


def test_tables_compile(tmp_path: Path) -> None:
    made = documented(NASTY)
    targets = target_order([each for one in made.kernels for each in one.variants])
    tables = tables_source(made, targets, BUILD, 99)
    (tmp_path / "tables.c").write_text(tables, encoding="utf-8")
    (tmp_path / f"{made.name}_runtime.c").write_text(runtime_source(made), encoding="utf-8")
    run(compiler("-std=gnu11", "-Wno-unused-variable", "tables.c"), tmp_path)
    run(compiler("-std=gnu11", "-Wno-unused-variable", "-DTILEC_STATIC", "tables.c"), tmp_path)


# ---- CMake and pkg-config ----


def as_one_line(text: str) -> str:
    return escape.line(text).strip()


def test_cmake_reads_the_packages(tmp_path: Path) -> None:
    commands = ["cmake_minimum_required(VERSION 3.15)", "project(all NONE)", "set(VAR wrong)"]
    for at, text in enumerate(NASTY):
        for where, content in consumers_of(with_text(text, f"lib{at}")).items():
            path = tmp_path / where
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            if path.suffix == ".cmake":
                commands.append(f'include("{path}")')
        for variable in (f"lib{at}_VERSION", "PACKAGE_VERSION"):
            commands.append(f'string(HEX "${{{variable}}}" hex)\nmessage(NOTICE "found ${{hex}}.")')
    (tmp_path / "CMakeLists.txt").write_text("\n".join(commands))
    command = [tool("cmake"), "-S", tmp_path, "-B", tmp_path / "build"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [line[6:-1] for line in done.stderr.splitlines() if line.startswith("found ")]
    assert found == [escape.line(text).encode().hex() for text in NASTY for _ in range(2)]


def test_pkg_config_reads_the_packages(tmp_path: Path) -> None:
    for at, text in enumerate(NASTY):
        (found,) = (
            made for where, made in consumers_of(with_text(text, f"lib{at}")).items() if ".pc" in where
        )
        (tmp_path / f"lib{at}.pc").write_text(found, encoding="utf-8")
    command = ["env", f"PKG_CONFIG_PATH={tmp_path}", tool("pkg-config")]
    names = [f"lib{at}" for at, text in enumerate(NASTY) if as_one_line(text)]  # others have no version
    shown = run([*command, "--modversion", *names], tmp_path).splitlines()
    without = str.maketrans({"\\": "\ufffd", "$": "\ufffd"})
    words = [as_one_line(text).translate(without).split() for text in NASTY]
    assert shown == [each[0] for each in words if each]  # a version is one word
    flags = run([*command, "--libs", *names], tmp_path)
    assert all(f"-l{name}" in flags.split() for name in names)


# ---- Rust ----


def test_the_crate_compiles(tmp_path: Path) -> None:
    for where, text in crate_of(documented(NASTY)).items():
        path = tmp_path / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    command = [tool("rustc"), "--edition=2021", "--emit=metadata", "--crate-type=lib", "-Dwarnings"]
    crate = tmp_path / "rust" / "demo-sys"
    run([*command, "-Aunused", "--crate-name=demo_sys", crate / "src" / "lib.rs"], tmp_path)


def check_toml(text: str) -> None:
    crate = tomllib.loads(crate_of(with_text(text))["rust/demo-sys/Cargo.toml"])["package"]
    assert crate["description"] == f"tile kernels built by tilec, version {escape.valid(text)}"
    assert (crate["name"], crate["edition"]) == ("demo-sys", "2021")


# ---- Python ----


def check_python(text: str) -> None:
    files = python_files(with_text(text), BUILD)
    module = ast.parse(files["python/demo/__init__.py"].encode())
    values = [node.value for node in module.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(values[0]) == escape.valid(text)
    assert len(values) == 5  # version, build, library, the kernel, __all__
    assert (ast.get_docstring(module, clean=False) or "").startswith(
        f"demo {escape.line(text)}: tile kernels"
    )
    stub = ast.parse(files["python/demo/__init__.pyi"].encode())
    classes = [node for node in stub.body if isinstance(node, ast.ClassDef)]
    assert [node.name for node in classes] == ["_Shaped", "_matmul"]
    doc = ast.get_docstring(classes[-1], clean=False) or ""
    assert doc.split("\n")[0] == (escape.line(text) if text else "matmul")


def check_json(text: str) -> None:
    made = with_text(text)
    described = describe(made, ("x86-64-v3",))
    described["kernels"][0]["variants"][0]["config"] = {text: [text]}  # type: ignore[index]
    assert (
        escape.valid(text) in to_json(described).decode() or not text.isprintable() or set(text) & set('"\\')
    )


def check_wheel(text: str) -> None:
    files = metadata_files(with_text(text), "py3-none-any")
    head = email.message_from_string(files["METADATA"])
    assert not head.defects
    assert (head["Name"], head.get_payload()) == ("demo", "")


CHECKS = (check_toml, check_python, check_json, check_wheel)


@pytest.mark.parametrize("check", CHECKS)
def test_nasty_texts_are_read_back(check: object) -> None:
    for text in NASTY:
        check(text)  # type: ignore[operator]


#: Lone surrogates too, which no file can hold.
TEXTS = st.text(
    st.one_of(st.sampled_from("*/\\\"'?#$@{}[]<>;%\n\r\0\ud800\u202e"), st.characters()), max_size=40
)


@settings(max_examples=60)
@given(TEXTS)
def test_any_text_is_read_back(text: str) -> None:
    for check in CHECKS:
        check(text)


@settings(max_examples=200)
@given(TEXTS)
def test_comments_and_strings_do_not_end_early(text: str) -> None:
    comment = escape.c_comment(text)
    assert "*/" not in comment
    assert "/*" not in comment
    assert "??" not in comment
    assert comment.isprintable()
    literal = escape.c_string(text)
    assert ast.literal_eval(f"b{literal}") == escape.valid(text).encode()
    assert ast.literal_eval(escape.python_string(text)) == escape.valid(text)
    for one_line in (escape.rust_doc(text), escape.pkg_config(text), escape.cmake_string(text)):
        assert one_line.isprintable()


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 1.5, 3, True])
def test_defaults_without_a_literal_are_read_back(value: float) -> None:
    limit = replace(scalar("limit", "float32"), default=value)
    made = spec(kernel([tensor("x", "M", access="out"), limit], ["M"], variant("v")))
    stub = ast.parse(python_files(made, BUILD)["python/demo/__init__.pyi"])
    calls = [node for node in ast.walk(stub) if isinstance(node, ast.FunctionDef) and node.name == "__call__"]
    found = [eval(ast.unparse(node.args.defaults[-1]), {"float": float}) for node in calls]
    assert str(found) == str([value] * len(calls))
    (entry,) = json.loads(to_json(describe(made, ("x86-64-v3",))))["kernels"][0]["params"][1:]
    assert str(default_of(entry)) == str(value)


def with_layer(text: str) -> PackageSpec:
    """`with_text` whose kernel is a layer of torch."""
    made = with_text(text)
    members = {"B": "weight", "alpha": "alpha", "default": "default"}
    layer = {"name": "Product", "forward": ("A",), "members": members}
    return replace(made, kernels=tuple(replace(each, layer=layer) for each in made.kernels))


def test_python_reads_the_modules_of_the_hub() -> None:
    for text in NASTY:
        texts = variant_texts(with_layer(text), BUILD)
        found = {name: ast.parse(each) for name, each in texts.items()}
        assert set(found) == {"__init__.py", "_ops.py", "layers.py"}
        init = {
            ast.unparse(each.targets[0]): each.value
            for each in found["__init__.py"].body
            if isinstance(each, ast.Assign)
        }
        assert ast.literal_eval(init["__version__"]) == escape.valid(text)
        (layer,) = (each for each in found["layers.py"].body if isinstance(each, ast.ClassDef))
        assert (layer.name, ast.get_docstring(layer) is not None) == ("Product", True)


def test_the_card_of_the_hub_keeps_its_tables() -> None:
    for text in NASTY:
        head, _, rest = card([with_layer(text)], BUILD).removeprefix("---\n").partition("---\n")
        assert head.splitlines() == ["library_name: kernels", "tags:", "- kernels", "- tilec"]
        rows = [line for line in rest.split("\n") if line.startswith("| `")]
        assert len(rows) == 2
        assert len(re.split(r"(?<!\\)\|", rows[0])) == 6


def test_every_template_is_known_here() -> None:
    """A new template comes with a new line here, and with a check above that reads what it makes."""
    read = {
        *("header.h", "prototype.h", "header.hpp", "kernel.hpp", "tables.c", "door.c"),
        *("Config.cmake", "ConfigVersion.cmake", "package.pc", "python_init.py", "python_init.pyi"),
        *("rust_Cargo.toml", "rust_exec.rs", "rust_ffi.rs", "rust_kernel.rs", "rust_lib.rs", "rust_sizes.rs"),
        *("rust_view.rs", "rust_views_kernel.rs", "wheel_METADATA", "wheel_WHEEL"),
        *("hub_card.md", "hub_init.py", "hub_layers.py", "hub_ops.py"),
    }
    # names of packages, kernels and dims alone: C identifiers
    only_names = {"rust_build.rs", "rust_test.rs", "library.c"}
    only_names |= {"onnxruntime.c", "operators.c", "torch.c"}
    only_names |= {"rust_explain_kernel.rs", "rust_select_kernel.rs"}
    no_texts = {"runtime.c", "rust_threads.rs"}
    present = {path.name.removesuffix(".in") for path in Path(templates.__file__).parent.glob("*.in")}
    assert present == read | only_names | no_texts
