"""Which instructions statements take and what is lost, as explain, build, inspect and check say it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.ir.roads import ROADS

KERNELS = """
import tilec
import tilec.language as T


@tilec.jit(out_idx=[-1])
def product(M, N, K, odd=False, bM=128, bN=128, bK=64):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, bN), T.ceildiv(M, bM), threads=512 if odd else 256) as (bx, by):
            As = T.alloc_shared((bM, bK), "float16")
            Bs = T.alloc_shared((bK, bN), "float16")
            acc = T.alloc_fragment((bM, bN), "float32")
            T.clear(acc)
            for ko in T.Pipelined(T.ceildiv(K, bK), num_stages=3):
                T.copy(A[by * bM, ko * bK], As)
                T.copy(B[ko * bK, bx * bN], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by * bM, bx * bN])

    return main


@T.prim_func
def table(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
    with T.Kernel(1) as _:
        tile = T.alloc_shared((64,), "float32")
        T.copy(X, tile)
        for i in T.Parallel(64):
            tile[i % 7] = tile[i] + 1.0
        T.copy(tile, Y)
"""


def manifest(folder: Path, targets: str, kernel: str) -> Path:
    (folder / "k.py").write_text(KERNELS)
    head = f'edition = 1\n[package]\nname = "roads"\n[targets]\n{targets}\n[[kernel]]\n'
    path = folder / "roads.toml"
    path.write_text(f"{head}{kernel}\n")
    return path


@pytest.fixture
def gemm(tmp_path: Path) -> Callable[..., Path]:
    """A manifest of the product: ``gemm(config, targets)``."""

    def made(config: str = "", targets: str = 'cuda = ["sm_80", "sm_90a"]', odd: bool = False) -> Path:
        kernel = f'name = "product"\nsource = "k.py:product"\nargs = {{ odd = {str(odd).lower()} }}\n'
        dims = 'dims = { M = "dynamic", N = 4096, K = 4096 }\n'
        return manifest(tmp_path, targets, kernel + dims + config)

    return made


@pytest.fixture
def scalar(tmp_path: Path) -> Callable[[str], Path]:
    """A manifest of a loop that no vector runs."""
    kernel = 'name = "table"\nsource = "k.py:table"\n'
    return lambda config="": manifest(tmp_path, 'cpu = ["x86-64-v3"]', kernel + config)


def explained(tilec: Callable, path: Path, target: str) -> list[dict]:
    """The roads of the product's launch."""
    outcome = tilec("explain", path, "product", "--target", target, "--json")
    assert outcome.code == 0, outcome.err
    (launch,) = json.loads(outcome.out)["launches"]
    return launch


def test_explain_gives_every_statement_a_road(tilec: Callable, gemm: Callable[..., Path]) -> None:
    path = gemm()
    found = explained(tilec, path, "sm_90a")
    assert [road["kind"] for road in found] == ["warp_roles", "tma", "tma", "wgmma", "tma"]
    assert [road["line"] for road in found] == [10, 16, 17, 18, 19]
    assert all(road["loss"] is None for road in found)
    found = explained(tilec, path, "sm_80")
    kinds = [road["kind"] for road in found]
    assert kinds == ["registers", "cp.async", "cp.async", "mma.sync", "vectors", "vectors"], "C is staged"
    shown = tilec("explain", path, "product", "--target", "sm_80").out
    assert "k.py:18 As, Bs -> acc mma.sync m16n8k16" in " ".join(shown.split())


def test_a_launch_without_roles_names_line_condition_and_remedy(
    tilec: Callable, gemm: Callable[..., Path]
) -> None:
    path = gemm(odd=True)
    (lost,) = (road for road in explained(tilec, path, "sm_90a") if road["kind"] == "threads")
    assert lost["line"] == 10
    assert lost["loss"]["road"] == "warp_roles"
    assert lost["loss"]["condition"].startswith("512 threads are not")
    assert "threads=128" in lost["loss"]["remedy"]
    shown = tilec("explain", path, "product", "--target", "sm_90a").out
    assert "lost: k.py:10: T.Kernel: keeps the launch from warp roles" in shown
    assert "  what to do: give T.Kernel threads=128" in shown


@pytest.mark.parametrize("odd", [False, True])
def test_a_kernel_that_asks_for_warp_roles_gets_them_or_is_refused(
    tilec: Callable, gemm: Callable[..., Path], odd: bool
) -> None:
    config = '[[kernel.override]]\ntargets = ["sm_90a"]\nconfig = { road = ["warp_roles", "wgmma"] }'
    path = gemm(config, odd=odd)
    checked = tilec("check", path, "-j", "1")
    assert (checked.code, "asks for warp_roles" in checked.err) == (0, odd)
    strict = tilec("check", path, "-j", "1", "--strict")
    assert strict.code == (1 if odd else 0)
    if odd:
        assert "k.py:10: product on sm_90a" in strict.err
        assert "512 threads are not" in strict.err
        assert "asks for wgmma" in strict.err


def test_targets_that_have_no_such_road_say_so(tilec: Callable, gemm: Callable[..., Path]) -> None:
    path = gemm('config = { road = "warp_roles" }', 'cpu = ["x86-64-v3"]\ncuda = ["sm_80"]')
    strict = tilec("check", path, "-j", "1", "--strict")
    assert strict.code == 1
    assert "product on sm_80" in strict.err
    assert "asks for warp_roles, which sm_80 has not" in strict.err
    assert "x86" not in strict.err, "a CPU is not asked for what only GPUs have"


@pytest.mark.parametrize("road", ["tensor_cores", "async_copy", "vectors"])
def test_what_a_kernel_has_it_may_ask_for(tilec: Callable, gemm: Callable[..., Path], road: str) -> None:
    assert tilec("check", gemm(f'config = {{ road = "{road}" }}'), "-j", "1", "--strict").code == 0


def test_a_word_that_is_no_road_is_refused(tilec: Callable, gemm: Callable[..., Path]) -> None:
    outcome = tilec("check", gemm('config = { road = "wgma" }'), "-j", "1")
    assert outcome.code == 2
    assert "one of warp_roles, wgmma" in outcome.err


def test_build_says_what_is_lost_and_inspect_finds_it_in_the_library(
    tilec: Callable, scalar: Callable[..., Path]
) -> None:
    path = scalar('config = { road = "vectors" }')
    line = "slower than it might be: table on x86-64-v3: k.py:30: tile: loop over i is scalar"
    for _ in range(2):
        built = tilec("build", path, "-j", "1")
        assert built.code == 0
        assert built.err.count(line) == 1, "compiled or not"
        assert "its iterations share elements; write each element in one iteration" in built.err
        assert "asks for vectors" in built.err
    summary = json.loads(tilec("build", path, "-j", "1", "--json").out)
    (lost,) = summary["losses"]
    assert (lost["kernel"], lost["line"], lost["loss"]["road"]) == ("table", 30, "vectors")
    shown = tilec("inspect", "dist/roads", "--roads").out
    assert "table on x86-64-v3, variants 0" in shown
    assert "loop over i is scalar" in shown
    (found,) = json.loads(tilec("inspect", "dist/roads", "--roads", "--json").out)
    assert [road["kind"] for road in found["launches"][0]] == ["vectors", "scalar", "vectors"]
    refused = tilec("build", path, "-j", "1", "--strict")
    assert refused.code == 1
    assert "k.py:30: table on x86-64-v3" in refused.err
    assert tilec("build", scalar(), "-j", "1", "--strict").code == 0, "who asks for nothing misses nothing"


def test_inspect_says_what_multiplies_on_each_target(tilec: Callable, gemm: Callable[..., Path]) -> None:
    path = gemm("config = { bM = 16, bN = 16, bK = 16 }", targets='cpu = ["x86-64-v2", "x86-64-v3"]')
    assert tilec("build", path, "-j", "1").code == 0
    lines = [line.split() for line in tilec("inspect", "dist/roads").out.splitlines()]
    head, *rows = [line for line in lines if line and (line[0] == "id" or line[0].isdigit())]
    assert head[-2:] == ["products", "by"]
    assert [(row[1], row[-1]) for row in rows] == [("x86-64-v3", "vfmadd231ps"), ("x86-64-v2", "mulps")]
    (kernel,) = json.loads(tilec("inspect", "dist/roads", "--json").out)["kernels"]
    assert [each["launches"][0]["products"] for each in kernel["variants"]] == [["vfmadd231ps"], ["mulps"]]


def test_every_road_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "roads.md").read_text()
    assert {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")} == set(ROADS)
