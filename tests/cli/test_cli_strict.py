"""Warnings about kernels: said by check and build, errors under --strict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

MANIFEST = """
edition = 1
[package]
name = "odd"
[targets]
cpu = ["x86-64-v3"]
[[kernel]]
name = "odd"
source = "odd.py:odd"
dims = { n = ["1..8", "dynamic"] }
"""
KERNEL = """
import tilec.language as T

n = T.dynamic("n")

@T.prim_func
def odd(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
    with T.Kernel(1) as _:
        tile = T.alloc_shared((4,), "float32")
        T.copy(tile, Y[0:4])
"""
SIZED = """
import tilec.language as T

def odd(n, block=32, width=None):
    @T.prim_func
    def main(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block)) as b:
            T.copy(X[b * block : b * block + block], Y[b * block : b * block + block])

    return main
"""
UNWRITTEN = "odd.py:10: tile is read before anything is written to it"
NOTHING = "odd.py:8: odd writes nothing"


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "odd.py").write_text(KERNEL)
    path = tmp_path / "odd.toml"
    path.write_text(MANIFEST)
    return path


def test_a_tile_without_contents_is_said_once_and_refused(tilec: Callable, manifest: Path) -> None:
    checked = tilec("check", manifest, "-j", "1")
    assert (checked.code, checked.err.count(UNWRITTEN)) == (0, 1), "two variants have it"
    assert "warning: " in checked.err
    assert UNWRITTEN in tilec("explain", manifest, "odd").err
    (said,) = json.loads(tilec("check", manifest, "-j", "1", "--json").out)["warnings"]
    assert UNWRITTEN in said
    refused = tilec("check", manifest, "-j", "1", "--strict")
    assert refused.code == 1
    assert "error: 1 warning is an error under --strict" in refused.err
    assert UNWRITTEN in refused.err


def test_a_build_says_it_whether_it_compiles_or_not(tilec: Callable, manifest: Path) -> None:
    refused = tilec("build", manifest, "-j", "1", "--strict")
    assert refused.code == 1
    assert UNWRITTEN in refused.err
    assert not Path("dist/odd/lib").exists(), "nothing is written"
    for _ in range(2):
        built = tilec("build", manifest, "-j", "1")
        assert (built.code, built.err.count(UNWRITTEN)) == (0, 1)
    assert "0 variants compiled" in built.out
    assert tilec("build", manifest, "-j", "1", "--strict").code == 1, "what is cached is judged, too"


def test_a_build_says_which_values_to_try_are_of_another_kind(tilec: Callable, manifest: Path) -> None:
    manifest.with_name("odd.py").write_text(SIZED)
    manifest.write_text(MANIFEST + '[kernel.tune]\nblock = [32, "64"]\nsplit_k = ["x"]\nwidth = ["x"]\n')
    told = [
        'odd.toml:12: kernel[0].tune.block: block = "64" is among the values to try, where odd has an',
        'odd.toml:13: kernel[0].tune.split_k: split_k = "x" is among the values to try, where odd has a',
    ]
    for _ in range(2):
        built = tilec("build", manifest, "-j", "1")
        assert (built.code, [built.err.count(line) for line in told]) == (0, [1, 1]), built.err
        assert built.err.count("warning") == 2
    assert "0 variants compiled" in built.out, "the cache tells the kinds of parameters, too"
    manifest.write_text(MANIFEST + "[kernel.tune]\nblock = [32, 64]\n")
    assert tilec("build", manifest, "-j", "1", "--strict").code == 0


def test_what_is_said_while_a_kernel_is_traced_is_a_warning_like_others(
    tilec: Callable, manifest: Path
) -> None:
    stored = 'tile = T.alloc_shared((4,), "uint8"); T.fill(tile, 300)'
    (manifest.parent / "odd.py").write_text(KERNEL.replace('tile = T.alloc_shared((4,), "float32")', stored))
    for command in ("check", "build", "build"):
        said = tilec(command, manifest, "-j", "1")
        assert (said.code, said.err.count("odd.py:9: T.fill makes 44 of 300")) == (0, 1)
    assert tilec("build", manifest, "-j", "1", "--strict").code == 1


def test_a_kernel_that_writes_nothing_is_refused(tilec: Callable, manifest: Path) -> None:
    source = manifest.parent / "odd.py"
    source.write_text(KERNEL.replace("T.copy(tile, Y[0:4])", "T.copy(X[0:4], tile)"))
    assert NOTHING in tilec("check", manifest, "-j", "1").err
    assert tilec("check", manifest, "-j", "1", "--strict").code == 1
    source.write_text(KERNEL.replace("T.copy(tile, Y[0:4])", "T.clear(tile); T.copy(tile, Y[0:4])"))
    clean = tilec("check", manifest, "-j", "1", "--strict")
    assert (clean.code, clean.err) == (0, "")
    assert tilec("build", manifest, "-j", "1", "--strict").code == 0


PRODUCT = """
import tilec.language as T

n = T.dynamic("n")

@T.prim_func
def odd(X: T.Tensor((n, 16), "float32"), Y: T.Tensor((n, 16), "float32")):
    with T.Kernel(T.ceildiv(n, 16)) as b:
        tile, sums = T.alloc_shared((16, 16), "float32"), T.alloc_fragment((16, 16), "float32")
        T.copy(X[b * 16, 0], tile)
        T.gemm(tile, tile, sums, clear_accum=True)
        T.copy(sums, Y[b * 16, 0])
"""


def test_a_build_names_keys_that_cpus_do_not_obey(tilec: Callable, manifest: Path) -> None:
    manifest.with_name("odd.py").write_text(PRODUCT)
    manifest.write_text(MANIFEST.replace('["1..8", "dynamic"]', '"dynamic"') + "config = { split_k = 4 }\n")
    told = "odd.toml:11: kernel[0].config.split_k: split_k = 4 has no effect on CPUs, and there are no other"
    assert told in tilec("check", manifest, "-j", "1").err
    for _ in ("compiled", "from the cache"):
        built = tilec("build", manifest, "-j", "1")
        assert (built.code, built.err.count(told)) == (0, 1)
    assert tilec("build", manifest, "-j", "1", "--strict").code == 1


def test_overrides_for_no_target_are_counted_and_named(tilec: Callable, manifest: Path) -> None:
    one = '[[kernel.override]]\ntargets = ["{}"]\nconfig = {{ debug = true }}\n'
    manifest.write_text(MANIFEST + one.format("sm_80") + one.format("x86-64-v3"))
    for command in ("check", "build"):
        said = tilec(command, manifest, "-j", "1")
        assert said.out.endswith("1 override is for none of the manifest's targets (-v names them)\n")
        *_, named, count = tilec(command, manifest, "-j", "1", "-v").out.splitlines()
        assert "kernel[0].override[0].targets: the override is for sm_80, which is none of the" in named
        assert count == "1 override is for none of the manifest's targets"
        (listed,) = json.loads(tilec(command, manifest, "-j", "1", "--json").out)["idle_overrides"]
        assert listed == named
