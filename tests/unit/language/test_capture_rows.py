"""What Python means in a kernel, row by row: Python values while building, expressions at run time."""

from __future__ import annotations

import contextlib

import numpy as np
from language_build import build, call, ran

import tilec.language as T
from tilec.ir import nodes as ir

n = T.dynamic("n")
Ints = T.Tensor((8,), "int32")


# Conditions -----------------------------------------------------------------------------------------------


def test_integers_are_conditions_everywhere():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8, threads=1) as bx:
            B[bx] = 0
            if A[bx]:
                B[bx] = 1
            if bx and A[bx] > 20:
                B[bx] = 2
            if not bx or bx == 7 - n:
                B[bx] = 3
            B[bx] = T.if_then_else(bx - 7, B[bx], 4)
            B[bx] = B[bx] if bx - 6 else 9

    assert ran(main, n=3) == [3, 1, 1, 2, 3, 2, 9, 4]


def test_python_operands_short_circuit_beside_expressions():
    @T.prim_func
    def main(A: Ints, B: Ints):
        none, causal = None, False
        with T.Kernel(1, threads=1):
            i = T.alloc_var("int32", 3)
            B[0] = 0 if none is not None and none > 3 else 1
            B[1] = 0 if causal and i < none else 2
            B[2] = 3 if i < 5 and True else 0
            B[3] = 4 if i < 5 or False else 0
            B[4] = 5 if False or i < 5 else 0
            B[5] = 6 if i < 2 or not causal else 0
            B[6] = 7 if not causal and not i > 5 else 0
            B[7] = 8 if 1 < i < 4 <= 4 else 0

    assert ran(main) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_chain_evaluates_its_middle_once():
    calls = []

    def middle(x):
        calls.append(x)
        return x

    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            B[bx] = 1 if 1 < middle(bx) < 4 else 0

    assert ran(main) == [0, 0, 1, 1, 0, 0, 0, 0]
    assert len(calls) == 1


def test_only_the_taken_side_reads_memory():
    @T.prim_func
    def main(A: Ints, B: Ints):
        T.annotate_safe_value({A: 77})
        with T.Kernel(8) as bx:
            B[bx] = A[bx + 4] if bx + 4 < 8 else -1

    assert ran(main) == [40, 50, 60, 70, -1, -1, -1, -1]


# Loops ----------------------------------------------------------------------------------------------------


def test_loops_over_python_iterables_are_expanded():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1, threads=1):
            total = T.alloc_var("int32")
            for key in {"a": 1, "bc": 2}:
                total += len(key)
            for _, value in {"a": 1}.items():
                total += value
            B[0] = total
            for item in (i * 2 for i in [0, 1, 2]):
                total += item
            B[1] = total
            for i, (_, second) in enumerate(zip([1, 2], [2, 1], strict=True)):
                B[2 + i] = second
            B[4] = sum([i for i in range(4) if i != 1])

    assert ran(main)[:5] == [4, 10, 2, 1, 5]
    assert not [stmt for stmt in ir.walk(build(main).body) if isinstance(stmt, ir.For)]


def test_break_and_continue_find_their_loop():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1, threads=1):
            count = T.alloc_var("int32")
            for i in range(8):
                for j in [0, 1, 2]:
                    if j == 1:
                        break
                    if A[i] < 40:
                        count += 1
            B[0] = count
            for _ in [0, 1]:
                for i in T.unroll(8):
                    if A[i] == 10:
                        continue
                    if A[i] >= 40:
                        break
                    count += 10
            B[1] = count

    assert ran(main)[:2] == [4, 4 + 2 * 3 * 10]


def test_a_parameter_may_be_called_like_a_builtin_or_the_language():
    @T.prim_func
    def main(range: Ints, value: Ints, T_: T.int32, _: T.int32, target: T.int32):
        with T.Kernel(1, threads=1):
            for i in T.serial(4):
                value[i] = range[i] + T_ + _ + target

    out = np.zeros(8, np.int32)
    call(build(main), {}, np.arange(8, dtype=np.int32), out, 1, 2, 3)
    assert out.tolist() == [6, 7, 8, 9, 0, 0, 0, 0]


def test_a_parameter_may_be_called_as_the_namespace_is():
    L = T

    @L.prim_func
    def main(T: L.Tensor((8,), "int32"), B: L.Tensor((8,), "int32")):
        with L.Kernel(8) as bx:
            B[bx] = T[bx]

    assert ran(main) == list(range(0, 80, 10))


def test_a_range_of_ones_own_is_no_loop_of_the_language():
    def three(*_):
        return [5, 6, 7]

    range = three

    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1):
            for at, item in enumerate(range(2)):
                B[at] = item
            for item in range(1):
                B[3] = item

    assert ran(main)[:4] == [5, 6, 7, 7]


def test_more_than_twenty_nested_loops_of_while_and_if(tmp_path):
    from tilec.language.frontend.elaborate import load_entry

    depth = 30
    lines = ["import tilec.language as T", "@T.prim_func", 'def main(B: T.Tensor((8,), "int32")):']
    lines += ["    with T.Kernel(1, threads=1):", '        v = T.alloc_var("int32", 1)']
    for level in range(depth):
        word = "while" if level % 2 else "if"
        lines.append(f"{'    ' * (2 + level)}{word} v {'<' if level % 2 else '>='} 1:")
    lines += [f"{'    ' * (2 + depth)}v += 1", "        B[0] = v"]
    (tmp_path / "deep.py").write_text("\n".join(lines))
    assert build(load_entry("deep.py:main", tmp_path))


