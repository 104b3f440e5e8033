"""Control flow, names and assignments: what Python means inside a kernel."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from language_build import DYNAMIC, body, build, call

import tilec.language as T
from tilec.errors import SourceRuntimeError, SourceTypeError, SourceValueError, UnsupportedError
from tilec.ir import nodes as ir
from tilec.language.frontend.elaborate import load_entry


def run_ints(entry, **dims: int) -> list[int]:
    """Run a kernel of the int32 input A = 0, 10, 20... and the int32 output B; ``dims`` are runtime
    values."""
    out = np.full(8, -99, np.int32)
    given = np.arange(8, dtype=np.int32) * 10
    call(build(entry, dict.fromkeys(dims, DYNAMIC)), dims, given, out)
    return out.tolist()


n = T.dynamic("n")


@T.prim_func
def branches(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
    with T.Kernel(8) as bx:
        if bx < 2:
            B[bx] = 1
        elif bx < 4:
            B[bx] = 2
        else:
            if bx == 7:
                B[bx] = n
            else:
                B[bx] = 3


def test_runtime_branches_nest():
    assert run_ints(branches, n=5) == [1, 1, 2, 2, 3, 3, 3, 5]


@T.prim_func
def known_branches(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
    flag = True
    with T.Kernel(1):
        for i in range(8):
            if flag and i >= 0:
                B[i] = 1
            else:
                B[i] = 2
            if not flag or n < 0:
                B[i] = 3


def test_branches_that_are_known_leave_no_statement():
    assert run_ints(known_branches, n=5) == [1] * 8
    assert not [
        stmt for stmt in ir.walk(build(known_branches, {"n": DYNAMIC}).body) if isinstance(stmt, ir.If)
    ]


@T.prim_func
def logic(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
    none = None
    with T.Kernel(8) as bx:
        inside = 1 < bx <= 4 and not (bx > 2 and bx < 4)
        absent = none is not None and none > 3
        B[bx] = 7 if inside or absent else (bx if bx > 5 else 0)


def test_logic_ternaries_and_chains():
    assert run_ints(logic) == [0, 0, 7, 0, 7, 0, 6, 7]


@T.prim_func
def logic_with_numbers(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
    with T.Kernel(8) as bx:
        B[bx] = T.cast(A[bx] and 5, "int32") + 2 * T.cast(A[bx] or 0, "int32")


def test_a_number_on_the_right_leaves_the_truth_of_an_expression():
    assert run_ints(logic_with_numbers) == [0] + [3] * 7


def tile_compared(compare):
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            if compare(A, A[bx]):
                B[bx] = 1

    return main


@pytest.mark.parametrize("compare", [operator.eq, operator.ne, lambda tile, one: one == tile])
def test_a_whole_tile_is_no_number_to_compare_with(compare):
    with pytest.raises(SourceTypeError, match="buffer A is no operand"):
        build(tile_compared(compare))


def test_names_of_a_tile_are_compared():
    assert run_ints(tile_compared(lambda tile, one: tile == tile and tile not in (None, "A"))) == [1] * 8


@T.prim_func
def loops(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
    with T.Kernel(1):
        total = T.alloc_var("int32")
        for i in range(n):
            if i == 3:
                continue
            total += i
        B[0] = total
        total = 0
        for i in T.serial(8, 0, -2):
            total = total * 10 + i
        B[1] = total
        for i in T.unroll(2, 4):
            B[i] = i
        for i in T.vectorized(2):
            B[4 + i] = i + 1
        count = T.alloc_var("int32", 0)
        for i, j in T.grid(2, 3):
            count += i * j
        B[6] = count
        for i in T.serial(100):
            if A[i] >= 40:
                break
            count = i
        B[7] = count


def test_loops():
    assert run_ints(loops, n=5) == [0 + 1 + 2 + 4, 8642, 2, 3, 1, 2, 3, 3]


@T.prim_func
def python_loops(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
    with T.Kernel(1):
        for at, value in enumerate([3, 1, 4, 1]):
            if value == 4:
                break
            B[at] = value
        rest = [A[i] for i in range(3)]
        for at, item in zip((4, 5, 6), rest, strict=True):
            if at == 5:
                continue
            B[at] = item
        B[2] = sum(v for v in {"x": 1, "y": 2}.values())
        B[3], B[5] = 8, 9
        B[7] = (lambda a: a * 2)(A[1])


def test_loops_over_python_values_are_expanded():
    assert run_ints(python_loops) == [3, 1, 3, 8, 0, 9, 20, 20]
    assert not [stmt for stmt in ir.walk(build(python_loops).body) if isinstance(stmt, ir.For)]


@T.prim_func
def while_loop(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
    with T.Kernel(1):
        i = T.alloc_var("int32", 1)
        steps = T.alloc_var("int32")
        while i < n * 10:
            i *= 2
            if i == 8:
                continue
            if i > 32:
                break
            steps += 1
        B[0], B[1] = i, steps


def test_while():
    assert run_ints(while_loop, n=5)[:2] == [64, 4]


@T.prim_func
def swaps(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
    with T.Kernel(1):
        p, q = T.alloc_var("int32", 1), T.alloc_var("int32", init=2)
        p, q = q, p
        B[0], B[1] = p, q
        B[2] = 5
        B[3] = 6
        B[2], B[3] = B[3], B[2]
        first = second = A[1] + p
        p = 100
        B[4] = first + second
        later = p
        p = 7
        B[5] = later
        x = A[2]
        x = x + 1
        B[6] = x
        B[7] = p


def test_assignments_evaluate_once_and_swap():
    assert run_ints(swaps) == [2, 1, 6, 5, 24, 100, 21, 7]


@T.prim_func
def containers(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=1):
        sums = [T.alloc_var("int32", i) for i in [0, 10]]
        table = {"x": A[1]}
        for i in range(3):
            sums[0] += i
            sums[1] = sums[1] * 2
        table["x"] += 1
        table["y"] = A[2] + table["x"]
        table["n"] = [1]
        table["n"] += [2]
        B[0], B[1], B[2], B[3], B[4] = sums[0], sums[1], table["x"], table["y"], len(table["n"])
        B[-1] = 5
        B[-1] -= 2


def test_variables_in_containers_are_stored_to():
    got = run_ints(containers)
    assert got[:5] == [3, 80, 11, 31, 2]
    assert got[7] == 3


@T.macro
def bump(place: T.Ref, by):
    place += by
    by = by * 2
    return by, place


@T.macro
def fact(k):
    return 1 if k <= 1 else k * fact(k - 1)


@T.prim_func
def macros(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=1):
        v = T.alloc_var("int32", 3)
        by = A[1]
        twice, now = bump(v, by + 1)
        B[0], B[1], B[2], B[3] = v, twice, now, by
        i = T.alloc_var("int32", 4)
        B[4] = 50
        bump(B[i], 5)
        B[5] = 0 if n < 0 else 6


def test_what_casts_without_being_asked_warns():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            wide: T.int64 = bx + 1
            plain: Unknown = 2  # noqa: F821
            B[bx] = wide + plain
            B[bx] = A[bx]

    with pytest.warns(UserWarning, match="does not cast|truncates") as caught:
        assert body(main)[0] == "wide = bx + 1"
    assert [str(one.message) for one in caught] == [
        "an annotation with T.int64 does not cast; use T.cast or T.alloc_var",
        "a store to B truncates float32 to int32",
    ]
    assert {one.filename for one in caught} == {__file__}


def test_macros_write_through_references():
    assert run_ints(macros, n=5)[:6] == [14, 22, 14, 10, 55, 6]


def test_fragment_sums_count_every_iteration():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            acc = T.alloc_fragment((1,), "int32")
            T.clear(acc)
            for i in T.Parallel(8):
                if i >= n:
                    continue
                acc[0] += A[i]
            B[0] = acc[0]

    assert run_ints(main, n=5)[0] == 100


def test_nested_parallel_loops_are_merged():
    @T.prim_func
    def main(B: T.Tensor((8, 8), "int32")):
        with T.Kernel(1):
            for i in T.Parallel(8):
                for j in T.Parallel(8):
                    B[i, j] = i * j

    assert body(main) == ["for i, j in parallel(8, 8):", "    B[i, j] = i * j"]


def test_deep_nesting_of_branches(tmp_path):
    """Python allows 20 nested blocks; branches of the author use none of them up."""
    depth = 40
    nest = "".join(f"{'    ' * (2 + level)}if b > {level}:\n" for level in range(depth))
    code = f"""import tilec.language as T
