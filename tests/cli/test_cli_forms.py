"""One manifest with every form that `source` may name, built, loaded and called."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilec.portable.loader import load

SOURCES = Path(__file__).parents[1] / "unit" / "language" / "source_forms.py"
KERNELS = {
    "described": 'dims = { rows = 3, columns = "dynamic" }',
    "plain": 'dims = { N = "dynamic" }\nargs = { term = 5.0 }\nconfig = { block = 8 }',
    "tuned": "dims = { N = 40 }",
    "Kernels.added": 'dims = { M = "dynamic", n = "dynamic" }',
    "open_sizes": 'dims = { X__shape_0 = 3, N = "dynamic", Z__shape_0 = 3, step = "dynamic" }\n'
    'args = { "X.dtype" = "float32", "Z.dtype" = "float32" }',
    "at_addresses": 'dims = { n = "dynamic" }',
}


ADDRESSED = """
import tilec.language as T


@T.prim_func
def twice(a: T.ptr, Y: T.Tensor((48,), "float32")):
    A, bits = T.make_tensor(a, (48,), "float32"), T.make_tensor(a, (6, 8), "int32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(48):
            Y[i] = T.if_then_else(bits[i // 8, i % 8] < 0, -A[i], A[i])


@T.prim_func
def grouped(tab: T.Tensor((3,), T.ptr), sizes: T.Tensor((3,), "int32"), Y: T.Tensor((3, 32), "float32")):
    with T.Kernel(3, threads=32) as bx:
        A = T.make_tensor(tab[bx], (sizes[bx], 2), "float32")
        for i in T.Parallel(32):
            Y[bx, i] = A[i, 0] + A[i, 1]


@T.prim_func
def filled(tab: T.Tensor((3,), T.ptr), X: T.Tensor((32,), "float32")):
    with T.Kernel(3, threads=32) as bx:
        A = T.make_tensor(tab[bx], (32,), "float32")
        for i in T.Parallel(32):
            A[i] = X[i]
"""


def manifest(names: list[str]) -> str:
    head = 'edition = 1\n\n[package]\nname = "forms"\n\n[targets]\ncpu = ["x86-64-v2"]\n'
    tables = (
        f'\n[[kernel]]\nname = "{name.rpartition(".")[2]}"\nsource = "{SOURCES}:{name}"\n{KERNELS[name]}\n'
        for name in names
    )
    return head + "".join(tables)


def test_every_form_is_built_loaded_and_called(tilec: Callable, tmp_path: Path) -> None:
    (tmp_path / "forms.toml").write_text(manifest(list(KERNELS)))
    outcome = tilec("build", "forms.toml", "-o", "dist")
    assert outcome.code == 0, outcome.err
    library, x = load("dist"), np.arange(120, dtype=np.float32).reshape(3, 40)
    y = np.zeros_like(x)
    library.described(x, y)
    np.testing.assert_array_equal(y, x + 1)
    library.plain(x.ravel(), y.ravel())
    np.testing.assert_array_equal(y, x + 5)
    np.testing.assert_array_equal(library.tuned(x[0].copy()), x[0] + 3)
    np.testing.assert_array_equal(library.added(x), x + 4)
    steps = np.asarray([1, 0, 2, 0, 3, 0], np.float32)[::2]
    np.testing.assert_array_equal(library.open_sizes(x, steps), x + steps[:, None])
    library.at_addresses(x.ctypes.data, y.ctypes.data, n=120)
    np.testing.assert_array_equal(y, x * 2)
    header = Path("dist/include/forms.h").read_text()
    assert "forms_at_addresses(const tilec_exec* exec, const void* x, void* y, int64_t n)" in header
    assert "address of float32[n], written" in header
    outcome = tilec("verify", "dist")
    assert outcome.code == 0, outcome.out + outcome.err


def test_the_configs_of_autotune_are_the_space(tilec: Callable, tmp_path: Path) -> None:
    (tmp_path / "forms.toml").write_text(manifest(["tuned", "plain"]))
    outcome = tilec("tune", "forms.toml", "--dry-run", "-j", "1")
    assert outcome.code == 0, outcome.err
    assert re.search(r"tuned on x86-64-v2, N=40 +2 +3 +2 ", outcome.out)  # choices, configs, to measure
    assert "plain" not in outcome.out


def test_memory_is_made_for_addresses(tilec: Callable, tmp_path: Path) -> None:
    tables = [
        f'\n[[kernel]]\nname = "{name}"\nsource = "addresses.py:{name}"\n'
        for name in ("twice", "grouped", "filled")
    ]
    (tmp_path / "addresses.py").write_text(ADDRESSED)
    (tmp_path / "forms.toml").write_text(manifest([]) + "".join(tables))
    outcome = tilec("build", "forms.toml", "-o", "dist")
    assert outcome.code == 0, outcome.err
    outcome = tilec("verify", "dist")
    assert outcome.code == 0, outcome.out + outcome.err
    assert re.search(r"grouped .* ok\n", outcome.out)
    assert re.search(r"twice .* ok\n", outcome.out)
    assert "skipped filled on x86-64-v2: verifying A, which the kernel writes at an address" in outcome.err


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("dims = { N = 40 }\nargs = { terms = 1.0 }", "has no parameter terms"),
        ("dims = { N = 40 }\nargs = { N = 1 }", "given"),
        ("dims = { }", "needs parameter N"),
    ],
)
def test_what_a_manifest_cannot_bind(tilec: Callable, tmp_path: Path, line: str, what: str) -> None:
    (tmp_path / "forms.toml").write_text(manifest(["tuned"]).replace(KERNELS["tuned"], line))
    outcome = tilec("build", "forms.toml", "-o", "dist")
    assert outcome.code == 2
    assert what in outcome.err
    assert not list(Path("dist").rglob("*.so"))
