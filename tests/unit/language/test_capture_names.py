"""Names and assignments, row by row: what ``name = value`` does by the value and by what the name holds."""

from __future__ import annotations

import operator
from functools import cached_property

import pytest
from language_build import build, ran, text

import tilec.language as T
from tilec.errors import SourceRuntimeError
from tilec.ir import nodes as ir
from tilec.language.frontend.rewriting import kept_values

n = T.dynamic("n")
Ints = T.Tensor((8,), "int32")


def binds(entry) -> list[str]:
    """The names that a kernel binds."""
    return [str(stmt.var.name) for stmt in ir.walk(build(entry).body) if isinstance(stmt, ir.Bind)]


def refused(entry, match: str, name: str) -> None:
    """Reading ``name`` is an error at its own place."""
    with pytest.raises(SourceRuntimeError, match=match) as caught:
        build(entry)
    line, carets = caught.value.place.excerpt()
    assert line[carets.index("^") : carets.rindex("^") + 1].startswith(name)
    assert "T.alloc_var" in caught.value.remedy


def test_values_of_every_kind_into_a_variable():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8, threads=1) as bx:
            v = T.alloc_var("int32")
            v = 2.7
            B[0] = v
            v = True
            B[1] = v
            v = A[1] + n
            B[2] = v
            v = bx
            w = v
            v = 5
            B[3] = w - bx
            B[4] = v
            v = T.alloc_shared((4,), "int32")
            v[0] = 6
            B[5] = v[0]
            u = T.alloc_var("int32", 4)
            u = "text"
            B[6] = len(u)
            u = T.alloc_var("int32", 9)
            B[7] = u

    assert ran(main, n=3) == [2, 1, 13, 0, 5, 6, 4, 9]


def test_an_expression_is_evaluated_where_it_is_named():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1, threads=1):
            here = T.alloc_local((1,), "int32")
            v = T.alloc_var("int32", 3)
            here[0] = 1
            x = here[0] + v
            y = v
            here[0], v = 2, 4
            B[0] = x
            B[1] = here[0]
            B[2] = y
            B[3] = v
            x = x + 1
            B[4] = x

    assert ran(main)[:5] == [4, 2, 3, 4, 5]
    assert binds(main) == ["x", "y", "x"]


def test_indices_and_bindings_are_aliased_without_a_copy_or_a_cast():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            for i in T.Parallel(1):
                same = bx
                twice = bx * 2
                other = twice
                also = i
                B[bx] = same + other - twice + also

    assert binds(main) == ["twice"]
    assert ran(main) == list(range(8))


def test_python_values_make_no_code():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1):
            three = 3
            three += 1
            shape, words = (4, 5), {"k": three}
            items = [*shape]
            items += [6]
            B[0], B[1], B[2] = words["k"], items[2], shape[1]

    assert ran(main)[:3] == [4, 6, 5]
    assert binds(main) == []


def test_buffers_and_regions_are_aliased():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1):
            source, part = A, A[2:6]
            tile = T.alloc_shared((4,), "int32")
            held = tile
            T.copy(part, held)
            for i in T.Parallel(4):
                B[i] = tile[i] + source[1]

    assert ran(main)[:4] == [30, 40, 50, 60]


def test_several_targets_share_one_evaluation():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1, threads=1):
            first = second = A[1] + 1
            B[0] = B[1] = first + second
            v, w = T.alloc_var("int32", 1), T.alloc_var("int32", 2)
            v, w = w, v
            A[0], A[1] = A[1], A[0]
            B[2], B[3], B[4], B[5] = v, w, A[0], A[1]

    assert ran(main)[:6] == [22, 22, 2, 1, 10, 0]


def test_augmented_assignments():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1, threads=1):
            v = T.alloc_var("int32", 10)
            v -= 3
            v <<= 2
            v //= 3
            B[0] = v
            B[1] = 2
            B[1] *= A[3]
            x = A[2]
            before = x
            x += 1
            B[2], B[3] = before, x
            p = 3
            p **= 2
            B[4] = p

    assert ran(main)[:5] == [9, 60, 20, 21, 9]


