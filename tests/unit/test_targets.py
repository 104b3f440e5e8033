from __future__ import annotations

import pytest

from tilec import cpu_bits, targets
from tilec.cpu_bits import CpuBit
from tilec.errors import EnvironmentError_, InputError
from tilec.targets import parse_host, parse_target

ZEN5 = frozenset(
    "pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm fma movbe avx f16c bmi1 avx2 bmi2 abm avx512f avx512dq "
    "avx512cd avx512bw avx512vl avx512_vnni avx512_bf16".split()
)
AMX = ZEN5 | {"amx_tile", "amx_bf16", "amx_int8", "avx_vnni"}


def test_features_are_put_in_canonical_order():
    target = parse_target("x86-64-v4+avx512bf16+vnni")
    assert target.name == "x86-64-v4+vnni+avx512bf16"
    assert target.mattr == ("+avx512vnni", "+avx512bf16")
    assert target.bits == (CpuBit.X86_64_V4, CpuBit.VNNI, CpuBit.AVX512BF16)


@pytest.mark.parametrize(
    ("name", "bits", "registers", "lanes"),
    [
        ("x86-64-v2", 128, 16, 4),
        ("x86-64-v3", 256, 16, 8),
        ("x86-64-v4", 512, 32, 16),
        ("aarch64", 128, 32, 4),
    ],
)
def test_vector_shape(name, bits, registers, lanes):
    target = parse_target(name)
    assert (target.vector_bits, target.vector_registers, target.lanes(32)) == (bits, registers, lanes)


def test_rank_prefers_level_then_features():
    names = ["x86-64-v2", "x86-64-v4+vnni", "x86-64-v3", "x86-64-v4", "x86-64-v4+vnni+avx512bf16"]
    ordered = sorted(names, key=lambda name: parse_target(name).rank, reverse=True)
    assert ordered == ["x86-64-v4+vnni+avx512bf16", "x86-64-v4+vnni", "x86-64-v4", "x86-64-v3", "x86-64-v2"]


def test_a_matrix_unit_ranks_before_any_vector_instructions():
    names = ["x86-64-v4+vnni+avx512bf16+avx512fp16", "x86-64-v4+amx", "x86-64-v4+avx512bf16+amx"]
    ordered = sorted(names, key=lambda name: parse_target(name).rank, reverse=True)
    assert ordered == [names[2], names[1], names[0]]


def test_amx_is_three_features_of_the_processor():
    target = parse_target("x86-64-v4+amx")
    assert target.mattr == ("+amx-tile", "+amx-bf16", "+amx-int8")
    assert targets.target_of_flags("x86_64", AMX).name == "x86-64-v4+vnni+avx512bf16+amx"
    for flag in ("amx_tile", "amx_bf16", "amx_int8"):
        assert targets.target_of_flags("x86_64", AMX - {flag}).name == "x86-64-v4+vnni+avx512bf16"


def test_zen4_is_told_by_an_instruction_that_one_maker_has():
    flags = ZEN5 | {"clzero", "avx512vbmi", "avx512_bitalg", "avx512_vpopcntdq"}
    target, without = targets.target_of_flags("x86_64", flags), parse_target("x86-64-v4+vnni+avx512bf16")
    assert (target.name, target.mattr) == (
        "x86-64-v4+vnni+avx512bf16+zen4",
        (*without.mattr, "+avx512vpopcntdq", "+avx512bitalg", "+avx512vbmi"),
    )
    for flag in ("clzero", "avx512vbmi", "avx512_bf16", "avx512_vpopcntdq"):
        assert not targets.target_of_flags("x86_64", flags - {flag}).has("zen4")


def test_features_of_a_lower_level_are_there_on_higher_ones(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    for flags, runs in ((AMX, True), (ZEN5, False)):
        cpuinfo.write_text(f"flags\t: {' '.join(flags)}\n")
        assert targets.runs_here(parse_target("x86-64-v3+avxvnni"), cpuinfo) == runs


@pytest.mark.parametrize("feature", ["sve", "sve2"])
def test_vectors_of_no_fixed_length_are_refused(feature):
    with pytest.raises(InputError, match=f"no code for the feature '{feature}'") as caught:
        parse_target(f"aarch64+dotprod+{feature}")
    assert caught.value.remedy == "leave it out: such a machine runs aarch64 with its other features"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("x86_64-v4", "'x86-64-v4'"),
        ("x86-64-v4+vnn", "'vnni'"),
        ("sm_90", "'sm_90a'"),
        ("arm64", "'aarch64'"),
    ],
)
def test_unknown_names_suggest_the_nearest(text, hint):
    with pytest.raises(InputError) as caught:
        parse_target(text)
    assert f"did you mean {hint}" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "others"), [("sm_75", "gfx90a"), ("gfx1030", "sm_80"), ("metal2", "aarch64")]
)
def test_unknown_names_are_told_what_there_is_of_their_kind(text, others):
    with pytest.raises(InputError) as caught:
        parse_target(text)
    assert text[:2] in caught.value.remedy.partition("known here: ")[2]
    assert others not in caught.value.remedy


