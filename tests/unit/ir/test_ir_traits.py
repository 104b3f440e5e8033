"""What the types of fields tell of statements, for every class of every dialect."""

from __future__ import annotations

import re
import sys
from dataclasses import fields, replace

import pytest
from ir_samples import buffer, f32, i32, load, region, shared, store, var

import tilec.backends.cpu.nodes
import tilec.backends.cuda.matmul.match.promotion
import tilec.backends.cuda.packed_weights.nodes  # noqa: F401 (the statements of every dialect)
from tilec.backends.cuda.attention.nodes import AttentionOrder, AttentionRoles, RingPut, RingWait, TileRing
from tilec.backends.cuda.matmul.nodes import MatmulRoles, TileOrder
from tilec.backends.cuda.warp_roles.nodes import Roles
from tilec.ir import nodes as ir
from tilec.ir.analysis.known_trips import counts_from_zero, known_trips
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.nodes.threads import ThreadReduce
from tilec.ir.serial import serial_nest
from tilec.ir.stmt import Name, Required, Stmt, children, kept, own, parts, with_children
from tilec.ir.text.forms import form_of
from tilec.ir.traits import Rewriter, buffers, defined, expressions, mentioned, read, scratch, written


def _classes(base=Stmt):
    for cls in base.__subclasses__():
        yield from (cls, *_classes(cls))


OWN = {cls for cls in _classes() if cls.__module__.startswith("tilec.")}
CLASSES = sorted(OWN, key=lambda cls: (cls.__module__, cls.__name__))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_types_say_of_each_name_whether_it_is_defined(cls):
    assert [part.name for part in parts(cls)] == [item.name for item in fields(cls)]
    for part in own(cls):
        assert part.kind is not Name or part.word in ("defines", "operands"), part.name
        assert part.word != "at" or any(other.at == part for other in own(cls)), part.name


def test_the_grammar_names_every_statement_of_authors():
    known = [cls for cls in CLASSES if cls.__module__.startswith("tilec.ir.nodes")]
    modules = {"tilec.ir.nodes", *(cls.__module__ for cls in known)}
    named = {word for module in modules for word in re.findall(r"\w+", sys.modules[module].__doc__)}
    assert [cls for cls in known if cls.__name__ not in named] == []


def test_asides_may_be_left_out():
    asides = [part for cls in CLASSES for part in parts(cls) if part.word == "aside"]
    assert all(part.default is not Required for part in asides)


def test_no_two_classes_have_a_word_in_common():
    forms = [form_of(cls) for cls in CLASSES if vars(cls).get("syntax") != ""]
    words = [word for form in forms for word in form.words.values()]
    assert len(words) == len(set(words))


def test_a_store_writes_what_it_names_and_reads_what_it_loads():
    x, s, i = buffer("x", (8,)), shared("s", (8,)), var("i")
    store = ir.Store(s, (i,), load(x, i))
    assert (written(store), list(read(store)), list(buffers(store))) == ((s,), [x], [s, x])
    assert mentioned(store) == {x, s, i}
    assert next(iter(expressions(store))).same_as(i)


def test_products_update_their_sums():
    a, b, c = (shared(name, (16, 16)) for name in "abc")
    gemm = ir.Gemm(region(a), region(b), region(c), False, False, i32(1))
    assert (list(read(gemm)), written(gemm)) == ([a, b, c], (c,))


@pytest.mark.parametrize(
    ("kind", "reads", "writes"), [("add", True, True), ("load", True, False), ("store", False, True)]
)
def test_an_atomic_that_only_loads_or_stores_is_no_update(kind, reads, writes):
    x = buffer("x", (8,))
    stmt = ir.Atomic(kind, x, (i32(0),), i32(1))
    assert (list(read(stmt)), written(stmt)) == ([x] * reads, (x,) * writes)
    assert list(buffers(stmt)) == [x]


@pytest.mark.parametrize("clear", [True, False])
def test_a_reduction_that_clears_its_sums_does_not_read_them(clear):
    x, s = shared("x", (8, 4)), shared("s", (8,))
    stmt = ir.Reduce("sum", region(x), region(s), 1, clear)
    assert (list(read(stmt)), written(stmt)) == ([x] if clear else [x, s], (s,))


