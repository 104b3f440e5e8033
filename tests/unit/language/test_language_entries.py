"""Entries as a manifest names them: loading, parameters, dims, args and config, errors with their place."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from language_build import DYNAMIC, build, text

import tilec
import tilec.language as T
from tilec.build.reuse.loaded_files import author_modules_afresh
from tilec.errors import (
    Place,
    SourceError,
    SourceRuntimeError,
    SourceTypeError,
    SourceValueError,
    UnsupportedError,
)
from tilec.ir.guards import Guard
from tilec.language.frontend.elaborate import describe, elaborate, load_entry, parameters
from tilec.language.frontend.modules.process_ends import ends_refused

HEAD = "import tilec\nimport tilec.language as T\n"


def write(folder: Path, code: str, name: str = "kernels.py") -> Path:
    path = folder / name
    path.write_text(HEAD + textwrap.dedent(code))
    return path


def raised(folder: Path, code: str, attribute: str = "k", dims=None) -> SourceError:
    """The error of loading and elaborating ``code``."""
    write(folder, code)
    guards = {key: Guard(eq=value) for key, value in (dims or {}).items()}
    with pytest.raises(SourceError) as caught:
        elaborate(load_entry(f"kernels.py:{attribute}", folder), name="k", dims=guards, args={}, config={})
    return caught.value


GOOD = """
@tilec.jit
def k(N, blk=64):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, blk)) as bx:
            for i in T.Parallel(blk):
                A[bx * blk + i] = 1.0
    return main

class Group:
    kernel = k
