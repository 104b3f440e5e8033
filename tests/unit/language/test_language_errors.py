"""Errors of kernels: their text, their line, the carets under the construct, the remedy."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import bad_kernels
import pytest
from language_build import DYNAMIC, build

import tilec.language as T
from tilec.errors import Place, SourceError, SourceRuntimeError, TilecError
from tilec.language.frontend.elaborate import elaborate
from tilec.language.frontend.programs import PrimFunc
from tilec.language.frontend.review.verified import verify_source
from tilec.language.values.other_names import INSTEAD

KERNELS = {name: found for name, found in vars(bad_kernels).items() if isinstance(found, PrimFunc)}
Ints = T.Tensor((8,), "int32")


def failure(name: str) -> TilecError:
    kernel = KERNELS[name]
    reads_n = "n" in kernel.captured.function.__code__.co_names
    with pytest.raises(SourceError) as caught:
        build(kernel, {"n": DYNAMIC} if reads_n else {})
    return caught.value


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code knows no columns")
def test_texts(golden):
    """Every mistake, with the class that callers may catch."""
    texts = []
    for name in KERNELS:
        error = failure(name)
        builtin = next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins")
        texts.append(f"[{name}] {builtin}: {error}".replace(str(Path(bad_kernels.__file__).parent), "."))
    golden("\n".join(texts) + "\n", "errors.txt")


@pytest.mark.parametrize("name", KERNELS)
def test_every_error_has_a_place_a_source_line_and_a_remedy(name):
    error = failure(name)
    assert error.place.file == bad_kernels.__file__
    assert KERNELS[name].captured.line < error.place.line
    text, carets = error.place.excerpt()
    assert "^" in carets
    assert len(carets) <= len(text) or "\t" in text
    assert error.remedy


class Trouble(Exception):
    """An exception of an author, with arguments of its own."""

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(code)
        self.hint = hint


def test_exceptions_of_authors_stay_what_they_are():
    def fails():
        raise Trouble(3, hint="dry")

    @T.prim_func
    def main(B: Ints):
        with T.Kernel(1):
            fails()

    with pytest.raises(Trouble) as caught:
        build(main)
    error = caught.value
    assert (error.args, error.hint, error.exit_code) == ((3,), "dry", 2)
    assert isinstance(error.__cause__, Trouble)
    assert error.place.file == __file__
    assert str(error).startswith("kernel k: Trouble: 3\n  where: ")
    assert "rewritten" not in str(error)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (twin.args, twin.hint, str(twin)) == ((3,), "dry", str(error))


@pytest.mark.parametrize("kind", [KeyError, OSError, UnicodeError, ZeroDivisionError])
def test_builtin_exceptions_keep_their_class(kind):
    @T.prim_func
    def main(B: Ints):
        with T.Kernel(1):
            raise kind("x")

    with pytest.raises(kind, match="x") as caught:
        build(main)
    assert isinstance(caught.value, SourceError)
    assert caught.value.args == ("x",)


def test_recursion_without_an_end_says_so():
    @T.macro
    def again(B, at):
        B[at] = at
        again(B, at + 1)

    @T.prim_func
    def main(B: Ints):
        with T.Kernel(8) as bx:
            again(B, bx)

    with pytest.raises(RecursionError) as caught:
        build(main)
    assert "a macro calls itself" in caught.value.why
    assert caught.value.remedy == "test a Python number in front of the call, or write a loop"


def test_carets_under_characters_that_are_no_ascii(tmp_path):
    file = tmp_path / "wide.py"
    file.write_text('    "äöü", A[9]\n', encoding="utf-8")
    assert Place(str(file), 1, columns=(14, 18)).excerpt() == ['1 | "äöü", A[9]', "  |        ^^^^"]
    assert Place(str(file), 1, columns=(14, None)).excerpt()[1] == "  |        ^^^^"
    assert Place(str(file), 7, columns=(0, 3)).excerpt() == []
    assert Place(str(file), 1).excerpt() == []


def test_without_columns_the_whole_line_is_marked(tmp_path):
    """Before Python 3.11 code objects know lines alone."""
    from types import SimpleNamespace

    from tilec.language.values.kernel.places import _position

    file = tmp_path / "old.py"
    file.write_text("x = 1\n    T.copy(a, b)\n")
    line, columns = _position(SimpleNamespace(co_filename=str(file)), 0, 2)
    assert (line, columns) == (2, (4, None))
    assert Place(str(file), line, columns=columns).excerpt() == ["2 | T.copy(a, b)", "  | ^^^^^^^^^^^^"]


def test_names_of_other_languages_are_none_of_this_one():
    assert not INSTEAD.keys() & set(dir(T))


@pytest.mark.parametrize(
    ("name", "hint"), [("cpoy", "; did you mean T.copy?"), ("_copy", ""), ("__copy__", "")]
)
def test_no_name_is_offered_for_those_that_python_programs_ask_modules_for(name, hint):
    with pytest.raises(AttributeError) as caught:
        getattr(T, name)
    assert str(caught.value) == f"the tile language has no T.{name}{hint}"


def test_what_is_returned_in_place_of_an_output_is_named():
    @T.prim_func
    def other(A: Ints):
        made = T.empty((8,), "int32")
        with T.Kernel(8) as bx:
            made[bx] = A[bx]
        return A

    with pytest.raises(SourceError, match="must return its") as caught:
        build(other)
    assert caught.value.why == "it makes made and returns A"


def test_what_a_list_keeps_of_a_loop_that_has_ended():
    """A list, or a slice in one, knows no region: the rules of tile IR find the name."""

    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1):
            for i in range(4):
                kept = [i * 2]
            B[0] = kept[0]

    with pytest.raises(SourceRuntimeError, match="i is used outside its defining region") as caught:
        verify_source(elaborate(main, name="k", dims={}, args={}, config={}))
    assert caught.value.place.excerpt()[0].endswith("B[0] = kept[0]")
    assert caught.value.remedy.startswith("make a T.alloc_var")


def test_what_hardly_was_meant_warns():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8 // 16):
            s = T.alloc_shared((8,), "int32")
            T.annotate_layout({s: T.Layout((4,), lambda i: i)})
            T.copy(A, s)
            T.copy(s, B)

    with pytest.warns(UserWarning, match="a grid of 0 blocks and runs nothing") as caught:
        build(main)
    texts = [str(each.message) for each in caught]
    assert "the layout is one of (4,), s is a tile of (8,), which keeps the layout that it has" in texts


def test_a_value_that_nothing_takes_warns():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            B[bx] = A[bx]
            B[bx] == 0  # noqa: B015

    with pytest.warns(UserWarning, match="a value is computed and not used"):
        build(main)


def test_print_of_what_runs_warns(capsys):
    @T.prim_func
    def plain(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            print("at", bx + 1)
            B[bx] = A[bx]

    @T.prim_func
    def formatted(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            print(f"{A[bx]} of {A.shape}")
            B[bx] = A[bx]

    for kernel in (plain, formatted):
        with pytest.warns(UserWarning, match="T.print writes its value when the kernel runs"):
            build(kernel)
    assert capsys.readouterr().out == "at bx + 1\nA[bx] of (8,)\n"


def test_print_of_what_is_known_does_not(recwarn, capsys):
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            print(A.dtype, f"{A.shape}", 8)
            B[bx] = A[bx]

    build(main)
    assert (capsys.readouterr().out, list(recwarn)) == ("int32 (8,) 8\n", [])
