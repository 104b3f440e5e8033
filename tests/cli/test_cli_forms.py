"""One manifest with every form that `source` may name, built, loaded and called."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilec.loader import load

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
