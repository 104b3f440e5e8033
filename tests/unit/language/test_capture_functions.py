"""How functions are captured: their source, closures, annotations; threads and lifetimes."""

from __future__ import annotations

import contextlib
import functools
import gc
import linecache
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from language_build import DYNAMIC, build, call, text

import tilec
import tilec.language
import tilec.language as T
import tilec.language as tl
from tilec import language as L
from tilec.errors import SourceError, SourceTypeError
from tilec.language import Kernel, ceildiv
from tilec.language.frontend.elaborate import load_entry
from tilec.language.values.kernel import session as sessions

Ints = T.Tensor((8,), "int32")


def ran(entry) -> list[int]:
    out = np.full(8, -99, np.int32)
    call(build(entry), {}, np.arange(8, dtype=np.int32) * 10, out)
    return out.tolist()


def written(tmp_path: Path, source: str, entry: str = "main") -> object:
    (tmp_path / "kernels.py").write_text(source)
    return load_entry(f"kernels.py:{entry}", tmp_path)


# Source ---------------------------------------------------------------------------------------------------


def test_source_is_needed():
    scope: dict = {}
    code = "import tilec.language as T\n@T.prim_func\ndef main(B: T.Tensor((8,), 'int32')):\n    B[0] = 1\n"
    with pytest.raises(SourceError, match="source text of main is not available") as caught:
        exec(code, scope)
    assert "a file or a notebook cell" in caught.value.remedy


def test_source_is_utf_8(tmp_path):
    text = "import tilec.language as T\n@T.prim_func\ndef main(B: T.Tensor((8,), 'int32')):\n    B[0] = 1\n"
    (tmp_path / "kernels.py").write_bytes(text.encode() + b"# caf\xe9\n")
    with pytest.raises(SourceError, match="source text of main cannot be read") as caught:
        load_entry("kernels.py:main", tmp_path)
    assert (caught.value.place.line, caught.value.remedy) == (2, "save the file as UTF-8")


def test_a_notebook_cell_has_source():
    cell, name = (
        (
            "import tilec.language as T\nk = 3\n@T.prim_func\ndef main(A: T.Tensor((8,), 'int32'), "
            "B: T.Tensor((8,), 'int32')):\n    with T.Kernel(1):\n        B[0] = k\n        B[1] = A[9]\n"
        ),
        "<ipython-input-1-0123456789ab>",
    )
    linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
    scope: dict = {}
    exec(compile(cell, name, "exec"), scope)
    with pytest.raises(IndexError) as caught:
        build(scope["main"])
    assert (caught.value.place.file, caught.value.place.line) == (name, 7)
    assert caught.value.place.excerpt() == ["7 | B[1] = A[9]", "  |        ^^^^"]


def marked(function):
    function.marked = True
    return function


def test_lines_are_those_of_the_file_whatever_stands_above():
    if True:

        @T.prim_func
        @marked
        @functools.lru_cache(maxsize=None) if False else marked
        def main(
            A: Ints,
            B: Ints,
        ):
            """Docstrings are no statements."""
            with T.Kernel(1):
                B[0] = 1
                B[1] = A[8]  # here

    with pytest.raises(IndexError) as caught:
        build(main)
    source = Path(__file__).read_text().splitlines()
    assert source[caught.value.place.line - 1].endswith("# here")


def test_the_language_under_any_name():
    kernel, under = Kernel, tilec.language

    @under.prim_func
    def main(A: tl.Tensor((8,), L.int32), B: under.Tensor((8,), tilec.language.int32)):
        with kernel(ceildiv(8, 8)) as (bx,):
            for i in tl.Parallel(8):
                B[i] = A[i] + bx

    assert ran(main) == list(range(0, 80, 10))


# Closures -------------------------------------------------------------------------------------------------


def test_closures_are_read_when_the_decorator_runs():
    made = []
    for value in (1, 2, 3):

        @T.prim_func
        def main(A: Ints, B: Ints):
            with T.Kernel(1):
                B[0] = value  # noqa: B023

        made.append(main)
    value = 99
    assert [ran(one)[0] for one in made] == [1, 2, 3]


GLOBAL = 1