def test_annotations_with_values_have_no_effect_and_say_so_once():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            wide: T.int64 = bx
            again: T.int64 = bx
            same: T.int32 = bx + 1
            one: T.float32 = 1
            plain: int = 3
            unknown: Nowhere = 4  # noqa: F821
            B[bx] = wide + again + same + one + plain + unknown

    with pytest.warns(UserWarning, match="does not cast") as caught:
        built = text(main)
    assert len(caught) == 2  # int64 and float32
    assert "cast" not in built


# Scope ----------------------------------------------------------------------------------------------------


def test_names_of_runtime_regions_are_dead_after_them():
    @T.prim_func
    def loop_index(B: Ints):
        with T.Kernel(4):
            for i in range(4):
                B[i] = i
            B[0] = i

    @T.prim_func
    def both_branches(B: Ints):
        with T.Kernel(4) as bx:
            if bx > 2:
                t = bx * 2
                B[1] = t
            else:
                t = bx * 3
            B[0] = t

    @T.prim_func
    def carried(B: Ints):
        with T.Kernel(1) as bx:
            total = bx + 0
            for i in range(4):
                total = total + i
            B[0] = total

    @T.prim_func
    def tile(B: Ints):
        with T.Kernel(4) as bx:
            while B[0] > bx:
                s = T.alloc_shared((8,), "int32")
            T.copy(s, B)

    @T.prim_func
    def block_index(B: Ints):
        with T.Kernel(4) as bx:
            B[bx] = 1
        with T.Kernel(4) as by:
            B[by] = bx

    refused(loop_index, "i is used outside its defining region", "i")
    refused(both_branches, "t is used outside its defining region", "t")
    refused(carried, "total is used outside its defining region", "total")
    refused(tile, "s is used outside its defining region", "s")
    refused(block_index, "bx is used outside its defining region", "bx")


def test_python_loops_and_branches_open_no_region():
    @T.prim_func
    def main(A: Ints, B: Ints):
        for k in [1, 2]:
            with T.Kernel(1):
                total = A[k]
                for i in [3, 4]:
                    total = total + A[i]
                if k == 2:
                    last = total * 2
                    B[3] = last
                else:
                    last = total
                B[k] = last + i

    assert ran(main)[:4] == [-99, 84, 184, 180]


