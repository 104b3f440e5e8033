"""Golden text of what a reader of a build meets: the header and the generated C."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from records import kernel, matmul, scalar, spec, tensor, variant

from tilec.package.bindings.c import header_source
from tilec.package.bindings.cpp import cpp_header_source
from tilec.package.bindings.python import python_files
from tilec.package.dispatch.order import dispatch_order, target_order
from tilec.package.library.runtime import runtime_source
from tilec.package.tables.library import tables_source


def test_header(golden: Callable[..., None]) -> None:
    golden(header_source(spec(), "0123456789abcdef"), "demo.h")


def demo_tables() -> str:
    kernel = replace(matmul(), variants=dispatch_order(matmul().variants))
    return tables_source(spec(kernel), target_order(kernel.variants), "0123456789abcdef", 99)


def test_tables(golden: Callable[..., None]) -> None:
    golden(demo_tables(), "demo_tables.c")


def test_runtime(golden: Callable[..., None]) -> None:
    golden(runtime_source(spec(matmul())), "demo_runtime.c")


def test_structs_of_tables_name_their_fields() -> None:
    rows = re.findall(r"^  {.*},$", demo_tables(), re.MULTILINE)
    assert len(rows) > 30
    assert [row for row in rows if not row.startswith("  {.")] == []


def test_cpp_header(golden: Callable[..., None]) -> None:
    flat = kernel((tensor("x"), scalar("n", "int32")), ("n", "rows"), variant("flat"), name="new")
    golden(cpp_header_source(spec(matmul(), flat)), "demo.hpp")


def test_python_package(golden: Callable[..., None]) -> None:
    flat = kernel((tensor("x"), scalar("n", "int32")), ("n", "rows"), variant("flat"), name="new")
    files = python_files(spec(matmul(), flat), "0123456789abcdef")
    golden(files["python/demo/__init__.py"], "demo_init.txt")
    golden(files["python/demo/__init__.pyi"], "demo_stub.txt")
