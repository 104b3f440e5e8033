"""Every way a manifest can be wrong: what is said, on which line, for which key, with which remedy."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter

from tilec.errors import ManifestError
from tilec.manifest import load_manifest
from tilec.manifest.model import Kernel, ModelLayers, Override, Package, Table, Targets, Tune
from tilec.spelling import suggestion

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG = {"arbitrary_types_allowed": True}
KERNEL = '[[kernel]]\nname = "k"\nsource = "kernels/gemm.py:k"\n'


def refused(path: Path) -> ManifestError:
    """The error that loading raises."""
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert caught.value.exit_code == 2
    assert caught.value.place is not None
    assert caught.value.place.file == str(path)
    return caught.value


# text after the head, line of the error in that text, key, part of what or why, part of the remedy
CASES = [
    pytest.param(
        KERNEL + 'dims = { M = "dynamic" }\n[kernel.tune]\nM = [1, 2]',
        6,
        "kernel[0].tune.M",
        'parameter "M" is given in dims and in tune',
        "give it in one of the two",
        id="a-dim-that-is-searched",
    ),
    pytest.param(
        KERNEL + 'dims = { M = "dynamic" }\n[kernel.tune]\nspace = { bM = [64, 128] }',
        6,
        "kernel[0].tune.space",
        "found {'bM': [64, 128]}",
        'space = "auto"  # values to try stand beside it',
        id="values-to-try-in-a-table",
    ),
    pytest.param(
        KERNEL + 'dims = { M = "dynamic" }\n[kernel.tune.on.cpu]\npoints = [{ m = 8 }]',
        6,
        "kernel[0].tune.on.cpu.points",
        'a point of k gives "m", which is no dim',
        "M",
        id="points-of-no-dim",
    ),
    pytest.param(
        KERNEL + 'dims = { M = "dynamic" }\n[[kernel.override]]\ntargets = ["cpu"]\nconfig = {}',
        5,
        "kernel[0].override[0]",
        "an override changes nothing",
        "give one of them",
        id="an-override-of-nothing",
    ),
    pytest.param(
        KERNEL + 'dims = { M = ["%8", "dynamic"] }\nwithout = [{ M = "%4" }]',
        5,
        "kernel[0].without[0].M",
        "M lists %8, dynamic",
        "that the dimension lists",
        id="left-out-and-not-listed",
    ),
    pytest.param(
        KERNEL + 'dims = { M = "dynamic" }\nwithout = [{ K = "%4" }]',
        5,
        "kernel[0].without[0].K",
        'unknown dimension "K"',
        "M",
        id="left-out-of-no-dimension",
    ),
    pytest.param(
        KERNEL + 'dims = { M = ["%8", "dynamic"] }\nwithout = [{ M = "dynamic" }]',
        5,
        "kernel[0].without",
        "no wider variant serves them",
        "what another choice of guards admits",
        id="left-out-and-served-by-nobody",
    ),
    pytest.param(
        KERNEL + 'dims = { M = ["%8", "dynamic"] }\nwithout = [{ targets = ["cqu"], M = "%8" }]',
        5,
        "kernel[0].without[0].targets",
        'unknown target "cqu"',
        "cpu",
        id="left-out-on-an-unknown-target",
    ),
    pytest.param(
        KERNEL + "dim = {}", 4, "kernel[0].dim", 'unknown key "dim"', 'did you mean "dims"?', id="unknown-key"
    ),
    pytest.param(
        KERNEL + 'N = "dynamic"',
        4,
        "kernel[0].N",
        "stand in dims, args or config",
        "known here: name",
        id="a-dimension-beside-dims",
    ),
    pytest.param(
        KERNEL + "dims = { M = 4.5 }",
        4,
        "kernel[0].dims.M",
        "is no guard",
        "write for example dims = {",
        id="wrong-type-dim",
    ),
    pytest.param(KERNEL + "rtol = true", 4, "kernel[0].rtol", "number", "rtol = 1e-3", id="truth-for-number"),
    pytest.param(KERNEL + "rtol = 'x'", 4, "kernel[0].rtol", "number", "rtol = 1e-3", id="wrong-type-number"),
    pytest.param(
        '[[kernel]]\nname = 3\nsource = "kernels/gemm.py:k"',
        2,
        "kernel[0].name",
        "a string",
        "",
        id="wrong-type-string",
    ),
    pytest.param(
        '[kernel]\nname = "k"',
        1,
        "kernel",
        "it must be a list",
        "write [[kernel]], once",
        id="table-for-tables",
    ),
    pytest.param(
        KERNEL + "[kernel.override]\nconfig = { a = 1 }",
        4,
        "kernel[0].override",
        "it must be a list",
        "write [[kernel.override]], once",
        id="no-list-of-a-kernel",
    ),
    pytest.param(
        '[[kernel]]\nname = "k"', 1, "kernel[0].source", "missing", 'add "source"', id="missing-key"
    ),
    pytest.param(
        KERNEL + 'targets = ["x86-64-v9"]',
        4,
        "kernel[0].targets",
        'unknown target "x86-64-v9"',
        "x86-64-v",
        id="unknown-target",
    ),
    pytest.param(
        KERNEL + 'targets = ["x86-64-v4", "gpu"]',
        4,
        "kernel[0].targets",
        "x86-64-v4 and gpu: [targets] lists none of these",
        "add them",
        id="targets-that-are-not-listed",
    ),
    pytest.param(
        KERNEL + "[[kernel.override]]\ntargets = ['gpus']\nconfig = { a = 1 }",
        5,
        "kernel[0].override[0].targets",
        'unknown target "gpus"',
        "cpu",
        id="override-for-an-unknown-target",
    ),
    pytest.param(
        '[[kernel]]\nname = "k"\nsource = "kernels/gem.py:k"',
        3,
        "kernel[0].source",
        "does not exist",
        "kernels/gemm.py",
        id="missing-source",
    ),
    pytest.param(
        KERNEL + 'reference = "kernels/gem.py:r"',
        4,
        "kernel[0].reference",
        'reference "kernels/gem.py" does not exist',
        "kernels/gemm.py",
        id="missing-reference",
    ),
    pytest.param(
        KERNEL + 'inputs = "no_such_package.mod:r"',
        4,
        "kernel[0].inputs",
        'inputs module "no_such_package.mod" cannot be found',
        "install",
        id="missing-inputs",
    ),
    pytest.param(
        '[[kernel]]\nname = "k"\nsource = "no_such_package.mod:k"',
        3,
        "kernel[0].source",
        "cannot be found",
        "install",
        id="missing-module",
    ),
    pytest.param(
        '[[kernel]]\nname = "k"\nsource = "kernels/gemm.py"',
        3,
        "kernel[0].source",
        "not of the form",
        "",
        id="source-without-entry",
    ),
    pytest.param(
        KERNEL + 'dims = { M = "64..1" }', 4, "kernel[0].dims.M", "can never hold", "", id="impossible-guard"
    ),
    pytest.param(
        KERNEL + 'dims = { class = "dynamic" }',
        4,
        "kernel[0].dims.class",
        "word of Python",
        "write class_",
        id="dimension-that-python-has-a-word-for",
    ),
    pytest.param(
        KERNEL + 'dims = { M = ["%16", "dynamic", "%16"] }',
        4,
        "kernel[0].dims.M",
        'same guard "%16"',
        "",
        id="same-guards",
    ),
    pytest.param(
        KERNEL + 'dims = { M = ["1..64", "%128"] }',
        4,
        "kernel[0].dims.M",
        "M = 65",
        'fallback = "none"',
        id="uncovered",
    ),
    pytest.param(KERNEL + KERNEL, 5, "kernel[1].name", "a second time", "rename", id="duplicate-symbol"),
    pytest.param(
        KERNEL + "for = { dtype = ['int8', 'int32'] }",
        2,
        "kernel[0].name",
        "a second time",
        "{dtype}",
        id="for-without-key-in-name",
    ),
    pytest.param(
        '[[kernel]]\nname = "k_{dtyp}"\nsource = "kernels/gemm.py:k"\nfor = { dtype = ["int8"] }',
        2,
        "kernel[0].name",
        "'dtyp'",
        '"dtype"',
        id="unknown-pattern",
    ),
    pytest.param(
        '[[kernel]]\nname = "2k"\nsource = "kernels/gemm.py:k"',
        2,
        "kernel[0].name",
        "no C identifier",
        "letters",
        id="no-identifier",
    ),
    pytest.param(
        '[[kernel]]\nname = "library"\nsource = "kernels/gemm.py:k"',
        2,
        "kernel[0].name",
        "the library itself",
        "rename",
        id="reserved",
    ),
    pytest.param(
        KERNEL + "args = { bM = 1 }\nconfig = { bM = 2 }",
        5,
        "kernel[0].config.bM",
        "in args and in config",
        "one of",
        id="two-places",
    ),
    pytest.param(
        KERNEL + "[[kernel.override]]\ndims = { M = 4 }\nconfig = { a = 1 }",
        5,
        "kernel[0].override[0].dims.M",
        'unknown dimension "M"',
        "",
        id="override-of-unknown-dim",
    ),
    pytest.param(
        KERNEL
        + "dims = { M = ['1..16', 'dynamic'] }\n[[kernel.override]]\ndims = { M = 32 }\nconfig = { a = 1 }",
        5,
        "kernel[0].override[0]",
        "for no variant",
        "remove it",
        id="override-for-nobody",
    ),
    pytest.param(
        KERNEL + "targets = ['x86-64-v2']\n[[kernel.override]]\ntargets = ['x86-64-v3']\nconfig = { a = 1 }",
        5,
        "kernel[0].override[0]",
        "for no variant",
        "remove it",
        id="override-for-another-target",
    ),
    pytest.param(
        KERNEL + "rtol = 'x'\natol = 'y'",
        4,
        "kernel[0].rtol",
        "1 more key is wrong: kernel[0].atol",
        "write for example",
        id="one-more-key",
    ),
    pytest.param(
        KERNEL.replace("source", "sourc") + "rtol = 'x'",
        3,
        "kernel[0].sourc",
        "1 more key is wrong: kernel[0].rtol; 1 more key is missing: kernel[0].source",
        'did you mean "source"?',
        id="more-keys-of-both-kinds",
    ),
    pytest.param(
        KERNEL
        + "[[kernel.override]]\ntargets = ['cpu']\nconfig = { a = 1 }\n"
        + "[[kernel.override]]\ntargets = ['cpu']\nconfig = { a = 2 }",
        7,
        "kernel[0].override[1]",
        "two overrides are for the same targets, guards and values",
        "put the keys of both into one",
        id="the-same-override-twice",
    ),
    pytest.param(
        KERNEL + "for = { dtype = ['float32'] }\n[[kernel.override]]\nfor = { dtyp = ['float32'] }",
        6,
        "kernel[0].override[0].for",
        'names "dtyp", of which the kernel has no values',
        'did you mean "dtype"?',
        id="override-for-an-unknown-parameter",
    ),
    pytest.param(
        KERNEL + "for = { dtype = ['float32'] }\n[[kernel.override]]\nfor = { dtype = ['float16'] }",
        6,
        "kernel[0].override[0].for",
        "names no value that the kernel has for dtype",
        'did you mean "float32"?',
        id="override-for-an-unknown-value",
    ),
    pytest.param(
        KERNEL + "[[kernel.override]]\nschedules = [{ config = {}, cost = 'M' }]",
        5,
        "kernel[0].override[0].schedules",
        "reads M, and the dims are none",
        "correct it",
        id="cost-of-an-unknown-dim",
    ),
    pytest.param(
        KERNEL + "[[kernel.override]]\nschedules = [{ config = {}, cost = 'on(zen9, 1, 2)' }]",
        5,
        "kernel[0].override[0].schedules",
        "for no feature of CPUs: avxvnni, vnni",
        "correct it",
        id="cost-of-an-unknown-processor",
    ),
    pytest.param(
        KERNEL + "[[kernel.override]]\nschedules = []",
        5,
        "kernel[0].override[0].schedules",
        "is empty",
        "remove the key",
        id="no-schedules",
    ),
    pytest.param(
        KERNEL + "[[kernel.override]]\nschedules = [{ config = {}, cost = '1', dims = { M = '1..8' } }]",
        5,
        "kernel[0].override[0].schedules",
        "has none for all calls",
        "without dims",
        id="schedules-of-some-calls-alone",
    ),
    pytest.param(
        KERNEL + "[[kernel.override]]\nschedules = [{ config = {}, cost = '1' }, "
        "{ config = {}, cost = '1', dims = { Q = '1..8' } }]",
        5,
        "kernel[0].override[0].schedules",
        'unknown dimension "Q" in schedule 2',
        "",
        id="schedule-of-an-unknown-dim",
    ),
    pytest.param(
        KERNEL + "[[kernel.override]]\nschedules = 'other.toml:few'",
        5,
        "kernel[0].override[0].schedules",
        'the file of schedules "other.toml" does not exist',
        "begin at the manifest",
        id="schedules-of-no-file",
    ),
    pytest.param(
        KERNEL + "[kernel.tune]\nbM = 3", 5, "kernel[0].tune.bM", "a list", "", id="tune-without-list"
    ),
]


@pytest.mark.parametrize(("text", "line", "key", "what", "remedy"), CASES)
def test_kernel_errors(
    project: Callable[..., Path], head: str, text: str, line: int, key: str, what: str, remedy: str
) -> None:
    error = refused(project(text))
    assert error.place is not None
    assert (error.place.line, error.place.key) == (head.count("\n") + line, key)
    assert what in f"{error.what} {error.why}"
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("old", "new", "line", "what", "remedy"),
    [
        ("edition = 1", "edition = 2", 1, "unknown edition 2", "edition = 1"),
        ("edition = 1", "edition = true", 1, "unknown edition True", "edition = 1"),
        ("edition = 1", 'edition = "1"', 1, "unknown edition '1'", "edition = 1"),
        ("edition = 1\n", "\n", None, '"edition" is missing', '"edition", for example edition = 1'),
        ("edition = 1", "editon = 1", 1, 'unknown key "editon"', '"edition"'),
        ('name = "demo"', 'name = "my-lib"', 4, "no C identifier", ""),
        ('name = "demo"', 'name = "tilec_x"', 4, "collide", ""),
        ('name = "demo"', 'name = "std"', 4, "namespace of C++", ""),
        ('name = "demo"', 'name = "co_await"', 4, "no C identifier", ""),
        ('name = "demo"', 'name = "_Bool"', 4, "no C identifier", ""),
        ('name = "demo"', 'name = "lambda"', 4, "keyword of Python", ""),
        ('name = "demo"', 'name = "random"', 4, "Python module", ""),
        ('name = "demo"', 'name = "cuda"', 4, "libcuda.so", ""),
        ('name = "demo"', 'name = "linux"', 4, "macro", ""),
        ('name = "demo"', f'name = "{"n" * 5000}"', 4, "5000 characters", ""),
        ('name = "demo"', 'name = "demo"\nversion = "1.0*/ x"', 5, '"1.0*/ x" is no version', "1.2.0"),
        ('name = "demo"', 'name = "demo"\nversion = "1.0\\n"', 5, "is no version", "1.2.0"),
        ('name = "demo"', 'name = "demo"\nversion = \'1.0"\'', 5, "is no version", "1.2.0"),
        ('name = "demo"', f'name = "demo"\nversion = "1.{"0" * 999}"', 5, "is no version", "1.2.0"),
        ('name = "demo"', 'name = "demo"\nversion = "\u0661.0"', 5, "is no version", "1.2.0"),
        ('name = "demo"', 'nam = "demo"', 4, 'unknown key "nam"', '"name"'),
        ('"x86-64-v3"]', '"x86-64-v5"]', 7, "x86-64-v5", "x86-64-v4"),
        ('"x86-64-v3"]', '"sm_90a"]', 7, "no cpu target", "targets.cuda"),
        ('"x86-64-v3"]', '"aarch64"]', 7, "cannot be part", "aarch64-linux-gnu"),
        ('"x86-64-v3"]', '"x86-64-v2"]', 7, "same value twice", ""),
        ('host = "x86_64-linux-gnu.2.17"', 'host = "riscv-linux-gnu"', 8, "riscv", "x86_64"),
        ("gnu.2.17", "gnu.99.99", 8, "a glibc from 2.17 to", "x86_64-linux-gnu.2.17"),
        ("gnu.2.17", "gnu.", 8, "a glibc from 2.17 to", "x86_64-linux-gnu.2.17"),
        ("gnu.2.17", "gnu.2.\u0662\u0668", 8, "a glibc from 2.17 to", "x86_64-linux-gnu.2.17"),
        ("linux-gnu.2.17", "windows-gnu", 8, "built for Linux", "x86_64-linux-gnu.2.17"),
        ("[package]", "[package", 3, "not valid TOML", "syntax"),
        ("[package]", "[kernels]\n[package]", 3, 'unknown key "kernels"', '"kernel"'),
    ],
)
def test_head_errors(
    project: Callable[..., Path], head: str, old: str, new: str, line: int | None, what: str, remedy: str
) -> None:
    error = refused(project(KERNEL, head.replace(old, new)))
    assert error.place is not None
    assert error.place.line == line
    assert what in f"{error.what} {error.why}"
    assert remedy in error.remedy


@pytest.mark.parametrize(
    "version", ["0.1.0", "1", "2024.1", "1.0rc1", "1.0.post2.dev3", "2.0.0-beta.1+cuda12.4", "1.0_final"]
)
def test_versions_of_python_and_semantic_ones_are_taken(
    project: Callable[..., Path], head: str, version: str
) -> None:
    named = head.replace('name = "demo"', f'name = "demo"\nversion = "{version}"')
    assert load_manifest(project(KERNEL, named)).manifest.package.version == version


def test_long_names_of_kernels_and_dims_are_refused(project: Callable[..., Path]) -> None:
    long = '[[kernel]]\nname = "k_{dtype}"\nsource = "kernels/gemm.py:k"\n'
    error = refused(project(f'{long}for = {{ dtype = ["{"x" * 5000}"] }}'))
    assert "has 5002 characters" in error.what
    assert error.place is not None
    assert error.place.key == "kernel[0].name"
    assert "at most 64 characters" in refused(project(f"{KERNEL}dims = {{ {'M' * 5000} = 4 }}")).what


@pytest.mark.parametrize("key", ["reference", "inputs", "peer"])
def test_a_missing_function_is_named(project: Callable[..., Path], tmp_path: Path, key: str) -> None:
    kernels = tmp_path / "kernels" / "gemm.py"
    kernels.write_text("import numpy\nif True:\n    def reference(a):\n        return a\n")
    error = refused(project(f'{KERNEL}{key} = "kernels/gemm.py:referense"'))
    assert f'{key} "kernels/gemm.py:referense" does not exist' in error.what
    assert error.place is not None
    assert (error.place.line, error.place.key) == (12, f"kernel[0].{key}")
    assert 'did you mean "reference"' in error.remedy
    for name in ("reference", "numpy"):
        load_manifest(project(f'{KERNEL}{key} = "kernels/gemm.py:{name}"'))
    for text in ("from numpy import *", "def __getattr__(name): ...", "globals()['x'] = 3", "a = (", "\0"):
        kernels.write_text(text)  # nobody can say without running it
        load_manifest(project(f'{KERNEL}{key} = "kernels/gemm.py:x"'))


def test_what_a_file_imports_is_not_what_was_meant(project: Callable[..., Path], tmp_path: Path) -> None:
    text = "import numpy as np\nfrom tilec import language as T\ndef twin(a):\n    return a\n"
    (tmp_path / "kernels" / "gemm.py").write_text(text)
    error = refused(project(f'{KERNEL}reference = "kernels/gemm.py:nope"'))
    assert error.remedy == "known here: twin"


def test_a_folder_in_place_of_a_source_is_told(project: Callable[..., Path], tmp_path: Path) -> None:
    manifest = project(KERNEL)
    (tmp_path / "kernels" / "gemm.py").unlink()
    (tmp_path / "kernels" / "gemm.py").mkdir()
    error = refused(manifest)
    assert (error.what, error.remedy) == ('kernel source "kernels/gemm.py" is no file', "correct the path")


def test_paths_of_windows_are_told_with_the_ones_to_write(project: Callable[..., Path]) -> None:
    error = refused(project(KERNEL.replace('"kernels/gemm.py:k"', "'kernels\\gemm.py:k'")))
    assert error.what == 'kernel source "kernels\\gemm.py" does not exist'
    assert error.remedy == 'write paths with /: "kernels/gemm.py"'


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    error = refused(tmp_path / "nowhere.toml")
    assert "cannot read" in error.what
    assert error.remedy == "check the path"


def test_a_file_beside_a_missing_one_is_offered(tmp_path: Path) -> None:
    for name in ("engine.toml", "engine.py", "other.toml"):
        (tmp_path / name).touch()
    assert refused(tmp_path / "engin.toml").remedy == f"did you mean {tmp_path / 'engine.toml'}?"
    assert refused(tmp_path / "zzz.toml").remedy == "check the path"


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refused(path).what


def test_several_problems_are_counted(project: Callable[..., Path]) -> None:
    error = refused(project(KERNEL + "dim = {}\nconfg = {}"))
    assert "kernel[0].confg" in error.why


def test_a_wrong_tuned_file_is_named(project: Callable[..., Path], tmp_path: Path) -> None:
    manifest = project(KERNEL)
    (tmp_path / "demo.tuned.toml").write_text("edition = 1\n[[tuned]]\nkernel = 3\n")
    with pytest.raises(ManifestError) as caught:
        load_manifest(manifest)
    assert "demo.tuned.toml:" in str(caught.value)


def test_a_byte_order_mark_is_no_syntax_error(project: Callable[..., Path]) -> None:
    path = project(KERNEL)
    plain = load_manifest(path)
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert load_manifest(path).variants == plain.variants


def test_every_example_of_the_model_is_right() -> None:
    """What errors tell people to write is TOML, and gives the key a value that the model takes."""
    for model in (Package, Targets, Override, ModelLayers, Kernel, Tune):
        for name, field in model.model_fields.items():
            for example in field.examples or ():
                parsed = tomllib.loads(example)
                assert list(parsed) == [field.alias or name]
                annotation = (
                    Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
                )
                own = isinstance(annotation, type) and issubclass(annotation, Table)
                adapter = TypeAdapter(annotation, config=None if own else CONFIG)
                adapter.validate_python(parsed[field.alias or name])


def test_of_many_names_those_that_are_most_alike_are_told():
    names = [f"kernel_{number}" for number in range(60)]
    many, few = suggestion("kernel_7x", names), suggestion("kernel_7x", names[:20])
    assert many.startswith('did you mean "kernel_7"? known here: kernel_7, ')
    assert many.endswith(" and 48 others")
    assert few == f'did you mean "kernel_7"? known here: {", ".join(names[:20])}'