"""


# Loading --------------------------------------------------------------------------------------------------


def test_a_file_a_dotted_attribute_and_a_module(tmp_path):
    write(tmp_path, GOOD)
    entry = load_entry("kernels.py:k", tmp_path)
    assert describe(load_entry("kernels.py:Group.kernel", tmp_path)) == describe(entry)
    assert load_entry("tilec.language:prim_func", tmp_path) is T.prim_func
    assert build(entry, {"N": DYNAMIC})


def test_an_edited_file_is_read_again(tmp_path):
    write(tmp_path, GOOD)
    assert build(load_entry("kernels.py:k", tmp_path), {"N": 64}).launches[0].grid == (1,)
    write(tmp_path, GOOD.replace("T.ceildiv(N, blk)", "7 + 0 * 1234"))
    assert build(load_entry("kernels.py:k", tmp_path), {"N": 64}).launches[0].grid == (7,)


def test_bytecode_that_others_left_is_not_taken(tmp_path):
    """Its age is told in whole seconds: that of a text as long as this one, of the same second, looks new."""
    helper, kernel = (
        tmp_path / "helper_of_bytecode.py",
        "import helper_of_bytecode\nk = helper_of_bytecode.VALUE\n",
    )
    (tmp_path / "kernels.py").write_text(kernel)
    helper.write_text("VALUE = 1\n")
    os.utime(helper, (1_000_000_000, 1_000_000_000))
    py_compile.compile(str(helper))
    helper.write_text("VALUE = 2\n")
    os.utime(helper, (1_000_000_000, 1_000_000_000))
    finders = list(sys.meta_path)
    with author_modules_afresh("kernels.py:k", tmp_path):
        assert load_entry("kernels.py:k", tmp_path) == 2
        assert (
            sys.modules["helper_of_bytecode"].__spec__.loader.get_source("helper_of_bytecode")
            == "VALUE = 2\n"
        )
    assert sys.meta_path == finders


def test_installed_packages_are_loaded_as_ever(tmp_path):
    package = tmp_path / "env" / "site-packages"
    package.mkdir(parents=True)
    (package / "installed_helper.py").write_text("VALUE = 3\n")
    (tmp_path / "kernels.py").write_text(
        f"import sys\nsys.path.append({str(package)!r})\nfrom installed_helper import VALUE as k\n"
    )
    assert load_entry("kernels.py:k", tmp_path) == 3
    assert type(sys.modules.pop("installed_helper").__loader__) is SourceFileLoader


def test_modules_beside_the_manifest_import(tmp_path):
    write(tmp_path, "BLOCK = 32\n", "shared_names_of_test.py")
    write(
        tmp_path,
        "from shared_names_of_test import BLOCK\nassert __import__('sys').argv == ['kernels.py']\n" + GOOD,
    )
    path, argv = list(sys.path), list(sys.argv)
    load_entry("kernels.py:k", tmp_path)
    assert (sys.path, sys.argv) == (path, argv)


def test_modules_beside_what_a_source_links_to_import(tmp_path):
    (tmp_path / "real").mkdir()
    write(tmp_path / "real", "BLOCK = 32\n", "linked_names_of_test.py")
    write(tmp_path / "real", "from linked_names_of_test import BLOCK\n" + GOOD)
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "kernels.py")
    load_entry("link.py:k", tmp_path)


@pytest.mark.parametrize(
    ("code", "what", "line"),
    [
        ("def k(:\n    pass\n", "no valid Python", 3),
        ("\nimport no_such_module_here\n", "imports no_such_module_here, which is not installed", 4),
        ("x = 1\n1 / 0\n", "raised ZeroDivisionError", 4),
        ("import sys\nsys.exit(3)\n", "raised SystemExit: 3", 4),
        ("import os\nos._exit(3)\n", "raised SystemExit: os._exit(3)", 4),
        (
            GOOD.replace("T.Parallel", "T.Paralel").replace("return main", "return main\nT.Paralel"),
            "Paralel",
            12,
        ),
    ],
)
def test_modules_that_do_not_import(tmp_path, code, what, line):
    error = raised(tmp_path, code)
    assert what in error.what
    assert error.place == Place(str(tmp_path / "kernels.py"), line)
    assert error.remedy


def test_processes_that_a_module_forks_end_themselves(tmp_path):
    """In an interpreter of its own: a fork of one that has run many tests may find no memory for it."""
    (tmp_path / "kernels.py").write_text(
        "import os\nchild = os.fork()\nif not child:\n    os._exit(5)\nended = os.waitpid(child, 0)[1]\n"
    )
    code = (
        "import os\nfrom pathlib import Path\nfrom tilec.language.frontend.elaborate import load_entry\n"
        "print(os.waitstatus_to_exitcode(load_entry('kernels.py:ended', Path.cwd())), os._exit.__module__)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert found.stdout.split() == ["5", "posix"]


def test_blocks_that_refuse_ends_may_overlap():
    first, second = ends_refused(), ends_refused()
    with ThreadPoolExecutor(1) as other:
        first.__enter__()
        other.submit(second.__enter__).result()
        first.__exit__(None, None, None)
        with pytest.raises(SystemExit, match=r"os\._exit"):
            other.submit(os._exit, 3).result()
        other.submit(second.__exit__, None, None, None).result()
    assert os._exit.__module__ == "posix"


def test_relative_imports_are_of_modules(tmp_path):
    error = raised(tmp_path, "from .tiles import SIZE\n")
    assert error.remedy.startswith('name it as a module, source = "')
    assert ".py" not in error.remedy


@pytest.mark.parametrize("wanted", ["from circle_two import SIZE", "import circle_two; circle_two.SIZE"])
def test_files_that_import_each_other(tmp_path, wanted):
    (tmp_path / "circle_one.py").write_text(wanted)
    (tmp_path / "circle_two.py").write_text("from circle_one import k\nSIZE = 4")
    with pytest.raises(SourceError, match="circular import") as caught:
        load_entry("circle_one.py:k", tmp_path)
    assert caught.value.place == Place(str(tmp_path / "circle_one.py"), 1)
    assert caught.value.remedy == "the files import each other: move what both need to a third one"


def test_names_that_do_not_exist(tmp_path):
    assert "did you mean k" in raised(tmp_path, GOOD, "kk").remedy
    assert "did you mean kernel" in raised(tmp_path, GOOD, "Group.kernels").remedy
    with pytest.raises(SourceError, match="does not exist"):
        load_entry("missing.py:k", tmp_path)
    with pytest.raises(SourceError, match="names no kernel"):
        load_entry("kernels.py", tmp_path)
    assert "is no kernel" in raised(tmp_path, "k = 3\n").what


def test_functions_without_source():
    scope: dict = {}
    code = "def main(A: T.Tensor((4,), 'float32')):\n    pass\n"
    exec(code, {"T": T}, scope)
    with pytest.raises(SourceError, match="not available") as caught:
        T.prim_func(scope["main"])
    assert "file or a notebook cell" in caught.value.remedy


# Parameters -----------------------------------------------------------------------------------------------


@tilec.jit
def eager(A, B, scale: T.float32 = 2.0, n_heads: int = 4, dtype: T.dtype = T.float16, tail=None):
    """Scales rows."""
    M, N = T.const("M"), T.dynamic("N")
    half = N // 2
    A: T.Tensor[[M, half], dtype]
    B: T.StridedTensor[[M, half], [T.dynamic("ldb"), 1], dtype]
    assert M % 2 == 0
    with T.Kernel(M // 2) as bx:
        for i, j in T.Parallel(2, half):
            B[bx * 2 + i, j] = A[bx * 2 + i, j] * scale


def test_parameters():
    assert parameters(eager) == ("n_heads", "dtype", "tail")
    assert describe(eager).form == "eager"
    assert parameters(build_factory) == ("N", "blk")
    assert describe(build_factory).required == ("N",)
    assert parameters(plain) == ()
    assert describe(plain).form == "prim_func"


def build_factory(N, blk=8):
    @T.prim_func
    def main(A: T.Tensor((N, 2 * blk), "float32"), s: T.int32):
        with T.Kernel(N):
            A[0, 0] = s

    return main


@T.prim_func
def plain(A: T.Tensor((T.dynamic("rows"), T.dynamic("cols")), "float32")):
    """Clears a matrix."""
    with T.Kernel(T.dynamic("rows")) as bx:
        for j in T.Parallel(T.dynamic("cols")):
            A[bx, j] = 0


def test_the_eager_form_runs_once_with_numbers():
    kernel = build(eager, {"M": 6, "N": 10, "ldb": DYNAMIC}, {"dtype": "float32"})
    a, b, scale = kernel.params
    assert (a.extents, a.strides, a.access) == (("M", "N // 2"), None, "in")
    assert (b.extents, b.strides, b.access) == (("M", "N // 2"), ("ldb", "1"), "out")
    assert (scale.name, scale.default, str(a.buffer.dtype)) == ("scale", 2.0, "float32")
    assert [dim.name for dim in kernel.dims] == ["M", "N", "ldb"]
    assert [dim.var is None for dim in kernel.dims] == [True, True, False]
    assert kernel.launches[0].grid == (3,)
    assert kernel.doc == "Scales rows."


def test_a_const_given_as_dynamic_is_a_runtime_dimension():
    kernel = build(eager, {"M": Guard(div=2), "N": 10, "ldb": 5})
    assert [dim.var is None for dim in kernel.dims] == [False, True, True]
    assert "launch(M // 2" in text(eager, {"M": Guard(div=2), "N": 10, "ldb": 5})


def test_a_plain_prim_func_takes_dynamic_names():
    assert "launch(rows," in text(plain, {"rows": DYNAMIC, "cols": 3})
    assert "launch(7," in text(plain, {"rows": 7, "cols": DYNAMIC})
    assert build(plain, {"rows": 7, "cols": 3}).params[0].extents == ("rows", "cols")


def test_a_plain_factory_and_scalars():
    kernel = build(build_factory, {"N": DYNAMIC}, blk=4)
    assert kernel.params[0].extents == ("N", "8")
    assert kernel.params[1].name == "s"


def test_a_scalar_that_dims_lists_is_a_dimension():
    kernel = build(build_factory, {"N": 4, "s": DYNAMIC})
    assert [param.name for param in kernel.params] == ["A"]
    assert [dim.name for dim in kernel.dims] == ["N", "s"]


@pytest.mark.parametrize(
    ("entry", "dims", "args", "config", "match"),
    [
        (build_factory, {}, {}, {}, "needs parameter N"),
        (
            build_factory,
            {"n": 4},
            {},
            {},
            "(?s)needs parameter N.*dims gives n, which it does not have.*write N for n",
        ),
        (build_factory, {"N": 4}, {"blok": 3}, {}, "has no parameter blok"),
        (build_factory, {"N": 4}, {}, {"blocks": 3}, "has no parameter blocks"),
        (build_factory, {"N": 4}, {"blk": 3}, {"blk": 4}, "blk of kernel k is given twice"),
        (build_factory, {"N": 4}, {"N": 3}, {}, "N of kernel k is given twice"),
        (build_factory, {"N": 4, "R": 3}, {}, {}, "has no dimension R"),
        (plain, {"rows": 4}, {}, {}, "dimension cols of kernel k has no entry in dims"),
        (plain, {"rows": 4, "cols": 3, "x": 1}, {}, {}, "has no dimension x"),
        (plain, {"rows": 4, "cols": 3}, {"x": 1}, {}, "has no parameter x"),
        (eager, {"M": 4, "N": 8}, {}, {}, "dimension ldb of kernel k has no entry"),
    ],
)
def test_parameters_missing_or_unknown(entry, dims, args, config, match):
    with pytest.raises(SourceError, match=match) as caught:
        build(entry, dims, args, **config)
    unknown = "has no parameter" in match  # said of the key that gives it
    assert caught.value.place.file == (None if unknown else __file__)
    assert caught.value.remedy


def test_the_nearest_parameter_is_named():
    with pytest.raises(SourceError) as caught:
        build(build_factory, {"N": 4}, {"blok": 3})
    assert "did you mean blk" in caught.value.remedy


# Outputs --------------------------------------------------------------------------------------------------


def outputs(out_idx):
    @tilec.jit(out_idx=out_idx)
    def factory(n):
        @T.prim_func
        def main(A: T.Tensor((n,), "float32"), s: T.int32, B: T.Tensor((n,), "float32")):
            with T.Kernel(1):
                T.copy(A, B)

        return main

    return factory


@pytest.mark.parametrize("out_idx", [None, [], -1, 2, [2], (-1,), [0, 2]])
def test_out_idx(out_idx):
    params = build(outputs(out_idx), {"n": 8}).params
    indices = [out_idx] if isinstance(out_idx, int) else list(out_idx or [])
    expected = [index % 3 for index in indices]
    assert [at for at, param in enumerate(params) if getattr(param, "output", False)] == expected


@pytest.mark.parametrize(
    ("out_idx", "match"),
    [
        (3, "out of range"),
        (-4, "out of range"),
        (1, "scalar"),
        ([2, 2], "twice"),
        ("Y", "'Y' is no index"),
        ([0.5], "0.5 is no index"),
    ],
)
def test_wrong_out_idx(out_idx, match):
    with pytest.raises((SourceValueError, SourceTypeError), match=match):
        build(outputs(out_idx), {"n": 8})


def test_outputs_must_be_returned():
    @tilec.jit
    def forgets(A):
        n = T.const("n")
        A: T.Tensor[[n], T.float32]
        B = T.empty((n,), T.float32)
        with T.Kernel(1):
            T.copy(A, B)

    @tilec.jit
    def returns_input(A):
        n = T.const("n")
        A: T.Tensor[[n], T.float32]
        with T.Kernel(1):
            T.clear(A)
        return A

    for entry in (forgets, returns_input):
        with pytest.raises(RuntimeError, match=r"must return its T\.empty"):
            build(entry, {"n": 4})


def test_outputs_come_in_the_order_of_return():
    @tilec.jit
    def two(A, flag: bool = False):
        n = T.const("n")
        A: T.Tensor[[n], T.float32]
        first = T.empty(n, dtype=T.float16)
        second = T.empty((n, 2))
        third = T.empty(n, n, "int8")
        with T.Kernel(1):
            T.copy(A, first)
            T.clear(second)
            T.clear(third)
        return third, first, second

    params = build(two, {"n": 4}).params
    assert [param.name for param in params] == ["A", "third", "first", "second"]
    assert [str(param.buffer.dtype) for param in params] == ["float32", "int8", "float16", "float32"]


def test_declarations_that_are_missing():
    @tilec.jit
    def undeclared(A, B):
        n = T.const("n")
        A: T.Tensor[[n], T.float32]
        with T.Kernel(1):
            T.copy(A, B)

    @tilec.jit
    def early(A):
        n = T.const("n")
        x = A[0]
        A: T.Tensor[[n], T.float32]
        with T.Kernel(1):
            A[0] = x

    with pytest.raises(SourceError, match="needs parameter B"):
        build(undeclared, {"n": 4})
    with pytest.raises(SourceError, match="A is used before it is declared"):
        build(early, {"n": 4})


# Errors of the author's code --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "builtin"),
    [
        ("assert N > 100, 'too small'", AssertionError),
        ("[][3]", IndexError),
        ("raise ValueError('no')", ValueError),
        ("len(3)", TypeError),
        ("__import__('json').loads('x')", ValueError),
        ("raise RuntimeError('no')", RuntimeError),
        ("{}['x']", SourceError),
        ("raise SystemExit(3)", SourceError),
        ("__import__('os')._exit(3)", SourceError),
        ("raise MemoryError('no')", SourceError),
    ],
)
def test_exceptions_in_a_factory_keep_their_class_and_line(tmp_path, statement, builtin):
    error = raised(
        tmp_path, GOOD.replace("    @T.prim_func", f"    {statement}\n    @T.prim_func"), dims={"N": 4}
    )
    assert isinstance(error, builtin)
    assert error.exit_code == 2
    assert (error.place.file, error.place.line) == (str(tmp_path / "kernels.py"), 6)


def test_errors_in_a_kernel_body_point_at_the_line(tmp_path):
    error = raised(tmp_path, GOOD.replace("A[bx * blk + i] = 1.0", "A[N] = 1.0"), dims={"N": 4})
    assert isinstance(error, IndexError)
    assert error.place == Place(str(tmp_path / "kernels.py"), 10, "A")


def test_a_factory_must_return_a_prim_func(tmp_path):
    error = raised(tmp_path, GOOD.replace("return main", "return 3"), dims={"N": 4})
    assert "returned int, not a prim_func" in error.what
    error = raised(
        tmp_path, GOOD.replace("    @T.prim_func\n", "").replace("@tilec.jit\n", ""), dims={"N": 4}
    )
    assert error.remedy == "put @T.prim_func in front of def main"


@pytest.mark.parametrize("jit", ["@tilec.jit", "@tilec.jit(out_idx=[-1])"])
def test_a_jitted_factory_that_forgets_prim_func_is_no_eager_kernel(tmp_path, jit):
    source = GOOD.replace("    @T.prim_func\n", "").replace("@tilec.jit\n", f"{jit}\n")
    assert raised(tmp_path, source, dims={"N": 4}).remedy == "put @T.prim_func in front of def main"


def test_names_of_a_launch_want_brackets(tmp_path):
    error = raised(tmp_path, GOOD.replace("as bx:", "as bx, by:"), dims={"N": 4})
    assert (error.args, error.remedy) == (("name 'by' is not defined",), "write as (bx, by)")


@pytest.mark.parametrize(
    ("signature", "match"),
    [
        ("A", "not annotated"),
        ("A: T.Tensor((4,), 'float32'), n: int", "not annotated with a T type"),
        ("A: 3", "annotated with 3"),
        ("*A: T.int32", r"\*args"),
    ],
)
def test_signatures_of_prim_funcs(tmp_path, signature, match):
    write(
        tmp_path, f"def k():\n    @T.prim_func\n    def main({signature}):\n        pass\n    return main\n"
    )
    with pytest.raises(TypeError, match=match):
        elaborate(load_entry("kernels.py:k", tmp_path), name="k", dims={}, args={}, config={})


def test_a_kernel_needs_a_launch():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        pass

    with pytest.raises(SourceError, match=r"no T\.Kernel block"):
        build(main)


def test_annotations_as_text(tmp_path):
    code = """
    from __future__ import annotations
    import tilec
    import tilec.language as T

    def k(n, dt="float16"):
        only_in_annotation = n * 2
        @T.prim_func
        def main(size: T.int32, A: T.Tensor((only_in_annotation, size), dt)):
            with T.Kernel(size) as bx:
                A[0, bx] = 0
        return main
    """
    (tmp_path / "kernels.py").write_text(textwrap.dedent(code))
    entry = load_entry("kernels.py:k", tmp_path)
    kernel = build(entry, {"n": 3, "size": DYNAMIC})
    assert kernel.params[0].extents == ("n * 2", "size")
    with pytest.raises(SourceError, match="scalar parameter size of main sizes a tensor"):
        build(entry, {"n": 3})


def test_closures_are_those_of_decoration():
    made = []
    for factor in (2, 3):

        @T.prim_func
        def main(A: T.Tensor((4,), "int32")):
            with T.Kernel(1):
                A[0] = factor  # noqa: B023

        made.append(main)
    assert ["A[0] = 2" in text(made[0]), "A[0] = 3" in text(made[1])] == [True, True]


def test_parameters_may_have_any_name():
    @T.prim_func
    def main(range: T.Tensor((4,), "int32"), value: T.int32, _: T.int32):
        with T.Kernel(4) as target:
            range[target] = value + _

    assert "range[target] = value + _" in text(main)


# Calling ----------------------------------------------------------------------------------------------------


def test_prim_funcs_are_not_called():
    with pytest.raises(TypeError, match="not callable"):
        plain()


def test_decorator_misuse():
    with pytest.raises(TypeError):
        T.prim_func(3)
    with pytest.raises(TypeError):
        tilec.jit(3)
    with pytest.raises(TypeError):
        T.macro(lambda x: x)
    with pytest.raises(SourceRuntimeError, match="only inside an eager kernel"):
        T.const("M")
    with pytest.raises(SourceRuntimeError, match="outside a kernel"):
        T.alloc_shared((4,), "float32")


# The namespace
# ------------------------------------------------------------------------------------------------


def test_unknown_names_offer_the_nearest():
    with pytest.raises(AttributeError, match=r"did you mean T\.Pipelined"):
        T.Pipelind  # noqa: B018


def test_names_that_python_asks_of_every_module_have_none_near():
    with pytest.raises(AttributeError, match=r"no T\.__tanf__$"):
        T.__tanf__  # noqa: B018


@pytest.mark.parametrize(
    "name",
    [
        "sync_global",
        "tma_gather4",
        "launch_thread",
    ],
)
def test_names_that_are_not_offered_say_so(name):
    with pytest.raises(NotImplementedError, match=f"T.{name} is not supported") as caught:
        getattr(T, name)(1, 2)
    assert caught.value.place.file == __file__
    assert caught.value.remedy


def test_names_used_otherwise_say_so_too():
    with pytest.raises(UnsupportedError), T.launch_thread(0):
        pass
    with pytest.raises(UnsupportedError):
        T.tcgen05_gemm["K"]
    with pytest.raises(UnsupportedError):
        T.launch_thread.extent  # noqa: B018
    assert "not supported" in repr(T.sync_global)


def test_every_name_resolves():
    for name in dir(T):
        assert getattr(T, name) is not None


def test_importing_the_language_is_light():
    code = "import sys, tilec.language, tilec; tilec.jit; print({'tvm', 'numpy', 'torch'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"compile_flags": 3}, "compile flags are texts, not 3"),
        ({"compile_flags": [3]}, "compile flags are texts"),
        ({"compile_flags": "-D'x"}, "cannot be told apart"),
        ({"pass_configs": ["x"]}, "pass configs are a dict, not list"),
    ],
)
def test_wrong_options_of_the_compiler(tmp_path, config, match):
    write(tmp_path, GOOD)
    with pytest.raises((SourceValueError, SourceTypeError), match=match):
        elaborate(load_entry("kernels.py:k", tmp_path), name="k", dims={"N": Guard()}, args={}, config=config)


@pytest.mark.parametrize("guard", [Guard(eq=2146435072), Guard(min=2**31), Guard(div=2**62)])
def test_a_dimension_beyond_32_bits_is_refused(tmp_path, guard):
    write(tmp_path, GOOD)
    with pytest.raises(SourceValueError, match="can never be served") as caught:
        elaborate(load_entry("kernels.py:k", tmp_path), name="k", dims={"N": guard}, args={}, config={})
    assert "2146435071" in caught.value.why


@pytest.mark.parametrize("largest", [2146435072, 2**31 - 1, 2**32, 2**63 - 1])
def test_a_bound_beyond_32_bits_says_nothing(tmp_path, largest):
    write(tmp_path, GOOD)
    guard = Guard(min=3, max=largest)
    made = elaborate(load_entry("kernels.py:k", tmp_path), name="k", dims={"N": guard}, args={}, config={})
    assert made.dims[0].guard == Guard(min=3)


@pytest.mark.parametrize("guard", [Guard(eq=2**63 - 1), Guard(min=2**63 - 2**20), Guard(div=2**63)])
def test_a_dimension_beyond_64_bits_is_refused(tmp_path, guard):
    write(tmp_path, GOOD.replace("def k(N, blk=64):", 'def k(blk=64):\n    N = T.dynamic("N", "int64")'))
    with pytest.raises(SourceValueError, match="computes N in 64 bits") as caught:
        elaborate(load_entry("kernels.py:k", tmp_path), name="k", dims={"N": guard}, args={}, config={})
    assert caught.value.remedy == "choose smaller values"


def test_an_int64_dimension_may_be_larger(tmp_path):
    code = GOOD.replace("def k(N, blk=64):", 'def k(blk=64):\n    N = T.dynamic("N", "int64")')
    write(tmp_path, code)
    made = elaborate(
        load_entry("kernels.py:k", tmp_path),
        name="k",
        dims={"N": Guard(eq=3_000_000_000)},
        args={},
        config={},
    )
    assert made.dims[0].guard.eq == 3_000_000_000
