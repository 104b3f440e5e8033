from __future__ import annotations

import ctypes
import platform
import shutil

import numpy as np
import pytest

from tilec.codegen.elf import global_symbols, strip_debug, undefined_symbols, without_names
from tilec.codegen.linkers import SharedLibrary
from tilec.codegen.toolchain import Toolchain, find_toolchain
from tilec.targets import native_host

SOURCE = """
#include <math.h>
#include <string.h>
static const double table[4] = {1, 2, 3, 4};
static double state[300];
double pick(int index) { return table[index & 3] + state[index & 3]; }
__attribute__((weak)) void fill(double *out, double x) { memcpy(out, table, sizeof(table)); out[0] = exp(x); }
"""


def _toolchains():
    yield pytest.param("found", id="found")
    system = shutil.which("gcc") is None or shutil.which("ar") is None
    yield pytest.param("gcc", id="gcc", marks=pytest.mark.skipif(system, reason="gcc is not installed"))


@pytest.fixture(params=_toolchains())
def tools(request):
    if request.param == "found":
        return find_toolchain()
    return Toolchain("cc", ("gcc",), ("ar",), native_host())


@pytest.fixture
def code(tools, tmp_path):
    (tmp_path / "demo.c").write_text(SOURCE)
    flags = ["-g2", "-fvisibility=default"]
    return tools.compile(tmp_path / "demo.c", tmp_path / "obj", flags=flags).read_bytes()


def test_symbols(code):
    symbols = {symbol.name: symbol for symbol in global_symbols(code)}
    assert not symbols["pick"].undefined
    assert symbols["pick"].size > 0
    assert symbols["fill"].weak
    assert "exp" in undefined_symbols(code)


def test_names_do_not_count_where_they_differ_by_a_prefix(tools, tmp_path):
    texts = {
        "k_zz9_": SOURCE.replace("pick", "k_zz9_0"),
        "k_a1b_": SOURCE.replace("pick", "k_a1b_0"),
        "k_a1c_": SOURCE.replace("pick", "k_a1c_0").replace("& 3", "& 1"),
    }
    told = []
    for prefix, text in texts.items():
        (tmp_path / "demo.c").write_text(text)
        made = tools.compile(tmp_path / "demo.c", tmp_path / prefix)
        told.append(without_names(strip_debug(made.read_bytes()), prefix))
    assert told[0] == told[1] != told[2]
    assert without_names(b"PTX", "k_") == b"PTX"


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="links for this machine")
def test_stripped_objects_link_and_run(tools, code, tmp_path):
    stripped = strip_debug(code)
    assert len(stripped) < len(code)
    assert b"demo.c" in code
    assert str(tmp_path).encode() not in stripped
    assert global_symbols(stripped) == global_symbols(code)
    (tmp_path / "stripped.o").write_bytes(stripped)
    output = tmp_path / "lib.so"
    tools.link_shared([tmp_path / "stripped.o"], SharedLibrary(output, "lib.so", "*"))
    library = ctypes.CDLL(str(output))
    library.pick.restype = ctypes.c_double
    out = np.zeros(4)
    library.fill(ctypes.c_void_p(out.ctypes.data), ctypes.c_double(1))
    assert library.pick(2) == 3.0
    assert np.allclose(out, [np.e, 2, 3, 4])
