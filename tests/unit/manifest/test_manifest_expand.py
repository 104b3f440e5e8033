from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.errors import InputError, ManifestError
from tilec.manifest import load_manifest

MATMUL = """
[[kernel]]
name = "matmul_{dtype}"
for = { dtype = ["float16", "float32"] }
source = "kernels/gemm.py:matmul"
args = { trans_B = true }
dims = { M = ["1..64", "%128", "dynamic"], N = [4096, 14336], K = 4096 }
config = { bM = 128, bN = 128 }
"""


def configs(manifest: Path, target: str = "x86-64-v3") -> dict[str, dict[str, object]]:
    """Title of the guards to config, on one target."""
    variants = load_manifest(manifest).kernels[0].variants
    guards = {
        " ".join(f"{name}={guard}" for name, guard in v.dims.items()): v
        for v in variants
        if v.target.name == target
    }
    return {title: dict(variant.config) for title, variant in guards.items()}


def test_lists_multiply(project: Callable[..., Path]) -> None:
    plan = load_manifest(project(MATMUL))
    assert [kernel.name for kernel in plan.kernels] == ["matmul_float16", "matmul_float32"]
    assert len(plan.variants) == 2 * 2 * 3 * 2
    assert plan.kernels[0].variants[0].args == {"trans_B": True, "dtype": "float16"}
    assert plan.kernels[0].variants[1].title == "matmul_float16 on x86-64-v2, M=1..64 N=14336 K=4096"
    assert [variant.index for variant in plan.kernels[1].variants] == list(range(12))


def test_choices_left_out_make_no_variants(project: Callable[..., Path]) -> None:
    manifest = project(
        """
[[kernel]]
name = "k"
source = "kernels/gemm.py:k"
dims = { N = [64, "%8", "dynamic"], ld = ["%8", "dynamic"] }
without = [{ N = [64, "%8"], ld = "dynamic" }, { N = "dynamic", ld = "%8" }]
"""
    )
    assert list(configs(manifest)) == ["N=64 ld=%8", "N=%8 ld=%8", "N=dynamic ld=dynamic"]


def test_guards_may_be_left_out_on_some_targets(project: Callable[..., Path], head: str) -> None:
    manifest = project(
        """
[[kernel]]
name = "k"
source = "kernels/gemm.py:k"
dims = { N = ["%8", "dynamic"] }
without = [{ targets = ["cuda"], N = "%8" }]
""",
        head=head + 'cuda = ["sm_80"]\n',
    )
    (plan,) = load_manifest(manifest).kernels
    found = [(variant.target.name, str(variant.dims["N"])) for variant in plan.variants]
    cpus = [(cpu, guard) for cpu in ("x86-64-v2", "x86-64-v3") for guard in ("%8", "dynamic")]
    assert found == [*cpus, ("sm_80", "dynamic")]


def test_guards_left_out_on_cpus_are_on_those_that_a_kernel_has_code_of_its_own_for(
    project: Callable[..., Path], head: str
) -> None:
    """[targets] has another one, which runs it."""
    manifest = project(
        """
[[kernel]]
name = "k"
source = "kernels/gemm.py:k"
targets = ["x86-64-v4+vnni"]
dims = { N = ["%8", "dynamic"] }
without = [{ targets = ["cpu"], N = "%8" }]
""",
        head=head.replace('"x86-64-v2", "x86-64-v3"', '"x86-64-v4+vnni+avx512bf16"'),
    )
    (plan,) = load_manifest(manifest).kernels
    found = [(variant.target.name, str(variant.dims["N"])) for variant in plan.variants]
    assert found == [("x86-64-v4+vnni", "dynamic")]


def test_the_most_specific_override_wins_then_the_later(project: Callable[..., Path]) -> None:
    manifest = project(
        """
[[kernel]]
name = "k"
source = "kernels/gemm.py:k"
dims = { M = ["1..16", "17..64", "dynamic"] }
config = { a = 0, b = 0, c = 0 }
[[kernel.override]]
dims = { M = "1..16" }
config = { a = 3 }
[[kernel.override]]
dims = { M = "1..64" }
config = { a = 2, b = 2 }
[[kernel.override]]
targets = ["x86-64-v3"]
config = { b = 5, c = 5 }
[[kernel.override]]
config = { a = 1, b = 1, c = 1 }
"""
    )
    assert configs(manifest) == {
        "M=1..16": {"a": 3, "b": 5, "c": 5},
        "M=17..64": {"a": 2, "b": 5, "c": 5},
        "M=dynamic": {"a": 1, "b": 5, "c": 5},
    }
    assert configs(manifest, "x86-64-v2")["M=1..16"] == {"a": 3, "b": 2, "c": 1}