def test_numbers_that_runtime_regions_rebind():
    @T.prim_func
    def flag(B: Ints):
        with T.Kernel(8) as bx:
            seen = 0
            if bx > 3:
                seen = 7
            B[bx] = seen

    @T.prim_func
    def stepped(B: Ints):
        with T.Kernel(8) as bx:
            at = 0
            while at < bx:
                at = at + 1
            B[bx] = 1

    @T.prim_func
    def fine(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            seen = 0
            if bx > 3:
                seen = 7
                B[bx] = seen
            else:
                B[bx] = 1
            seen = 2
            for _ in range(1):
                seen = 5
                A[bx] = seen

    refused(flag, "seen holds a Python number that a runtime region rebinds", "seen")
    with pytest.raises(SourceRuntimeError, match="at holds a Python number"):
        build(stepped)
    assert ran(fine) == [1] * 4 + [7] * 4


def test_what_runtime_regions_rebind_is_no_number_alone():
    @T.prim_func
    def swapped(A: Ints, B: Ints):
        with T.Kernel(1):
            a, b = T.alloc_shared((8,), "int32"), T.alloc_shared((8,), "int32")
            for _ in T.serial(3):
                T.copy(a, b)
                a, b = b, a

    @T.prim_func
    def chosen(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            source = A
            if bx > 3:
                source = B
            B[bx] = source[bx]

    @T.prim_func
    def alias(A: Ints, B: Ints):
        with T.Kernel(8, 8) as (bx, by):
            at = bx
            if by > 3:
                at = by
            B[at] = 1

    @T.prim_func
    def mode(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            name = "add"
            if bx > 3:
                name = "mul"
            B[bx] = A[bx] + 2 if name == "add" else A[bx] * 2

    @T.prim_func
    def inside(A: Ints, B: Ints):
        with T.Kernel(8) as bx:
            total = A[bx]
            for i in T.serial(3):
                for _ in T.serial(2):
                    B[i] = total
                total = total + A[i]

    @T.prim_func
    def fine(A: Ints, B: Ints):
        with T.Kernel(1) as bx:
            at, name, tile = bx + 0, "front", A
            for i in T.Parallel(4):
                at = at + i
                B[at] = 5
            if A[1] < 999:
                name, tile = "branch", B
                assert name == "branch"
                tile[4] = 6
            for _ in T.serial(2):
                at, name = bx + 3, "loop"
                at += len(name)
                B[at] = 7

    refused(swapped, "a holds a buffer that a runtime region rebinds", "a, b = b, a")
    refused(chosen, "source holds a buffer that a runtime region rebinds", "source")
    refused(alias, "at is used outside its defining region", "at")
    refused(mode, "name holds a Python object that a runtime region rebinds", "name")
    refused(inside, "total is used outside its defining region", "total = total")
    assert ran(fine) == [5, 5, 5, 5, 6, -99, -99, 7]


def test_a_condition_that_never_changes():
    @T.prim_func
    def bound(B: Ints):
        with T.Kernel(8) as bx:
            at = bx + 0
            while at < 5:
                at = at + 1

    @T.prim_func
    def left(B: Ints):
        with T.Kernel(8, threads=1) as bx:
            count = T.alloc_var("int32")
            while bx < 5:
                count += 1
                if count > 3:
                    break
            B[bx] = count

    with pytest.raises(SourceRuntimeError, match="at is used outside its defining region"):
        build(bound)
    assert build(left)


def test_del_forgets_what_a_name_held():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1, threads=1):
            v = T.alloc_var("int32", 3)
            kept = v
            del v
            v = A[1]
            B[0] = v + kept
            del v
            B[1] = v  # noqa: F821

    with pytest.raises(UnboundLocalError):
        build(main)


def test_a_number_in_the_place_of_a_tile_warns():
    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1):
            tile = T.alloc_fragment((8,), "int32")
            T.copy(A, tile)
            B[0] = tile[0]
            tile = 0
            B[1] = tile

    with pytest.warns(UserWarning, match=r"tile = 0 stores nothing: .* T.fill\(tile, 0\)") as caught:
        assert ran(main)[:2] == [0, 0]
    assert len(caught) == 1


def test_variables_in_python_objects():
    """A loop over them and an unpacking name them, a name on the left alone is given a value."""

    def made():
        return [T.alloc_var("int32", init) for init in (3, 4, 5)]

    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1):
            held = made()
            for each in held:
                each += 10
            for _t in T.serial(2):
                for each, k in zip(held, (1, 2, 3), strict=True):
                    each += k * A[1]
            for _i in T.serial(3):
                old = held[0]
                held[0] = held[1]
                held[1] = old
                held[1], held[2] = held[2], held[1]
            first, last = made(), held[2]
            one, _two, three = held
            one += 1000
            for k in (0, 1, 2):
                B[k], B[k + 3] = held[k], first[k]
            B[6], B[7] = last, three

    expected = [33, 54, 75]
    for _ in range(3):
        expected[:2] = expected[1::-1]
        expected[1:] = expected[:0:-1]
    out = [expected[0] + 1000, *expected[1:], 3, 4, 5, expected[2], expected[2]]
    assert ran(main) == out


def test_python_objects_keep_the_values_of_where_they_were_made():
    def pair(a):
        return {"twice": a * 2, "more": [a + 1]}

    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1):
            v, kept, part = T.alloc_var("int32", 3), [], T.alloc_local((2,), "int32")
            made, both = pair(v), (v * 5, A[v] + v)
            for k in (1, 2):
                kept.append(v * k)
                v += 1
            region = A[v : v + 2]
            v = 100
            T.copy(region, part)
            B[0], B[1] = made["twice"], made["more"][0]
            B[2], B[3] = both[0], both[1]
            B[4], B[5] = kept[0], kept[1]
            B[6], B[7] = part[0], part[1]

    assert ran(main) == [6, 4, 15, 33, 3, 8, 50, 60]


