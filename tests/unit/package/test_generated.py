"""Golden text of what a reader of a build meets: the header and the generated C."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from records import kernel, matmul, scalar, spec, tensor, variant

from tilec.package.cpp_header import cpp_header_source
from tilec.package.header import header_source
from tilec.package.order import dispatch_order, target_order
from tilec.package.python import python_files
from tilec.package.tables import tables_source


def test_header(golden: Callable[..., None]) -> None:
    golden(header_source(spec(), "0123456789abcdef"), "demo.h")


def test_tables(golden: Callable[..., None]) -> None:
    kernel = replace(matmul(), variants=dispatch_order(matmul().variants))
    golden(
        tables_source(spec(kernel), target_order(kernel.variants), "0123456789abcdef", 99), "demo_tables.c"
    )


def test_cpp_header(golden: Callable[..., None]) -> None:
    flat = kernel((tensor("x"), scalar("n", "int32")), ("n", "rows"), variant("flat"), name="new")
    golden(cpp_header_source(spec(matmul(), flat)), "demo.hpp")


def test_python_package(golden: Callable[..., None]) -> None:
    flat = kernel((tensor("x"), scalar("n", "int32")), ("n", "rows"), variant("flat"), name="new")
    files = python_files(spec(matmul(), flat), "0123456789abcdef")
    golden(files["python/demo/__init__.py"], "demo_init.txt")
    golden(files["python/demo/__init__.pyi"], "demo_stub.txt")
