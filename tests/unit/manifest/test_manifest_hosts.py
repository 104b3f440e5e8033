"""`[targets] host`: names, lists, and which targets each host takes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tilec.build.answers.alike import alike
from tilec.errors import InputError, ManifestError
from tilec.manifest import Plan, load_manifest, load_manifests, of_all_hosts
from tilec.targets import parse_host

TEXT = """\
edition = 1
[package]
name = "demo"
version = "1.0"
[targets]
cpu = ["x86-64-v2", "aarch64"]
cuda = ["sm_80"]
host = {hosts}
[[kernel]]
name = "copy"
source = "kernel.py:copy"
dims = {{ n = "dynamic" }}
{more}
"""
THREE = '["x86_64-linux-gnu.2.17", "aarch64-macos.12", "aarch64-windows"]'
KERNEL = "import tilec\n\ndef copy(n):\n    return None\n"
TUNED = f"""\
edition = 1
[[tuned]]
kernel = "copy"
target = "aarch64"
dims = {{ n = "dynamic" }}
config = {{ threads = 64 }}
latency_us = 3.5
device = "some cpu"
source_sha256 = "{hashlib.sha256(KERNEL.encode()).hexdigest()}"
date = "2026-01-31"
"""


def load(folder: Path, hosts: str, more: str = "", targets: tuple[str, ...] = ()) -> tuple[Plan, ...]:
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "demo.toml").write_text(TEXT.format(hosts=hosts, more=more))
    return load_manifests(folder / "demo.toml", targets=targets)


def names(plan: Plan) -> list[str]:
    return [variant.target.name for variant in plan.variants]


@pytest.mark.parametrize(
    ("text", "linker", "code", "library"),
    [
        ("aarch64-macos", "aarch64-macos.12.0", "aarch64-apple-macosx12.0.0", "libdemo.dylib"),
        ("x86_64-macos.14", "x86_64-macos.14.0", "x86_64-apple-macosx14.0.0", "libdemo.dylib"),
        ("x86_64-windows", "x86_64-windows-gnu", "x86_64-w64-windows-gnu", "demo.dll"),
        ("aarch64-linux-gnu.2.28", "aarch64-linux-gnu.2.28", "aarch64-unknown-linux-gnu", "libdemo.so"),
    ],
)
def test_spellings(text: str, linker: str, code: str, library: str) -> None:
    host = parse_host(text)
    assert (host.linker_triple, host.code_triple) == (linker, code)
    assert host.system.library.format(name="demo") == library
    assert parse_host(host.triple) == host


@pytest.mark.parametrize("text", ["x86_64-windows.10", "aarch64-macos.9", "x86_64-freebsd", "x86_64"])
def test_other_hosts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="cannot be used") as caught:
        parse_host(text)
    assert "Windows" in caught.value.why


def test_each_host_takes_the_targets_that_run_there(tmp_path: Path) -> None:
    taken = load(tmp_path, THREE)
    assert list(map(names, taken)) == [["x86-64-v2", "sm_80"], ["aarch64"], ["aarch64", "sm_80"]]
    assert [plan.host.folder for plan in taken] == ["x86_64-linux", "aarch64-macos", "aarch64-windows"]
    triples = [plan.variants[0].target.triple for plan in taken]
    assert triples == [plan.host.code_triple for plan in taken]


def test_a_selection_takes_the_hosts_that_have_it(tmp_path: Path) -> None:
    taken = load(tmp_path, THREE, targets=("cuda",))
    assert [(plan.host.folder, names(plan)) for plan in taken] == [
        ("x86_64-linux", ["sm_80"]),
        ("aarch64-windows", ["sm_80"]),
    ]
    assert load_manifest(tmp_path / "demo.toml", targets=["aarch64"]).host.folder == "aarch64-macos"


def test_targets_of_all_hosts_stand_together_once(tmp_path: Path) -> None:
    assert names(of_all_hosts(load(tmp_path, THREE))) == ["x86-64-v2", "sm_80", "aarch64"]
    assert names(of_all_hosts(load(tmp_path, '["aarch64-macos", "x86_64-windows"]'))) == [
        "aarch64",
        "x86-64-v2",
        "sm_80",
    ]


def test_tuned_configs_for_another_host_are_not_stale(tmp_path: Path) -> None:
    (tmp_path / "demo.tuned.toml").write_text(TUNED)
    for plan in load(tmp_path, THREE):
        assert plan.warnings == ()


def test_overrides_for_targets_of_other_hosts_are_left_out(tmp_path: Path) -> None:
    more = '[[kernel.override]]\ntargets = ["sm_80"]\nconfig = { threads = 64 }'
    hosts = '["x86_64-linux-gnu.2.17", "aarch64-macos.12"]'
    plans = load(tmp_path, hosts, more)
    assert [variant.config for variant in plans[1].variants] == [{}]
    assert not any(plan.idle_overrides for plan in plans), "the first host has that target"


@pytest.mark.parametrize("which", ["sm_90a", "hip"])
def test_overrides_for_targets_of_no_host_are_told(tmp_path: Path, which: str) -> None:
    more = f'[[kernel.override]]\ntargets = ["{which}"]\nconfig = {{ threads = 64 }}'
    hosts = '["x86_64-linux-gnu.2.17", "aarch64-macos.12"]'
    for plan in load(tmp_path, hosts, more):
        (told,) = plan.idle_overrides
        assert f"demo.toml:14: kernel[0].override[0].targets: the override is for {which}" in told
        assert plan.warnings == ()
    assert load(tmp_path, hosts, more.replace(which, "gpu"))[0].idle_overrides == ()


@pytest.mark.parametrize(
    ("hosts", "more", "said"),
    [
        ('["x86_64-linux-gnu.2.17", "x86_64-linux-gnu.2.28"]', "", "two hosts are x86_64-linux"),
        ('["x86_64-linux-gnu.2.17"]', "", '"aarch64" cannot be part of a library for x86_64-linux-gnu.2.17'),
        (
            '["x86_64-macos", "aarch64-macos"]',
            "",
            '"sm_80" cannot be part of a library for x86_64-macos.12 or',
        ),
    ],
)
def test_what_fits_no_host(tmp_path: Path, hosts: str, more: str, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load(tmp_path, hosts, more)
    assert said in caught.value.what


def test_a_kernel_has_a_target_on_every_host(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"copy has no target that aarch64-macos\.12 runs"):
        load(tmp_path, '["x86_64-linux-gnu.2.17", "aarch64-macos.12"]', 'targets = ["cuda"]')


def test_code_of_gpus_is_made_once_for_all_hosts(tmp_path: Path) -> None:
    plans = load(tmp_path, '["x86_64-linux-gnu.2.17", "aarch64-windows", "x86_64-windows"]')
    variants = [each for plan in plans for each in plan.variants]
    found = alike(enumerate(variants))
    names = [(variants[one].target.name, len(others)) for one, others in found.items()]
    assert names == [("x86-64-v2", 0), ("sm_80", 2), ("aarch64", 0), ("x86-64-v2", 0)]