@pytest.mark.parametrize(
    ("cpu", "bm"),
    [
        ("x86-64-v4", 3),
        ("x86-64-v4+vnni", 4),
        ("x86-64-v4+avx512fp16", 3),
        ("x86-64-v4+avx512bf16+vnni", 5),
        ("x86-64-v4+vnni+avx512bf16+avx512fp16", 5),
        ("x86-64-v3+avxvnni", 2),
    ],
)
def test_overrides_are_for_cpus_with_more_features_too(
    project: Callable[..., Path], head: str, cpu: str, bm: int
) -> None:
    """Of several that fit, the one with the most features; a level is for itself."""
    manifest = project(
        """
[[kernel]]
name = "k"
source = "kernels/gemm.py:k"
dims = { M = "dynamic" }
config = { bM = 1 }
[[kernel.override]]
targets = ["x86-64-v4+vnni+avx512bf16"]
config = { bM = 5 }
[[kernel.override]]
targets = ["x86-64-v4+vnni"]
config = { bM = 4 }
[[kernel.override]]
targets = ["x86-64-v4"]
config = { bM = 3 }
[[kernel.override]]
targets = ["x86-64-v3"]
config = { bM = 2 }
""",
        head.replace("x86-64-v3", cpu),
    )
    (variant,) = [each for each in load_manifest(manifest).variants if each.target.level in cpu]
    assert variant.config == {"bM": bm}


def test_overrides_and_schedules_say_how_exact_variants_are(project: Callable[..., Path]) -> None:
    manifest = project(
        """
[[kernel]]
name = "k"
source = "kernels/gemm.py:k"
dims = { M = ["1..16", "dynamic"] }
rtol = 1e-3
[[kernel.override]]
targets = ["x86-64-v3"]
rtol = 2e-2
atol = 1e-2
[[kernel.override]]
dims = { M = "1..16" }
rtol = 4e-3
[[kernel.override]]
targets = ["x86-64-v3"]
dims = { M = "1..16" }
schedules = [
  { config = { a = 1 }, cost = "1", max_mismatch = 0.1 },
  { config = { a = 2 }, cost = "M", rtol = 0.0 },
]
"""
    )
    plan = load_manifest(manifest)
    assert plan.kernels[0].tolerance == {"rtol": 1e-3}
    assert [(each.target.name, str(each.dims["M"]), each.tolerance) for each in plan.variants] == [
        ("x86-64-v2", "1..16", {"rtol": 4e-3}),
        ("x86-64-v2", "dynamic", {}),
        ("x86-64-v3", "1..16", {"rtol": 4e-3, "atol": 1e-2, "max_mismatch": 0.1}),
        ("x86-64-v3", "1..16", {"rtol": 0.0, "atol": 1e-2}),
        ("x86-64-v3", "dynamic", {"rtol": 2e-2, "atol": 1e-2}),
    ]
    assert {each.config_source for each in plan.variants if not each.is_schedule} == {"default"}


def test_an_override_may_be_for_some_values(project: Callable[..., Path]) -> None:
    """The narrower one wins, wherever it stands."""
    text = """
[[kernel]]
name = "k_{dtype}"
for = { dtype = ["float32", "float16", "bfloat16"] }
source = "kernels/gemm.py:k"
config = { a = 0, b = 0 }
[[kernel.override]]
for = { dtype = ["float16"] }
config = { a = 1 }
[[kernel.override]]
for = { dtype = ["float16", "bfloat16"] }
config = { a = 2, b = 2 }
[[kernel.override]]
config = { b = 3 }
"""
    plan = load_manifest(project(text), targets=["x86-64-v3"])
    assert {kernel.name: dict(kernel.variants[0].config) for kernel in plan.kernels} == {
        "k_float32": {"a": 0, "b": 3},
        "k_float16": {"a": 1, "b": 2},
        "k_bfloat16": {"a": 2, "b": 2},
    }


def test_config_source_is_recorded(project: Callable[..., Path]) -> None:
    plan = load_manifest(
        project(
            MATMUL.replace('["float16", "float32"]', '["float32"]')
            + '[[kernel.override]]\ndims = { M = "1..64" }\nconfig = { bM = 16 }\n'
        )
    )
    assert [variant.config_source for variant in plan.variants[:3]] == ["override", "override", "manifest"]


def test_selection_by_target_and_kernel(project: Callable[..., Path]) -> None:
    manifest = project(MATMUL)
    plan = load_manifest(manifest, targets=["x86-64-v3"], kernels=["*_float32"])
    assert {(variant.kernel, variant.target.name) for variant in plan.variants} == {
        ("matmul_float32", "x86-64-v3")
    }


