"""What `check` looks at beyond single kernels: thousands of variants, and what no device has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tilec.backends.pipeline import lower
from tilec.build.elaborated.checking import check_sources
from tilec.build.elaborated.frontend import elaborate_variant
from tilec.build.elaborated.sampling import MOST_ELABORATED, distinct, sampled
from tilec.errors import InputError, ManifestError, Place, UnsupportedError
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


def product(M, N, block=64):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), B: T.Tensor((N, N), "float32"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            c = T.alloc_fragment((block, N), "float32")
            a, b = T.alloc_shared((block, N), "float32"), T.alloc_shared((N, N), "float32")
            T.clear(c)
            T.copy(A[bx * block, 0], a)
            T.copy(B, b)
            T.gemm(a, b, c)
            T.copy(c, C[bx * block, 0])

    return main
"""
ALONE = """\
import tilec.language as T


@T.prim_func
def rows(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32"), W: T.Tensor((1,), "int64"),
         H: T.Tensor((1,), "float16")):
    with T.Kernel(1, threads=64) as bx:
        i = T.get_thread_binding()
        {}
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


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "x86-64-v2"])
def test_fragments_that_no_thread_holds_are_refused_on_gpus(tmp_path: Path, target: str) -> None:
    plan(tmp_path, 'dims = { M = "dynamic", N = "dynamic" }', "config = { block = 8160 }")
    (tmp_path / "kernels.py").write_text(
        KERNELS.replace("alloc_shared((block, 64)", "alloc_fragment((block, 64)")
    )
    path = tmp_path / "demo.toml"
    check_sources(load_manifest(path, targets=[target]), 1)
    path.write_text(path.read_text().replace("8160", "8192"))
    more = load_manifest(path, targets=[target])
    if target == "x86-64-v2":
        check_sources(more, 1)
        return
    with pytest.raises(UnsupportedError, match="each of 128 threads holds 4096 words of 32 bits, on a GPU"):
        check_sources(more, 1)


@pytest.mark.parametrize(
    ("given", "key", "what", "why"),
    [
        (
            'config = { block = "64" }',
            "config.block",
            'block = "64" is a string, where rows has an integer',
            "its default is 64, and with this value kernel rows: T.ceildiv cannot use what it was given",
        ),
        (
            "args = { dtype = 32 }",
            "args.dtype",
            "dtype = 32 is an integer, where rows has a string",
            'its default is "float32", and with this value 32 is no dtype',
        ),
        (
            "[[kernel.override]]\nconfig = { block = true }",
            "override[0].config.block",
            "block = true is a boolean, where rows has an integer",
            "its default is 64, and with this value operator // does not take int32 and True",
        ),
        ("config = { swap = 4 }", "config.swap", "config value swap = 4 cannot be used", "compiling"),
        ('config = { debug = "y" }', "config.debug", "config value debug = 'y' cannot be used", "compiling"),
        (
            "config = { blok = 3 }",
            "config.blok",
            "kernel rows has no parameter blok",
            "rows takes M, N, block",
        ),
    ],
)
def test_values_that_a_kernel_cannot_use_are_said_where_they_stand(
    tmp_path: Path, given: str, key: str, what: str, why: str
) -> None:
    made = plan(tmp_path, 'dims = { M = "dynamic", N = "dynamic" }', *given.split("\n"))
    with pytest.raises(InputError) as caught:
        check_sources(made, 1)
    text = (tmp_path / "demo.toml").read_text().splitlines()
    place = Place(str(tmp_path / "demo.toml"), text.index(given.split("\n")[-1]) + 1, f"kernel[0].{key}")
    assert (caught.value.place, caught.value.what) == (place, what)
    assert why in caught.value.why


def test_a_value_of_another_kind_than_its_default_is_fine_where_the_kernel_takes_it(tmp_path: Path) -> None:
    made = plan(tmp_path, 'dims = { M = "dynamic", N = "dynamic" }', 'args = { dtype = "int8" }')
    source = (tmp_path / "kernels.py").read_text()
    (tmp_path / "kernels.py").write_text(source.replace('dtype="float32"', "dtype=3"))
    assert check_sources(made, 1).remarks == ()


def test_schedule_keys_of_products_are_warned_of_where_there_is_none(tmp_path: Path) -> None:
    made = plan(tmp_path, 'dims = { M = "dynamic", N = 4 }', "config = { split_k = 4, pdl = true }")
    (remark,) = check_sources(made, 1).remarks
    assert str(remark) == (
        f"{tmp_path}/demo.toml:11: kernel[0].config.split_k: split_k = 4 has no effect on rows,"
        " which has no product; leave out split_k"
    )


@pytest.mark.parametrize("gpus", [False, True])
def test_schedule_keys_that_cpus_do_not_obey_are_warned_of_where_they_are_alone(
    tmp_path: Path, gpus: bool
) -> None:
    plan(tmp_path, 'dims = { M = "dynamic", N = 64 }', "config = { split_k = 4, spread_k = 6 }")
    path = tmp_path / "demo.toml"
    text = path.read_text().replace("kernels.py:rows", "kernels.py:product")
    path.write_text(text if gpus else text.replace('cuda = ["sm_90a", "sm_86"]', ""))
    said = [str(remark) for remark in check_sources(load_manifest(path, targets=["cpu"]), 1).remarks]
    told = "split_k = 4 has no effect on CPUs, and there are no other targets; leave out split_k"
    assert said == ([] if gpus else [f"{path}:11: kernel[0].config.split_k: {told}"])


@pytest.mark.parametrize(
    ("tune", "told"),
    [
        ('block = [32, "64"]', 'block = "64" is among the values to try, where rows has an integer'),
        ('swap = ["x"]', 'swap = "x" is among the values to try, where rows has true or false'),
        ("block = [32]\nswap = [true]", ""),
        ('space = "auto"', ""),
    ],
)
def test_values_to_try_of_another_kind_are_warned_of(tmp_path: Path, tune: str, told: str) -> None:
    made = plan(tmp_path, 'dims = { M = "dynamic", N = 4 }', f"[kernel.tune.on.sm_90a]\n{tune}")
    assert [remark.what for remark in check_sources(made, 1).remarks] == ([told] if told else [])


def test_conditions_on_unknown_names_are_told(tmp_path: Path) -> None:
    made = plan(
        tmp_path, 'dims = { M = "dynamic", N = 4 }', "[kernel.tune]\nblock = [32]\nwhere = ['blok > 3']"
    )
    with pytest.raises(ManifestError, match='the condition "blok > 3" reads "blok"') as caught:
        check_sources(made, 1)
    assert caught.value.remedy == 'did you mean "block"? known here: block, N, target'


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("T.cluster_sync()", "barriers of clusters on {}: blocks form clusters from sm_90 on"),
        ("b = T.alloc_cluster_barrier(1)", "barriers of clusters on {}: blocks form clusters from sm_90 on"),
        (
            "b = T.alloc_barrier(1); T.mbarrier_expect_tx(b[0], 64)",
            "T.mbarrier_expect_tx on {}: barriers count bytes from sm_90 on",
        ),
    ],
)
@pytest.mark.parametrize(("family", "target"), [("cuda", "sm_86"), ("hip", "gfx942")])
def test_what_begins_with_sm_90_is_told_before_the_build(
    tmp_path: Path, statement: str, told: str, family: str, target: str
) -> None:
    (tmp_path / "kernels.py").write_text(ALONE.format(statement + "; B[i] = A[i]"))
    manifest = tmp_path / "demo.toml"
    targets = f'[package]\nname = "demo"\nversion = "1"\n[targets]\n{family} = ["{target}"]\n'
    manifest.write_text(f"edition = 1\n{targets}{ENTRY.format('')}")
    with pytest.raises(UnsupportedError) as caught:
        check_sources(load_manifest(manifest), 1)
    assert caught.value.what == told.format(target)
    assert caught.value.place is not None
    assert caught.value.place.line == 9


@pytest.mark.parametrize(
    ("statement", "metal", "hip"),
    [
        ("B[i] = T.cast(T.cast(A[i], 'float64') * 0.1, 'int32')", "float64 on Apple GPUs", ""),
        ("T.atomic_add(W[0], T.cast(A[i], 'int64'))", "atomics of int64 on Apple GPUs", ""),
        ("T.atomic_add(H[0], T.cast(A[i], 'float16'))", "atomics of float16 on Apple GPUs", ""),
        (
            "T.atomic_add(B[0], A[i], memory_order='acq_rel')",
            'atomics of the order "acq_rel" on Apple GPUs',
            "",
        ),
        (
            "T.import_source('int twice(int x);'); B[i] = T.call_extern('int32', 'twice', A[i])",
            "twice on Apple GPUs",
            "",
        ),
        ("B[i] = T.match_any_sync(A[i])", "T.match_any_sync on Apple GPUs", ""),
        ("b = T.alloc_barrier(1); T.barrier_arrive(b)", "T.alloc_barrier on Apple GPUs", ""),
        (
            "T.sync_grid()",
            "blocks that wait for each other, on an Apple GPU",
            "blocks that wait for each other, on an AMD GPU",
        ),
        ("T.atomic_add(B[0], A[i])", "", ""),
    ],
)
def test_what_no_device_of_a_target_does_is_told_before_the_build(
    tmp_path: Path, statement: str, metal: str, hip: str
) -> None:
    head = HEAD.replace("[targets]", '[targets]\nhost = "aarch64-macos.12"\nmetal = ["metal3"]')
    head = head.replace("x86-64-v2", "aarch64").replace('cuda = ["sm_90a", "sm_86"]', "")
    for family, name, told in (("metal", head, metal), ("hip", HEAD.replace("cuda", "hip"), hip)):
        name = name.replace('["sm_90a", "sm_86"]', '["gfx942"]')
        (tmp_path / "kernels.py").write_text(ALONE.format(statement))
        path = tmp_path / f"{family}.toml"
        path.write_text(f"edition = 1\n{name}{ENTRY.format('')}targets = ['{family}']\n")
        made = load_manifest(path)
        if not told:
            check_sources(made, 1)
            continue
        with pytest.raises(UnsupportedError) as caught:
            check_sources(made, 1)
        assert (caught.value.what, caught.value.place.line) == (told, 9)
        with pytest.raises(UnsupportedError) as lowered:
            lower(elaborate_variant(made.variants[0]).kernel, made.variants[0].target)
        assert (lowered.value.what, lowered.value.remedy) == (told, caught.value.remedy)