def test_globals_are_those_of_the_module():
    global GLOBAL

    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1):
            B[0] = GLOBAL

    GLOBAL = 7
    assert ran(main)[0] == 7


def test_a_function_may_name_itself():
    @T.macro
    def fact(k):
        return 1 if k <= 1 else k * fact(k - 1)

    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1):
            B[0] = fact(4)
            B[1] = 1 if main is not None else 2

    assert ran(main)[:2] == [24, 1]


def test_annotations_as_text_see_the_scopes_around(tmp_path):
    entry = written(
        tmp_path,
        """from __future__ import annotations
import tilec.language as T
def make(N, dtype, depth=1):
    K, half = N, "float16"
    def inner():
        T.float16 = None  # a name that only looks like the type
        M = N * 2
        @T.prim_func
        def main(A: T.Tensor((K,), dtype), B: "T.Tensor((M // 2,), dtype)", x: T.int32, y: "T.int32"):
            with T.Kernel(N) as bx:
                B[bx] = A[bx] + x + y
        return main
    return inner()
""".replace("        T.float16 = None  # a name that only looks like the type\n", ""),
        "make",
    )
    printed = text(entry, {}, {"N": 8, "dtype": "int32"})
    assert 'A = tensor(int32, (8,), ("8",), access="in")' in printed
    assert "B[bx] = A[bx] + x + y" in printed


def test_body_annotations_depend_on_code_above_and_on_branches(tmp_path):
    entry = written(
        tmp_path,
        """import tilec, tilec.language as T
@tilec.jit
def f(A, is_2d: bool = False):
    N = T.const("N")
    tile = [2, N]
    if is_2d:
        A: T.Tensor[tile, T.int32]
    else:
        A: T.Tensor[[N], "int32"]
        assert N % 4 == 0
    B = T.empty((N,), T.int32)
    with T.Kernel(N) as bx:
        B[bx] = A[0, bx] if is_2d else A[bx]
    return B
""",
        "f",
    )
    dims = {"N": 4}
    assert "A[0, bx]" in text(entry, dims, {"is_2d": True})
    assert "B[bx] = A[bx]" in text(entry, dims)


def star(A: Ints, *B: Ints): ...


def positional(A: Ints, /, B: Ints): ...


def number(A: Ints, n: int): ...


def bare(A: Ints, n): ...


@pytest.mark.parametrize("function", [star, positional, number, bare])
def test_signatures_that_are_refused(function):
    with pytest.raises(SourceTypeError) as caught:
        build(T.prim_func(function))
    assert caught.value.place.file == __file__
    assert caught.value.remedy


# Threads and lifetimes ------------------------------------------------------------------------------------


def test_threads_elaborate_at_once():
    @T.prim_func
    def main(A: T.Tensor((T.dynamic("n"),), "int32"), B: Ints):
        with T.Kernel(8) as bx:
            for i in range(4):
                v = T.alloc_var("int32", i)
                if bx > i:
                    v += A[bx]
                B[bx] = v

    alone, found, barrier = text(main, {"n": DYNAMIC}), [], threading.Barrier(6)

    def elaborate() -> None:
        barrier.wait()
        found.extend(text(main, {"n": DYNAMIC}) for _ in range(5))

    threads = [threading.Thread(target=elaborate) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 30
    assert not sessions.active()


class Payload:
    """Something large that a kernel's code holds."""


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_an_elaboration_stays(fails):
    seen = []

    def make():
        payload = Payload()
        seen.append(weakref.ref(payload))

        @T.prim_func
        def main(B: Ints):
            with T.Kernel(1):
                held = payload
                B[0 if held and not fails else 99] = 1

        return main

    kernel = make()
    with contextlib.suppress(IndexError):
        build(kernel)
    del kernel
    gc.collect()
    assert seen[0]() is None


def test_frames_of_the_author_are_not_kept():
    seen = []

    def factory(n):
        payload = Payload()
        seen.append(weakref.ref(payload))

        @T.prim_func
        def main(B: T.Tensor((n,), "int32")):
            with T.Kernel(1):
                B[0] = 1

        return main

    kernel = factory(8)
    gc.collect()
    assert build(kernel)
    assert seen[0]() is None