@pytest.mark.parametrize(
    ("options", "hint"),
    [({"kernels": ["matmul_flot32"]}, "matmul_float32"), ({"targets": ["x86-64-v9"]}, "x86-64-v")],
)
def test_a_selection_of_nothing_names_the_nearest(
    project: Callable[..., Path], options: dict[str, list[str]], hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        load_manifest(project(MATMUL), **options)
    assert hint in caught.value.remedy


def test_integers_close_a_dimension(project: Callable[..., Path]) -> None:
    manifest = project('[[kernel]]\nname = "k"\nsource = "kernels/gemm.py:k"\ndims = { N = [64, 128] }\n')
    assert len(load_manifest(manifest).variants) == 4


def test_fallback_none_allows_gaps(project: Callable[..., Path]) -> None:
    text = '[[kernel]]\nname = "k"\nsource = "kernels/gemm.py:k"\ndims = { N = "%64" }\nfallback = "none"\n'
    assert len(load_manifest(project(text)).variants) == 2


TUNED = """
edition = 1
[[tuned]]
kernel = "k"
target = "x86-64-v3"
dims = { M = "1..16" }
config = { a = 9 }
latency_us = 3.5
device = "some cpu"
source_sha256 = "SHA"
date = "2026-01-31"
"""
TUNABLE = """
[[kernel]]
name = "k"
source = "kernels/gemm.py:k"
dims = { M = ["1..16", "dynamic"] }
config = { a = 1, b = 2 }
"""


def test_tuned_configs_fill_over_the_manifest(project: Callable[..., Path], tmp_path: Path) -> None:
    manifest = project(TUNABLE)
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    (tmp_path / "demo.tuned.toml").write_text(TUNED.replace("SHA", empty))
    assert configs(manifest) == {"M=1..16": {"a": 9, "b": 2}, "M=dynamic": {"a": 1, "b": 2}}
    assert load_manifest(manifest).warnings == ()


def test_stale_tuned_configs_are_used_with_a_warning(project: Callable[..., Path], tmp_path: Path) -> None:
    manifest = project(TUNABLE)
    (tmp_path / "demo.tuned.toml").write_text(TUNED)
    assert configs(manifest)["M=1..16"]["a"] == 9
    (warning,) = load_manifest(manifest).warnings
    assert "is stale" in warning
    assert "k on x86-64-v3 M=1..16" in warning


def test_tuned_configs_of_no_variant_are_named(project: Callable[..., Path], tmp_path: Path) -> None:
    manifest = project(TUNABLE)
    (tmp_path / "demo.tuned.toml").write_text(TUNED.replace("1..16", "1..17"))
    (warning,) = load_manifest(manifest).warnings
    assert "belongs to no variant" in warning


SCHEDULED = """
[[kernel]]
name = "k"
source = "kernels/gemm.py:k"
targets = ["x86-64-v3"]
dims = { M = ["1..16", "dynamic"] }
config = { a = 0, b = 0 }
[[kernel.override]]
dims = { M = "1..16" }
config = { b = 1 }
schedules = [{ config = { a = 1 }, cost = "M" }, { config = { a = 2, b = 2 }, cost = "2 * M" }]
"""


def test_schedules_make_a_variant_each(project: Callable[..., Path]) -> None:
    variants = load_manifest(project(SCHEDULED)).kernels[0].variants
    assert [(str(one.dims["M"]), dict(one.config), one.cost, one.config_source) for one in variants] == [
        ("1..16", {"a": 1, "b": 1}, "M", "schedule"),
        ("1..16", {"a": 2, "b": 2}, "2 * M", "schedule"),
        ("dynamic", {"a": 0, "b": 0}, "", "manifest"),
    ]
    assert [one.index for one in variants] == [0, 1, 2]


def test_schedules_may_have_guards_of_their_own(project: Callable[..., Path]) -> None:
    several = """schedules = [{ config = { a = 1 }, cost = "M", dims = { M = "%8" } },
{ config = { a = 2 }, cost = "2 * M" }, { config = { a = 3 }, cost = "3", dims = { M = "%8" } }]
"""
    text = SCHEDULED.replace(SCHEDULED.splitlines(keepends=True)[-1], several)
    variants = load_manifest(project(text)).kernels[0].variants
    assert [(str(one.dims["M"]), one.config["a"], one.cost) for one in variants] == [
        ("%8,1..16", 1, "M"),
        ("1..16", 2, "2 * M"),
        ("%8,1..16", 3, "3"),
        ("dynamic", 0, ""),
    ]


def test_costs_of_gpus_ask_for_no_processor(project: Callable[..., Path]) -> None:
    text = (
        GPUS
        + """[[kernel.override]]
schedules = [{ config = { a = 1 }, cost = "on(zen4, 1, 3)" }, { config = { a = 2 }, cost = "2" }]
"""
    )
    with pytest.raises(ManifestError, match="asks whether the processor has zen4") as caught:
        load_manifest(project(text, ""))
    assert "sm_80, which it is for, too, is no CPU" in str(caught.value)


def test_schedules_may_come_from_several_lists(project: Callable[..., Path], tmp_path: Path) -> None:
    sources = 'schedules = ["fits.toml:few", "fits.toml:more"]'
    manifest = project(SCHEDULED.replace(SCHEDULED.splitlines()[-1], sources))
    lists = (("few", 4), ("more", 5), ("others", 6))
    tables = "".join(f'[[{name}]]\nconfig = {{ a = {a} }}\ncost = "{a}"\n' for name, a in lists)
    (tmp_path / "fits.toml").write_text(tables)
    variants = load_manifest(manifest).kernels[0].variants
    assert [(one.config["a"], one.cost) for one in variants] == [(4, "4"), (5, "5"), (0, "")]


def test_schedules_may_stand_in_a_file_of_their_own(project: Callable[..., Path], tmp_path: Path) -> None:
    manifest = project(SCHEDULED.replace(SCHEDULED.splitlines()[-1], 'schedules = "fits.toml:few"'))
    (tmp_path / "fits.toml").write_text('[[few]]\nconfig = { a = 3 }\ncost = "M"\n')
    (first, _) = load_manifest(manifest).kernels[0].variants
    assert (dict(first.config), first.cost, first.config_source) == (
        {"a": 3, "b": 1},
        "",
        "schedule of fits.toml",
    )


def test_tuned_configs_of_schedules_are_named(project: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "demo.tuned.toml").write_text(TUNED)
    (warning,) = load_manifest(project(SCHEDULED)).warnings
    assert "M=1..16 is not used: its variants have schedules" in warning


GPUS = """\
edition = 1

[package]
name = "demo"

[targets]
cpu = ["x86-64-v3"]
cuda = ["sm_80", "sm_90a"]
hip = ["gfx942"]
host = "x86_64-linux-gnu.2.17"

[[kernel]]
name = "k"
source = "kernels/gemm.py:k"
targets = ["aarch64", "gpu"]

[[kernel.override]]
targets = ["gpu"]
config = { a = 1, b = 1, c = 1 }

[[kernel.override]]
targets = ["sm_90a"]
config = { a = 2 }

[[kernel.override]]
targets = ["cuda"]
config = { a = 3, b = 3 }

[[kernel.override]]
targets = ["metal", "sm_120a"]
config = { c = 4 }

[kernel.tune.on.gpu]
a = [1, 2]

[kernel.tune.on.cuda]
a = [1, 3]
"""


def test_gpu_stands_for_every_family_of_gpus_and_a_family_or_target_wins(
    project: Callable[..., Path],
) -> None:
    (kernel,) = load_manifest(project(GPUS, "")).kernels
    assert {variant.target.name: dict(variant.config) for variant in kernel.variants} == {
        "sm_80": {"a": 3, "b": 3, "c": 1},
        "sm_90a": {"a": 2, "b": 3, "c": 1},
        "gfx942": {"a": 1, "b": 1, "c": 1},
    }
    tunes = [kernel.entry.tune.for_target(variant.target).axes for variant in kernel.variants]
    assert tunes == [{"a": (1, 3)}, {"a": (1, 3)}, {"a": (1, 2)}]
    chosen = load_manifest(project(GPUS, ""), targets=["gpu"])
    assert [variant.target.name for variant in chosen.variants] == ["sm_80", "sm_90a", "gfx942"]


def test_a_group_and_all_of_its_targets_that_are_listed_are_not_the_same(
    project: Callable[..., Path],
) -> None:
    alone = GPUS.replace(', "sm_90a"', "").replace('hip = ["gfx942"]\n', "")
    (variant,) = load_manifest(project(alone, "")).variants
    assert (variant.target.name, variant.config) == ("sm_80", {"a": 3, "b": 3, "c": 1})


def test_targets_that_are_chosen_count_as_listed(project: Callable[..., Path]) -> None:
    (variant,) = load_manifest(project(GPUS, ""), targets=["sm_120a"]).variants
    assert (variant.target.name, variant.config) == ("sm_120a", {"a": 3, "b": 3, "c": 4})
    assert len(load_manifest(project(GPUS, ""), targets=["sm_80"]).variants) == 1


EXTENDING = """\
edition = 1
extends = "../demo.toml"

[package]
name = "other"

[targets]
metal = ["metal3"]
cpu = ["aarch64"]
host = "aarch64-macos.12"
"""


def test_a_manifest_takes_the_kernels_of_another(project: Callable[..., Path], tmp_path: Path) -> None:
    project(GPUS, "")
    (tmp_path / "further").mkdir()
    other = tmp_path / "further" / "other.toml"
    other.write_text(EXTENDING)
    plan = load_manifest(other)
    assert plan.name == "other"
    assert [(variant.target.name, dict(variant.config)) for variant in plan.variants] == [
        ("aarch64", {}),
        ("metal3", {"a": 1, "b": 1, "c": 4}),
    ]
    assert {variant.base for variant in plan.variants} == {tmp_path}
    assert str(plan.kernels[0].place) == f"{tmp_path / 'further'}/../demo.toml:13: kernel[0].name"


LISTED = """
[[kernel]]
name = "k"
source = "kernels/gemm.py:k"
targets = ["x86-64-v3", "x86-64-v4", "x86-64-v4+vnni+amx"]

[[kernel.override]]
targets = ["x86-64-v4"]
config = { a = 4 }

[[kernel]]
name = "of_gpus"
source = "kernels/gemm.py:k"
targets = ["gpu"]

[[kernel.override]]
config = { a = 1 }
"""


def lent(project: Callable[..., Path], tmp_path: Path, *cpu: str) -> Path:
    """A manifest with these CPUs that has the kernels of another one."""
    project(LISTED, GPUS[: GPUS.index("[[kernel]]")])
    path = tmp_path / "cpus.toml"
    names = ", ".join(f'"{name}"' for name in cpu)
    path.write_text(
        'edition = 1\nextends = "demo.toml"\n\n[package]\nname = "other"\n\n'
        f'[targets]\ncpu = [{names}]\nhost = "x86_64-linux-gnu.2.17"\n'
    )
    return path


@pytest.mark.parametrize(
    ("cpus", "code"),
    [
        (["x86-64-v2"], []),
        (["x86-64-v3"], ["x86-64-v3"]),
        (["x86-64-v4+vnni"], ["x86-64-v4"]),
        (["x86-64-v3", "x86-64-v4+vnni"], ["x86-64-v3", "x86-64-v4"]),
        (["x86-64-v4", "x86-64-v4+vnni"], ["x86-64-v4"]),
        (["x86-64-v4+vnni+avx512bf16+amx"], ["x86-64-v4+vnni+amx"]),
    ],
)
def test_a_cpu_has_the_best_code_that_a_kernel_names_for_it(
    project: Callable[..., Path], tmp_path: Path, cpus: list[str], code: list[str]
) -> None:
    path = lent(project, tmp_path, *cpus)
    if not code:
        with pytest.raises(InputError) as caught:
            load_manifest(path)
        assert "leaves no variant" in caught.value.what
        return
    plan = load_manifest(path)
    assert [variant.target.name for variant in plan.variants] == code
    for variant in plan.variants:
        assert variant.config == ({"a": 4} if variant.target.level == "x86-64-v4" else {})
    assert plan.warnings == (f"{path}: 1 of the kernels are for none of these targets: of_gpus",)


def test_a_cpu_that_is_chosen_has_it_too(project: Callable[..., Path]) -> None:
    path = project(
        LISTED, GPUS[: GPUS.index("[[kernel]]")].replace('"x86-64-v3"', '"x86-64-v3", "x86-64-v4"')
    )
    (variant,) = load_manifest(path, targets=["x86-64-v4+vnni+avx512bf16"]).variants
    assert variant.target.name == "x86-64-v4"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (EXTENDING + '[[kernel]]\nname = "k"', "kernels of its own or those of another one"),
        (EXTENDING.replace("../demo", "../nowhere"), "cannot read"),
        (EXTENDING.replace("../demo", "other"), "has no kernels of its own"),
        (EXTENDING.replace('"../demo.toml"', "3"), '"extends"'),
    ],
)
def test_what_a_manifest_cannot_extend(
    project: Callable[..., Path], tmp_path: Path, text: str, what: str
) -> None:
    project(GPUS, "")
    (tmp_path / "further").mkdir()
    other = tmp_path / "further" / "other.toml"
    other.write_text(text)
    with pytest.raises(ManifestError) as caught:
        load_manifest(other)
    assert what in caught.value.what
    assert caught.value.place is not None
    assert caught.value.place.key == "extends", "said where it is named"