# Other statements -----------------------------------------------------------------------------------------


def test_a_walrus_is_an_assignment():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1, threads=1):
            v = T.alloc_var("int32", 4)
            if (y := v + 1) > 2:
                v = 100
                B[0] = y
            if (m := len("ab")) > 1 and m < n:
                B[1] = m
            B[2] = (w := A[3]) + w

    assert ran(main, n=5)[:3] == [5, 2, 60]


def test_try_and_del_are_pythons():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1, threads=1):
            try:
                {}["x"]
            except KeyError as error:
                B[0] = len(str(error))
            finally:
                B[1] = 7
            x = T.alloc_var("int32", 3)
            y = x
            del x
            x = A[1] + y
            B[2] = x
            table = {"a": A[4], "b": 2}
            del table["b"]
            B[3] = table["a"] if len(table) == 1 else 0

    assert ran(main)[:4] == [3, 7, 13, 40]
    assert isinstance(build(main).launches[0].body[2], ir.Alloc)


def test_any_context_manager_will_do():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1, threads=1), contextlib.nullcontext(3) as three:
            with contextlib.nullcontext((1, 2)) as (one, two):
                B[0], B[1] = one, two
            B[2] = three

    assert ran(main)[:3] == [1, 2, 3]


def test_printing_an_expression_happens_while_building(capsys):
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            print(bx + 1, f"{A[bx]}")
            B[bx] = 1

    build(main)
    assert capsys.readouterr().out == "bx + 1 A[bx]\n"


def test_star_arguments_keywords_and_defaults():
    @T.macro
    def put(B, at, *values, step=1, **others):
        for i, value in enumerate(values):
            B[at + i * step] = value + others.get("more", 0)

    @T.prim_func
    def main(A: Ints, B: Ints):
        grid, options = (1,), {"threads": 1}
        (length,) = A.shape
        with T.Kernel(*grid, **options):
            put(B, 0, 1, length)
            put(B, 4, *[3, 4], step=2, more=n)

    assert ran(main, n=5) == [1, 8, -99, -99, 8, -99, 9, -99]


# Slices and indices ---------------------------------------------------------------------------------------


def test_negative_indices_count_from_the_end_where_that_is_known():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8, threads=1) as bx:
            at = T.alloc_var("int32", -3)
            B[bx] = A[-bx - 1]
            if bx == 7:
                B[-1] = A[at] - 1

    assert ran(main) == [70, 60, 50, 40, 30, 20, 10, -1]


def test_missing_bounds_mean_the_whole_axis():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "int32"), B: T.Tensor((4, 8), "int32")):
        with T.Kernel(1):
            T.copy(A[1:, :], B[:3, :])
            T.fill(B[-1:, 2:-2], 5)

    given, out = np.arange(32, dtype=np.int32).reshape(4, 8), np.zeros((4, 8), np.int32)
    call(build(main), {}, given, out)
    assert (out[:3] == given[1:]).all()
    assert out[3].tolist() == [0, 0, 5, 5, 5, 5, 0, 0]


def test_extents_of_slices_simplify():
    """(k + 1) * b - k * b and lo + b - lo are b, whatever k and lo are, names and loads included."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), P: Ints, B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=1) as bx:
            s = T.alloc_shared((16,), "int32")
            at = T.alloc_var("int32", 3)
            for k in range(2):
                T.copy(A[(k + 1) * 16 : (k + 2) * 16], s)
                lo = P[k] + bx
                T.copy(s, B[lo : lo + 16])
                base = lo + k
                T.copy(s, B[base + k * 16 : base + (k + 1) * 16])
                T.copy(A[at : at + 16], s)
                T.copy(A[P[k] : P[k] + 16], s)
                wide = T.cast(lo, "int64")
                T.copy(A[wide : wide + 16], s)

    copies = [stmt for stmt in ir.walk(build(main).body) if isinstance(stmt, ir.Copy)]
    assert [(copy.src.extent, copy.dst.extent) for copy in copies] == [((16,), (16,))] * 6


def test_jumps_of_every_sequential_loop():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1, threads=1):
            for i in T.vectorized(8):
                if A[i] == 20:
                    continue
                if A[i] > 50:
                    break
                B[i] = i
            count = T.alloc_var("int32")
            for i, j in T.grid(2, 4):
                if j == 2:
                    break
                count += 1 + i
            for k in T.Pipelined(4, num_stages=2):
                if k == 1:
                    continue
                count += 10
            B[7] = count

    assert ran(main) == [0, 1, -99, 3, 4, 5, -99, 36]


def test_every_error_of_the_language_has_a_remedy():
    """The calls that make errors say what to do."""
    import ast
    from pathlib import Path

    makers = {"source_error", "unsupported"}
    for file in Path(T.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", None) not in makers:
                continue
            given = {keyword.arg for keyword in node.keywords}
            assert given & {"remedy", None}, f"{file.name}:{node.lineno} says not what to do"