def test_feature_of_another_level():
    with pytest.raises(InputError, match="x86-64-v3 cannot have the feature 'vnni'") as caught:
        parse_target("x86-64-v3+vnni")
    assert caught.value.remedy == "write x86-64-v4+vnni"


def test_cuda_targets_carry_the_limits_of_a_block():
    target = parse_target("sm_90a")
    assert not target.is_cpu
    assert (target.gpu.capability, target.gpu.exact, target.gpu.shared_bytes) == (90, True, 232448)
    ranked = sorted(targets.CUDA_TARGETS, key=lambda name: parse_target(name).rank, reverse=True)
    assert [name for name in ranked if name.endswith(("0", "6", "9", "90a"))] == [
        *("sm_120", "sm_110", "sm_100", "sm_90a", "sm_89", "sm_86", "sm_80"),
        *("compute_120", "compute_100", "compute_90", "compute_80"),
    ]
    assert ranked[:6] == ["sm_121a", "sm_121f", "sm_121", "sm_120a", "sm_120f", "sm_120"]
    with pytest.raises(InputError, match="takes no features"):
        parse_target("sm_90a+vnni")


@pytest.mark.parametrize(
    ("name", "runs_on"),
    [
        ("sm_100a", {100}),
        ("sm_100f", {100, 103}),
        ("sm_100", {100, 103}),
        ("sm_103f", {103}),
        ("sm_120f", {120, 121}),
        ("compute_90", {90, 100, 103, 110, 120, 121}),
    ],
)
def test_code_runs_on_its_own_capability_its_major_or_all_that_follow(name, runs_on):
    gpu = parse_target(name).gpu
    assert {each for each in (80, 90, 100, 103, 110, 120, 121) if gpu.runs_on(each)} == runs_on


@pytest.mark.parametrize(
    ("name", "kib"), [("sm_100a", 227), ("sm_103", 227), ("sm_110f", 227), ("sm_121a", 99)]
)
def test_newer_gpus_have_the_shared_memory_of_their_kind(name, kib):
    gpu = parse_target(name).gpu
    assert (gpu.shared_bytes, gpu.cluster_blocks) == (kib * 1024, 8)


def test_hosts():
    assert parse_host("aarch64-linux-gnu").triple == "aarch64-linux-gnu.2.17"
    assert parse_host("x86_64-linux-gnu.2.28").version == "2.28"
    for text in ("x86_64-windows-msvc", "x86_64", "x86_64-linux-gnu.x", "riscv-linux-gnu"):
        with pytest.raises(InputError):
            parse_host(text)


def test_flags_give_the_best_target():
    assert targets.target_of_flags("x86_64", ZEN5).name == "x86-64-v4+vnni+avx512bf16"
    assert targets.target_of_flags("x86_64", ZEN5 - {"fma"}).name == "x86-64-v2"
    assert targets.target_of_flags("aarch64", frozenset({"asimd", "asimddp"})).name == "aarch64+dotprod"
    with pytest.raises(EnvironmentError_):
        targets.target_of_flags("x86_64", frozenset())


def test_detection_covers_every_bit_and_only_looks_back():
    seen: set[CpuBit] = set()
    for item in cpu_bits.DETECTION:
        assert seen.issuperset(item.requires)
        seen.add(item.bit)
    assert seen == set(CpuBit)


def test_cpuinfo_of_both_architectures(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp\n")
    assert "asimddp" in cpu_bits.cpu_flags(path)
    path.write_text("processor: 0\n")
    with pytest.raises(EnvironmentError_):
        cpu_bits.cpu_flags(path)


@pytest.mark.parametrize(
    ("system", "machine"),
    [("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "riscv64"), ("Linux", "i686")],
)
def test_other_hosts_lack_something(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(targets.platform, "system", lambda: system)
    monkeypatch.setattr(targets.platform, "machine", lambda: machine)
    with pytest.raises(EnvironmentError_, match=f"{system} on {machine}") as caught:
        targets.native_host()
    assert caught.value.exit_code == 3
    assert "64-bit Linux with glibc, on x86-64 and aarch64" in caught.value.why


def test_an_unknown_name_is_told_with_those_of_the_family_that_was_asked_for() -> None:
    with pytest.raises(InputError) as caught:
        parse_target("avx512", wanted="cpu")
    assert caught.value.remedy == f"known here: {', '.join(targets.CPU_LEVELS)}"