@T.prim_func
def main(B: T.Tensor((8,), "int32")):
    with T.Kernel(100) as b:
{nest}{"    " * (2 + depth)}B[b] = 1
"""
    (tmp_path / "deep.py").write_text(code)
    kernel = build(load_entry("deep.py:main", tmp_path))
    assert len([stmt for stmt in ir.walk(kernel.body) if isinstance(stmt, ir.If)]) == depth


# Errors ---------------------------------------------------------------------------------------------------


def refuses(kind: type[Exception], entry: object, match: str) -> None:
    with pytest.raises(kind, match=match) as caught:
        build(entry)
    assert caught.value.place.file == __file__
    assert caught.value.place.line


def test_a_name_is_dead_after_its_region():
    @T.prim_func
    def loop(B: T.Tensor((8,), "int32")):
        with T.Kernel(1) as bx:
            acc = bx + 0
            for i in range(4):
                acc = acc + i
            B[0] = acc

    @T.prim_func
    def branch(B: T.Tensor((8,), "int32")):
        with T.Kernel(4) as bx:
            if bx > 2:
                t = bx * 2
            elif bx > 1:
                t = bx * 3
            B[0] = t

    @T.prim_func
    def variable(B: T.Tensor((8,), "int32")):
        with T.Kernel(4):
            for i in range(4):
                B[i] = i
            B[0] = i

    @T.prim_func
    def tile(B: T.Tensor((8,), "int32")):
        with T.Kernel(4):
            for _ in range(4):
                s = T.alloc_shared((8,), "int32")
            T.copy(s, B)

    for entry in (loop, branch, variable, tile):
        refuses(SourceRuntimeError, entry, "outside its defining region")


def test_python_numbers_are_not_changed_by_runtime_regions():
    @T.prim_func
    def branch(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            flag = 0
            if bx > 3:
                flag = 7
            B[bx] = flag

    @T.prim_func
    def loop(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            total = 0
            for _ in range(4):
                total = total + 1
            B[bx] = total

    @T.prim_func
    def condition(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            i = 0
            while i < bx:
                i = i + 1

    @T.prim_func
    def after_an_expression(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            flag = bx + 1
            if bx > 3:
                flag = bx * 2
                flag = 7
            B[bx] = flag

    for entry in (branch, loop, condition, after_an_expression):
        refuses(SourceRuntimeError, entry, "Python number")


def test_rebinding_inside_one_region_is_fine():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        off = 1
        with T.Kernel(8) as bx:
            start = 0
            start = bx + start
            if start > n:
                off = 2
                B[bx] = off
            else:
                B[bx] = 0
            off = 3

    assert run_ints(main, n=5) == [0] * 6 + [2, 2]


def test_early_return():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            if bx > 3:
                return
            B[bx] = 1

    refuses(UnsupportedError, main, "return inside a runtime region")


def test_break_of_a_python_loop_under_a_runtime_condition():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            for i in [1, 2, 3]:
                if bx > i:
                    break

    refuses(NotImplementedError, main, "runtime condition")


def test_break_in_parallel():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.Parallel(8):
                if B[i] > 3:
                    break

    refuses(UnsupportedError, main, r"break in T\.Parallel")


def test_endless_and_empty_while():
    @T.prim_func
    def endless(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            while True:
                B[0] = 1

    @T.prim_func
    def empty(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            B[0] = 1
            while False:
                B[0] = 2

    refuses(SourceRuntimeError, endless, "never end")
    with pytest.warns(UserWarning, match="never true"):
        assert body(empty) == ["B[0] = 1"]


def test_statements_after_break_are_dropped_with_a_warning():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in range(8):
                B[i] = 1
                break
                B[i] = 2

    with pytest.warns(UserWarning, match="after break or continue"):
        assert body(main) == ["for i in serial(0, 8, 1):", "    B[i] = 1", "    break"]


def test_membership_of_an_expression():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            if bx in [1, 2]:
                B[bx] = 1

    refuses(UnsupportedError, main, "in with an expression")


def test_truth_of_an_expression_in_a_helper():
    def helper(x):
        return 1 if x == 3 else 2

    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            B[bx] = helper(bx)

    refuses(SourceValueError, main, "truth value")


def test_builtin_max_names_the_language():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            B[bx] = max(bx, 3)

    with pytest.raises(SourceValueError, match=r"T\.max"):
        build(main)


def test_whole_buffer_augmented():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            s = T.alloc_shared((8,), "int32")
            s += 1

    refuses(SourceRuntimeError, main, "whole buffer")


def test_updates_that_every_thread_repeats():
    @T.prim_func
    def repeated(B: T.Tensor((8,), "int32")):
        with T.Kernel(4) as bx:
            B[bx] += 1

    @T.prim_func
    def once(B: T.Tensor((8,), "int32")):
        with T.Kernel(4) as bx:
            for i in T.Parallel(2):
                B[bx * 2 + i] += 1

    assert build(repeated).launches[0].thread_vars
    assert not build(once).launches[0].thread_vars


def test_iterating_a_buffer_or_an_expression():
    @T.prim_func
    def buffer(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for x in B:
                B[0] = x

    @T.prim_func
    def expression(B: T.Tensor((8,), "int32")):
        with T.Kernel(1) as bx:
            B[0] = sum(i for i in bx)

    refuses(SourceTypeError, buffer, "cannot be iterated")
    refuses(SourceTypeError, expression, "cannot be iterated")


def test_statements_outside_a_kernel():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        T.clear(B)

    refuses(SourceRuntimeError, main, r"T\.clear stands outside")


@pytest.mark.parametrize("kind", ["def", "class", "else", "walrus", "starred", "attribute"])
def test_refused_syntax(kind):
    @T.prim_func
    def nested_def(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):

            def inner():
                B[0] = 1

            inner()

    @T.prim_func
    def nested_class(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):

            class Inner:
                pass

    @T.prim_func
    def loop_else(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in range(3):
                B[i] = 1
            else:
                B[0] = 2

    @T.prim_func
    def walrus(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            B[0] = 1 if True and (_ := 3) > 2 else 0

    @T.prim_func
    def starred(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            _, *_rest = 1, 2, 3

    @T.prim_func
    def attribute(B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            B.shape = 3

    kernels = {
        "def": (nested_def, "nested def"),
        "class": (nested_class, "class"),
        "else": (loop_else, "else of a loop"),
        "walrus": (walrus, "walrus"),
        "starred": (starred, "starred"),
        "attribute": (attribute, "attribute"),
    }
    entry, match = kernels[kind]
    refuses(NotImplementedError, entry, match)


def test_a_nested_def_of_one_return_is_a_lambda():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:

            def scaled(x: T.int32, by: int = 3) -> T.int32:
                """x times by, and the block."""
                return x * by + bx

            B[bx] = scaled(A[bx])

    assert run_ints(main) == [0, 31, 62, 93, 124, 155, 186, 217]


def test_a_macro_in_an_operand():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            v = T.alloc_var("int32")
            B[bx] = bump(v, 1)[0] if bx > 3 else 0

    refuses(SourceRuntimeError, main, "adds statements")


def test_a_reference_needs_a_place():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            bump(bx + 1, 2)

    refuses(SourceValueError, main, "takes a variable or an element")


def test_macro_outside_a_kernel():
    with pytest.raises(SourceRuntimeError, match="macro bump is used outside"):
        bump(1, 2)
