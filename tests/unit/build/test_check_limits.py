"""What `check` looks at beyond single kernels: thousands of variants, and what no device has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tilec.build.frontend import check_sources
from tilec.build.sampling import MOST_ELABORATED, distinct, sampled
from tilec.errors import UnsupportedError
from tilec.manifest import Plan, load_manifest

KERNELS = """\
import tilec.language as T


def rows(M, N, block=64, dtype="float32"):
    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            s = T.alloc_shared((block, 64), dtype)
            T.copy(A[bx * block, 0], s)
            T.copy(s, B[bx * block, 0])

    return main
"""
HEAD = '[package]\nname = "demo"\n[targets]\ncpu = ["x86-64-v2"]\ncuda = ["sm_90a", "sm_86"]\n'
ENTRY = '[[kernel]]\nname = "rows{}"\nsource = "kernels.py:rows"\n'


def plan(folder: Path, *lines: str, name: str = "") -> Plan:
    (folder / "kernels.py").write_text(KERNELS)
    path = folder / "demo.toml"
    path.write_text(f"edition = 1\n{HEAD}{ENTRY.format(name)}" + "\n".join(lines))
    return load_manifest(path)


def numbers(count: int) -> str:
    return str(list(range(1, count + 1)))


def test_of_ten_thousand_variants_a_hundred_are_elaborated(tmp_path: Path) -> None:
    made = plan(tmp_path, f"dims = {{ M = {numbers(100)}, N = {numbers(100)} }}", 'targets = ["cpu"]')
    seen: list[tuple[int, int, str]] = []
    checked = check_sources(made, 1, progress=lambda *step: seen.append(step))
    assert (len(made.variants), checked.total, checked.elaborated) == (10_000, 10_000, 100)
    assert [(done, total) for done, total, _ in seen] == [(number, 100) for number in range(1, 101)]
    assert all(title.startswith("rows on x86-64-v2") for _, _, title in seen)


def test_a_sample_has_every_guard_value_and_config(tmp_path: Path) -> None:
    made = plan(
        tmp_path,
        'for = { dtype = ["float32", "float16"] }',
        f"dims = {{ M = {numbers(40)}, N = {numbers(7)} }}",
        'targets = ["cpu"]',
        "[[kernel.override]]\ndims = { M = 3, N = 5 }\nconfig = { block = 32 }",
        name="_{dtype}",
    )
    chosen = [choice.variant for choice in sampled(distinct(made))]
    assert len(distinct(made)) == 560
    assert len(chosen) < 60
    for axis, count in (("M", 40), ("N", 7)):
        assert len({str(variant.dims[axis]) for variant in chosen}) == count
    assert Counter(variant.config.get("block") for variant in chosen).keys() == {None, 32}
    assert {variant.args["dtype"] for variant in chosen} == {"float32", "float16"}


def test_few_variants_are_all_taken_and_targets_share_them(tmp_path: Path) -> None:
    made = plan(tmp_path, f"dims = {{ M = {numbers(9)}, N = {numbers(9)} }}")
    choices = distinct(made)
    assert (len(made.variants), len(choices), len(sampled(choices))) == (243, 81, 81)
    assert {target.name for target in choices[0].targets} == {"x86-64-v2", "sm_90a", "sm_86"}


def test_a_sample_is_bounded(tmp_path: Path) -> None:
    made = plan(tmp_path, f"dims = {{ M = {numbers(900)}, N = 4 }}", 'targets = ["cpu"]')
    assert len(sampled(distinct(made))) == MOST_ELABORATED


def test_shared_memory_that_no_block_has_is_refused(tmp_path: Path) -> None:
    made = plan(tmp_path, 'dims = { M = "dynamic", N = "dynamic" }', "config = { block = 16384 }")
    with pytest.raises(UnsupportedError, match="needs 4194304 bytes of shared memory at once") as caught:
        check_sources(made, 1)
    error = caught.value
    assert "a block on sm_90a has 232448" in error.what
    assert error.exit_code == 2
    assert error.place is not None
    assert (error.place.file, error.place.line) == (str(tmp_path / "kernels.py"), 9)
    assert "sm_90a" in error.remedy


def test_the_limit_is_that_of_each_target(tmp_path: Path) -> None:
    lines = ('dims = { M = "dynamic", N = "dynamic" }', "config = { block = 512 }")
    with pytest.raises(UnsupportedError, match=r"needs 131072 bytes .* on sm_86 has 101376"):
        check_sources(plan(tmp_path, *lines), 1)
    check_sources(plan(tmp_path, *lines, 'targets = ["cpu", "sm_90a"]'), 1)