def test_names_are_those_of_blocks_or_of_what_follows():
    i, s = var("i"), shared("s", (8,))
    loop = ir.For("serial", i, i32(0), i32(8), i32(1), (ir.Alloc(s),))
    assert (defined(loop), defined(loop.body[0]), defined(ir.Bind(i, i32(1)))) == ((i,), (s,), (i,))
    pair = (var("a", "float32"), var("b", "float32"))
    combined = ThreadReduce(pair, pair[0] + pair[1], i32(0), i32(0), i32(1), s, (i,), (0,))
    assert defined(combined) == ()
    assert set(pair) <= mentioned(combined)


def test_statements_with_several_blocks_are_rebuilt():
    first, second = (ir.Break(),), (ir.Continue(),)
    for stmt in (
        ir.If(i32(1), first),
        MatmulRoles(Roles(2, None), TileOrder(0, 1), first, ()),
        AttentionRoles(Roles(2, None), AttentionOrder(), (), first, ()),
    ):
        others = ((),) * (len(children(stmt)) - 1)
        assert children(stmt) == (first, *others)
        assert children(with_children(stmt, (second, *others[1:], first))) == (second, *others[1:], first)


class _Other(Rewriter):
    def __init__(self, old, new):
        super().__init__()
        self.old, self.new = old, new

    def buffer(self, buffer):
        return self.new if buffer.same_as(self.old) else buffer


def test_what_statements_share_stays_shared():
    tile, other = shared("t", (2, 8)), shared("u", (2, 8))
    ring = TileRing(tile, shared("t", (8,)), 2, 64, var("stage"))
    roles = AttentionRoles(Roles(1, None), AttentionOrder(), (ring,), (RingPut(ring, ()),), (RingWait(ring),))
    made = _Other(tile, other).stmt(roles)
    (found,), (put,), (wait,) = made.rings, made.producer, made.consumer
    assert found.tile.same_as(other)
    assert put.ring is found
    assert wait.ring is found
    assert _Other(other, tile).stmt(roles).rings[0] is ring


class _Twice(Rewriter):
    def stmts(self, stmt):
        if isinstance(stmt, ir.Break):
            return ()
        return super().stmts(stmt) * (2 if isinstance(stmt, ir.Continue) else 1)


def test_one_several_or_no_statements_stand_in_place_of_one():
    again, branch = ir.Continue(), ir.If(i32(1), (ir.Break(), ir.Continue()), (ir.Break(),))
    (made,) = _Twice().block((ir.Break(), branch))
    assert [type(stmt) for stmt in made.then] == [ir.Continue] * 2
    assert made.orelse == ()
    assert len(_Twice().block((again,))) == 2


def test_scalar_code_leaves_no_loop_early_and_holds_up_no_threads():
    i, out = var("i"), buffer("out", (4,))
    stores = ir.For("serial", i, i32(0), i32(4), i32(1), (store(out, i, f32(1)),))
    assert is_scalar_code((ir.Alloc(shared("s", (4,))), ir.If(i32(1), (stores,))))
    for other in (ir.Break(), ir.Fill(region(out), f32(0)), ir.Atomic("add", out, (i32(0),), f32(1))):
        assert not is_scalar_code((replace(stores, body=(other,)),))


def test_room_of_a_statement_is_neither_read_nor_written():
    registers = (ir.Region(shared("a", (4, 4)), (i32(0), i32(0)), (4, 4)),) * 3
    from tilec.backends.cuda.nodes import BlockScan

    room = shared("room", (4,))
    scan = BlockScan("sum", registers[0], False, room)
    assert scratch(scan) == (room,)
    assert room not in set(buffers(scan))


def test_a_statement_keeps_what_it_was_asked_and_its_copy_does_not() -> None:
    asked = []

    @kept
    def line(stmt: ir.Stmt) -> int:
        asked.append(stmt)
        return len(asked)

    first = ir.Break()
    second = replace(first)
    assert [line(first), line(first), line(second)] == [1, 1, 2]
    assert asked == [first, second]


def test_serial_loops_count_in_the_type_of_their_variable():
    i, j = var("i", "int64"), var("j")
    (outer,) = serial_nest((i, j), (3, i + 1), (ir.Break(),))
    (inner,) = outer.body
    assert [str(part.ty) for part in (outer.start, outer.stop, outer.step)] == ["int64"] * 3
    assert (known_trips(outer), known_trips(inner)) == (range(3), None)
    assert counts_from_zero(inner)
    assert not counts_from_zero(replace(inner, start=i32(1)))
    assert serial_nest((), (), (inner,)) == (inner,)
