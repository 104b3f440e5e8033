from __future__ import annotations

import pytest
from tvm import tirx

from tilec.ir.analysis.numbers import ranges
from tilec.ir.guards import Guard
from tilec.ir.nodes import Dim, Kernel, ScalarParam
from tilec.lowering.analysis.facts import Facts


def variables(*names: str) -> list[tirx.Var]:
    return [tirx.Var(name, "int32") for name in names]


@pytest.fixture
def grid():
    """A tile of 16 rows by 64 columns of a matrix whose rows are a multiple of 16."""
    M, N, by, bx, i, j = variables("M", "N", "by", "bx", "i", "j")
    facts = Facts(Kernel("k", (), (Dim("M", M, Guard(div=16)), Dim("N", N, Guard(min=4, max=100))), ()))
    facts.bind_range(by, 0, (M + 15) // 16)
    facts.bind_range(bx, 0, (N + 63) // 64)
    facts.bind_range(i, 0, 16)
    facts.bind_range(j, 0, 64)
    return facts, (M, N, by, bx, i, j)


def test_a_block_that_runs_has_no_empty_grid():
    F, H = variables("F", "H")
    dims = tuple(Dim(str(var.name), var, Guard()) for var in (F, H))
    facts = Facts(Kernel("k", (), dims, ()))
    rows = tirx.floordiv(H - 1, tirx.const(2, "int32")) + 1
    assert facts.prove(F > 0) is None
    facts.enter_block((tirx.floordiv(F + 7, tirx.const(8, "int32")), F * rows * 2, 2))
    assert facts.prove(F > 0) is True
    assert facts.prove(rows > 0) is True
    assert facts.prove(H > 1) is None
    facts.enter_block((tirx.floordiv(H, F),))
    assert facts.prove(H > 0) is True


def test_divisible_rows_are_inside(grid):
    facts, (M, _, by, _, i, _) = grid
    assert facts.prove(by * 16 + i < M) is True
    assert facts.prove(by * 16 + i >= 0) is True
    assert facts.prove(by * 16 + i < M - 1) is None


def test_a_tail_is_open(grid):
    facts, (_, N, _, bx, _, j) = grid
    assert facts.prove(bx * 64 + j < N) is None
    assert facts.prove(bx * 64 < N) is True
    assert facts.prove(bx * 64 + j >= N + 64) is False


def test_bounds_of_guards_count(grid):
    facts, (_, N, *_) = grid
    assert facts.prove(N > 3) is True
    assert facts.prove(N > 100) is False
    assert facts.prove(N > 50) is None


def test_assumptions_end_with_their_context(grid):
    facts, (_, N, _, bx, _, j) = grid
    cond = bx * 64 + j < N
    with facts.assume(cond):
        assert facts.prove(cond) is True
    with facts.assume(cond, False):
        assert facts.prove(cond) is False
    assert facts.prove(cond) is None


def test_a_false_conjunction_tells_nothing_about_its_parts(grid):
    facts, (*_, i, j) = grid
    both = tirx.And(i < 3, j < 5)
    with facts.assume(both, False):
        assert facts.prove(i < 3) is None
    with facts.assume(both):
        assert facts.prove(i < 3) is True
        assert facts.prove(j < 5) is True


def test_names_of_index_arithmetic_are_seen_through(grid):
    facts, (M, _, by, _, i, _) = grid
    (row,) = variables("row")
    facts.bind_value(row, by * 16 + i)
    assert facts.prove(row < M) is True
    assert str(facts.simplify(row - i)) == "by * 16"


def test_simplified_expressions_are_over_the_kernels_variables(grid):
    facts, (M, *_) = grid
    assert str(facts.simplify(M + M)) == "M * 2"


def test_loop_from_an_unknown_start_keeps_its_end():
    M, k = variables("M", "k")
    facts = Facts(Kernel("k", (), (Dim("M", M, Guard()),), ()))
    facts.bind_range(k, M // 8 - M, 4)
    assert facts.prove(k < 4) is True
    assert facts.prove(k >= 0) is None
    assert facts.prove(k < 3) is None


def test_an_end_that_has_a_name_is_the_lesser_of_two_as_well():
    K, ko, s, count = variables("K", "ko", "s", "count")
    facts = Facts(Kernel("k", (), (Dim("K", K, Guard(div=128)),), ()))
    facts.bind_range(ko, 0, (K + 4095) // 4096)
    facts.bind_value(count, tirx.min(tirx.const(32, "int32"), K // 128 - ko * 32))
    facts.bind_range(s, 0, count)
    assert facts.prove((ko * 32 + s) * 4 + 3 < K // 32) is True
    assert facts.prove((ko * 32 + s) * 4 + 4 < K // 32) is None


def test_what_is_assumed_of_a_cast_that_may_wrap_is_known_from_then_on():
    """In whatever form it was written down in between."""
    (n,) = variables("n")
    wide = tirx.Var("wide", "int64")
    facts = Facts(Kernel("k", (), (Dim("n", n, Guard()),), ()))
    cond = tirx.Cast(n.ty, wide) < n
    once = facts.inline(cond)
    assert facts.prove(cond) is None
    for assumed in (cond, once, facts.inline(once)):
        for asked in (cond, once, facts.inline(once)):
            with facts.assume(assumed):
                assert facts.prove(asked) is True
            with facts.assume(assumed, False):
                assert facts.prove(asked) is False


def test_names_of_what_is_read_have_its_range():
    k, at = variables("k", "at")
    done = tirx.decl_buffer((1,), "int32", name="done", scope="local.var")
    facts = Facts(Kernel("k", (), (), ()), {done})
    read = done[tirx.const(0, "int32")]
    facts.bind_range(k, 0, 100)
    facts.learn_binding(at, tirx.floormod(read + k, tirx.const(4, "int32")))
    assert facts.prove(at >= 0) is True
    assert facts.prove(at + 1 <= 4) is True
    assert facts.prove(at + 1 <= 3) is None
    facts.learn_binding(at, read)
    assert facts.prove(k >= 0) is True


def test_what_is_tested_for_the_last_of_a_tile_holds_for_all(grid):
    facts, (_, N, _, bx, _, j) = grid
    with facts.assume(N - bx * 64 - 63 > 0):
        assert facts.prove(bx * 64 + j < N) is True
        assert facts.prove(bx * 64 + j + 1 < N) is None
        assert facts.prove(bx * 64 + j + 64 < N) is None
    assert facts.prove(bx * 64 + j < N) is None


def test_what_is_tested_of_a_result_holds_for_what_a_step_reads_of_it():
    """Strided windows: the last of 254 results reads up to 253 * 2 + 4."""
    k, bx, j = variables("k", "bx", "j")
    facts = Facts(Kernel("k", (), (), ()))
    for var, extent in ((k, 5), (bx, 4), (j, 64)):
        facts.bind_range(var, 0, extent)
    with facts.assume(bx * 64 + j < 254):
        assert facts.prove((bx * 64 + j) * 2 + k < 511) is True
        assert facts.prove((bx * 64 + j) * 2 + k < 510) is None
    assert facts.prove((bx * 64 + j) * 2 + k < 511) is None


def test_what_is_tested_of_a_record_holds_for_its_bytes():
    """Of 33 records of 34 bytes, by lanes whose number is a remainder."""
    t, tx = variables("t", "tx")
    facts = Facts(Kernel("k", (), (), ()))
    facts.bind_range(tx, 0, 128)
    facts.bind_range(t, 0, 2)
    record = t * 32 + tx % 32
    with facts.assume(record < 33):
        assert facts.prove(record * 34 + 33 < 33 * 34) is True
        assert facts.prove(record * 34 + 34 < 33 * 34) is None


class Counted:
    """An analyzer that counts what it simplifies."""

    def __init__(self, analyzer) -> None:
        self.analyzer, self.calls = analyzer, 0

    def __getattr__(self, name: str):
        return getattr(self.analyzer, name)

    def simplify(self, expr):
        self.calls += 1
        return self.analyzer.simplify(expr)


def test_variables_that_a_condition_does_not_mention_cost_it_nothing(grid):
    """A launch has dozens of ranges and conditions: a minute's work once."""
    facts, (M, N, by, bx, i, j) = grid

    def cost() -> int:
        facts.analyzer = counted = Counted(facts.analyzer)
        with facts.remember(by * 16 + i < M - 3), facts.remember(bx * 64 + j < N - 5):
            assert facts.prove(by * 16 + j < M - 1) is None
        facts.analyzer = counted.analyzer
        return counted.calls

    few = cost()
    for var in variables(*(f"other_{number}" for number in range(40))):
        facts.bind_range(var, 0, M + 7)
    assert cost() < few + 40


def test_what_is_assumed_again_is_not_proved_again(grid):
    """Emission tries statements before it writes them: a paged cache's took 12 s in place of 3."""
    facts, (M, _, by, _, i, _) = grid
    wanted, end = by * 16 + i * 2 < M + 9, M - 6

    def verdict() -> tuple[bool | None, int]:
        facts.analyzer = counted = Counted(facts.analyzer)
        with facts.remember(by * 16 + i * 2 < end):
            found = facts.prove(wanted)
        facts.analyzer = counted.analyzer
        return found, counted.calls

    found, calls = verdict()
    assert found is True
    assert calls > 0
    assert verdict() == (True, 0)
    facts.bind_value(i, by)
    found, calls = verdict()
    assert found is True
    assert calls > 0


def test_an_end_at_the_limit_of_a_type_says_nothing():
    """min(13 - k, end - it) has a lowest number, which less one is beyond int32."""
    (count,) = variables("count")
    facts = Facts(Kernel("k", (), (), ()))
    facts.bind_range(count, -(2**31), 14)
    assert facts.prove(count > 1) is None
    assert facts.prove(count * 3 > 0) is None
    assert facts.prove(count < 14) is True


def test_arithmetic_on_data_wraps_around_where_nothing_says_that_it_does_not() -> None:
    (x,) = variables("x")
    facts = Facts(Kernel("k", (ScalarParam("x", x),), (), ()))
    product = x * 1000 + 1
    assert facts.wraps_around(product)
    with facts.assume(tirx.And(x >= 0, x < 10)):
        assert not facts.wraps_around(product)
    assert facts.wraps_around(product)


def test_what_wraps_around_of_a_long_sum_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of a sum is asked for, from the first on, as code is made of it."""
    asked = []
    holds = ranges._holds
    monkeypatch.setattr(ranges, "_holds", lambda *given: asked.append(0) or holds(*given))
    parts = variables(*(f"x{number}" for number in range(40)))
    facts = Facts(Kernel("k", tuple(ScalarParam(str(part.name), part) for part in parts), (), ()))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
        assert facts.wraps_around(total)
    assert len(asked) < 4 * len(parts)