class _Odd:
    """An iterator of an author."""

    __slots__ = ("last",)

    def __init__(self):
        self.last = 1

    def __iter__(self):
        return self

    def __next__(self):
        self.last += 2
        return self.last


class _Steps:
    """A helper of an author that counts while the kernel is built."""

    def __init__(self):
        self.taken = 0

    def take(self):
        self.taken += 1
        return self.taken

    @cached_property
    def doubled(self):
        return self.taken * 2


_CHANGES = {
    "a slot": lambda kept: operator.setitem(kept["slots"], 0, kept["slots"][0] + 1),
    "a list that grows": lambda kept: kept["slots"].append(1),
    "a list like another": lambda kept: kept["alike"][1].append(1),
    "a dict": lambda kept: kept.update({len(kept): 1}),
    "a set": lambda kept: kept["seen"].add(len(kept["seen"]) + 1),
    "an iterator": lambda kept: next(kept["left"]),
    "a generator": lambda kept: next(kept["made"]),
    "iterators of iterators": lambda kept: next(kept["pairs"]),
    "an iterator of an author's": lambda kept: next(kept["odd"]),
    "an object": lambda kept: kept["steps"].take(),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES.keys())
def test_runtime_regions_change_no_object_from_outside(change):
    def objects():
        iterators = {"left": iter([5, 6, 7]), "made": (2 * k for k in range(9)), "odd": _Odd()}
        iterators["pairs"] = enumerate(zip([5, 6, 7], "abc", strict=True))
        return {"slots": [0], "alike": [[0], [0]], "seen": {1}, "steps": _Steps(), **iterators}

    @T.prim_func
    def looped(B: Ints):
        with T.Kernel(1):
            kept = objects()
            change(kept)
            for i in T.serial(4):
                change(kept)
                B[i] = 1

    @T.prim_func
    def branched(B: Ints):
        with T.Kernel(8) as bx:
            kept = objects()
            if bx > 3:
                change(kept)

    refused(looped, "a runtime region changes what kept holds, a Python", "change(kept)")
    refused(branched, "a runtime region changes what kept holds, a Python", "change(kept)")


def test_objects_change_where_they_were_made():
    seen = []

    @T.prim_func
    def main(A: Ints, B: Ints):
        with T.Kernel(1):
            table, steps, left = {"scale": 1, "kind": "a"}, _Steps(), zip([5, 6], "ab", strict=True)
            steps.take()
            next(left)
            for k in (1, 2, 3):
                table["scale"] += k
                seen.append(k)
            held = [T.alloc_var("int32", 0)]
            for i in T.serial(4):
                terms = []
                for k in (0, 4):
                    terms.append(A[i + k] * table["scale"])
                terms[0] = terms[0] + terms[1]
                held[0] += i * steps.doubled
                table["scale"], table["kind"] = 7, f"{'a'}"  # as before
                B[i] = terms[0]
            B[4], B[5] = held[0], len(seen)

    assert ran(main) == [(2 * a + 40) * 7 for a in (0, 10, 20, 30)] + [12, 3, -99, -99]


def test_lists_that_grow_evaluate_what_is_new(monkeypatch):
    seen, evaluate = [], kept_values._item

    def noted(item, *rest):
        seen.append(item)
        return evaluate(item, *rest)

    monkeypatch.setattr(kept_values, "_item", noted)

    @T.prim_func
    def main(B: T.Tensor((64,), "int32")):
        with T.Kernel(1):
            rows = []
            for i in list(range(16)):
                rows.append([B[i] + 1, B[i + 16] + 2])
            for i in list(range(16)):
                B[i] = rows[i][0] + rows[i][1]

    build(main)
    assert len(seen) == 3 * 16
