"""Operands that threads make in registers: of which tiles, and when their products are waited for."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec.backends.cuda.analysis.accesses.bank_conflicts import conflicts
from tilec.backends.cuda.nodes import BoxLoad, ProductsWait, Sync, WarpgroupProduct
from tilec.backends.pipeline import lower
from tilec.ir.exprs import loads
from tilec.ir.nodes import Alloc, For, Gemm, Store, walk
from tilec.ir.nodes.barriers import Group
from tilec.ir.traits import expressions
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

HOPPER = parse_target("sm_90a")


def scaled(until, read_before=False, read_behind=False, shifted=False, by_trips=False, columns=128):
    """A product whose first operand is scaled where it lies; ``by_trips``: by other factors in each trip."""

    @T.prim_func
    def kernel(
        A: T.Tensor((1024, 1024), "float16"),
        B: T.Tensor((1024, 1024), "float16"),
        factors: T.Tensor((16, 1024), "float32"),
        C: T.Tensor((1024, 1024), "float16"),
        D: T.Tensor((1024, 1024), "float16"),
    ):
        with T.Kernel(1024 // columns, 8, threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), "float16"), T.alloc_shared((columns, 64), "float16")
            sums = T.alloc_fragment((128, columns), "float32")
            T.clear(sums)
            for k in T.Pipelined(16, num_stages=3):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[bx * columns, k * 64], Bs)
                if read_before:
                    T.gemm(As, Bs, sums, transpose_B=True)
                for i, j in T.Parallel(128, 64):
                    As[i, j] = As[i, 63 - j if shifted else j] * factors[k if by_trips else 0, by * 128 + i]
                T.gemm(As, Bs, sums, transpose_B=True)
                if read_behind:
                    T.copy(As, D[by * 128, k * 64])
            T.copy(sums, C[by * 128, bx * columns])

    made = elaborate(kernel, name="kernel", dims={}, args={}, config={})
    return lower(made, HOPPER, until=until).launches[0]


def written_in_place(launch) -> bool:
    """Whether threads write a tile that is loaded."""
    rings = {
        stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc) and len(stmt.buffer.shape) > 2
    }
    return any(isinstance(stmt, Store) and stmt.buffer in rings for stmt in walk(launch.body))


@pytest.mark.parametrize("form", [{}, {"read_before": True}, {"read_behind": True}])
def test_a_tile_that_is_changed_where_it_lies_is_two(form):
    launch = scaled("split_roles", **form)
    assert not written_in_place(launch)
    *before, last = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
    assert last.a.buffer.name == "As_made"
    assert all(stmt.a.buffer.name == "As" for stmt in before)


def test_a_tile_whose_elements_change_places_stays_one():
    tiles = [
        stmt.buffer.name for stmt in walk(scaled("split_roles", shifted=True).body) if isinstance(stmt, Alloc)
    ]
    assert "As_made" not in tiles


def test_a_product_of_registers_that_a_trip_makes_is_complete_at_its_end():
    launch = scaled("place_product_waits")
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, For)]
    loop = next(stmt for stmt in loops if any(isinstance(inner, WarpgroupProduct) for inner in stmt.body))
    kinds = [type(stmt) for stmt in loop.body if isinstance(stmt, (WarpgroupProduct, ProductsWait))]
    waits = [stmt for stmt in loop.body if isinstance(stmt, ProductsWait)]
    (product,) = [stmt for stmt in loop.body if isinstance(stmt, WarpgroupProduct)]
    assert product.a.buffer.scope() == "local.fragment"
    assert kinds == [WarpgroupProduct, ProductsWait]
    assert waits[0].pending == 0


def trip_of(launch) -> For:
    """The loop that multiplies."""
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, For)]
    return next(loop for loop in loops if any(isinstance(inner, WarpgroupProduct) for inner in loop.body))


def converted(until, source="float8_e4m3fn", scaled=False, columns=128):
    """A product whose first operand has another type in memory."""

    @T.prim_func
    def kernel(
        A: T.Tensor((1024, 1024), source),
        B: T.Tensor((1024, 1024), "float16"),
        C: T.Tensor((1024, 1024), "float16"),
    ):
        with T.Kernel(1024 // columns, 8, threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), source), T.alloc_shared((columns, 64), "float16")
            wide, sums = T.alloc_fragment((128, 64), "float16"), T.alloc_fragment((128, columns), "float32")
            T.clear(sums)
            for k in T.Pipelined(16, num_stages=3):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[bx * columns, k * 64], Bs)
                T.copy(As, wide)
                if scaled:
                    for i, j in T.Parallel(128, 64):
                        wide[i, j] *= T.float16(3)
                T.gemm(wide, Bs, sums, transpose_B=True)
            T.copy(sums, C[by * 128, bx * columns])

    made = elaborate(kernel, name="kernel", dims={}, args={}, config={})
    return lower(made, HOPPER, until=until).launches[0]


def test_steps_of_a_converted_operand_do_not_wait_for_each_other():
    trip = trip_of(converted("place_product_waits"))
    kinds = [type(stmt) for stmt in trip.body if isinstance(stmt, (WarpgroupProduct, ProductsWait))]
    assert kinds == [*[WarpgroupProduct] * 4, ProductsWait]
    assert len({stmt.a.buffer for stmt in trip.body if isinstance(stmt, WarpgroupProduct)}) == 4


@pytest.mark.parametrize("form", [{"source": "int8"}, {"scaled": True}])
def test_an_operand_that_takes_more_than_a_conversion_of_floats_is_made_at_once(form):
    products = [stmt for stmt in trip_of(converted("place_product_waits", **form)).body
                if isinstance(stmt, WarpgroupProduct)]  # fmt: skip
    assert len(products) == 1


@pytest.mark.parametrize(("source", "paired"), [("float32", True), ("int8", False), ("float8_e4m3fn", False)])
def test_lanes_that_convert_words_have_pairs_of_rows(source, paired):
    launch = converted("infer_layouts", source)
    assert {stmt.tile.paired for stmt in walk(launch.body) if isinstance(stmt, WarpgroupProduct)} == {paired}
    read = [road for road in conflicts(launch) if "is read" in str(road.loss)]
    assert not read


@pytest.mark.parametrize("form", [{}, {"source": "int8"}, {"scaled": True}])
def test_an_operand_of_a_long_product_is_made_in_two_steps_of_each_of_two_trips(form):
    trip = trip_of(converted("place_product_waits", columns=256, **form))
    kinds = [type(stmt) for stmt in trip.body if isinstance(stmt, (WarpgroupProduct, ProductsWait))]
    assert kinds == [*[WarpgroupProduct] * 4, *[ProductsWait] * 2]


def weighted(shifted):
    """A product whose first operand is scaled where it lies, each column by a weight of its own."""

    @T.prim_func
    def kernel(
        A: T.Tensor((1024, 1024), "float16"),
        B: T.Tensor((1024, 1024), "float16"),
        weight: T.Tensor((2048,), "float16"),
        C: T.Tensor((1024, 1024), "float16"),
    ):
        with T.Kernel(8, 8, threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), "float16"), T.alloc_shared((128, 64), "float16")
            sums = T.alloc_fragment((128, 128), "float32")
            T.clear(sums)
            for k in T.Pipelined(16, num_stages=3):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[bx * 128, k * 64], Bs)
                for i, j in T.Parallel(128, 64):
                    As[i, j] *= weight[k * 64 + j * 2] if shifted else weight[k * 64 + j]
                T.gemm(As, Bs, sums, transpose_B=True)
            T.copy(sums, C[by * 128, bx * 128])

    made = elaborate(kernel, name="kernel", dims={}, args={}, config={})
    return lower(made, HOPPER, until="split_roles").launches[0]


@pytest.mark.parametrize(("shifted", "found"), [(False, True), (True, False)])
def test_a_vector_of_a_trip_that_makes_an_operand_comes_by_tma(shifted, found):
    loads = [stmt for stmt in walk(weighted(shifted).body) if isinstance(stmt, BoxLoad)]
    assert any(stmt.src.buffer.name == "weight" for stmt in loads) == found


def test_factors_of_rows_are_read_in_front_of_a_loop_that_does_not_change_them():
    trip = trip_of(scaled("place_product_waits"))
    tensors = {load.source for stmt in walk(trip.body) for expr in expressions(stmt) for load in loads(expr)
               if load.source.scope() == "global"}  # fmt: skip
    assert not tensors


def test_factors_of_the_next_trip_are_read_beside_the_first_step():
    trip = trip_of(scaled("place_product_waits", by_trips=True, columns=256))
    reads = [place for place, stmt in enumerate(trip.body)
             if any(load.source.name == "factors" for inner in walk((stmt,)) for expr in expressions(inner)
                    for load in loads(expr))]  # fmt: skip
    products = [place for place, stmt in enumerate(trip.body) if isinstance(stmt, WarpgroupProduct)]
    assert reads == [products[0] + 1]
    assert len(products) == 2


def test_factors_of_a_few_columns_come_to_registers_a_trip_ahead():
    @T.prim_func
    def kernel(
        A: T.Tensor((1024, 1024), "uint8"),
        B: T.Tensor((1024, 1024), "float16"),
        factors: T.Tensor((1024, 32), "float16"),
        C: T.Tensor((1024, 1024), "float16"),
    ):
        with T.Kernel(8, 8, threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), "uint8"), T.alloc_shared((128, 64), "float16")
            wide, sums = T.alloc_shared((128, 64), "float16"), T.alloc_fragment((128, 128), "float32")
            T.clear(sums)
            for k in T.Pipelined(16, num_stages=3):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[bx * 128, k * 64], Bs)
                for i, j in T.Parallel(128, 64):
                    wide[i, j] = As[i, j].astype("float16") * factors[by * 128 + i, (k * 64 + j) // 32]
                T.gemm(wide, Bs, sums, transpose_B=True)
            T.copy(sums, C[by * 128, bx * 128])

    made = elaborate(kernel, name="kernel", dims={}, args={}, config={})
    launch = lower(made, HOPPER, until="place_product_waits").launches[0]
    tiles = {stmt.buffer.name: stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc)}
    assert tuple(tiles["factors_ahead"].shape) == (128, 2)
    assert not any(
        name.startswith("factors") and tile.scope() == "shared.dyn" for name, tile in tiles.items()
    )


def test_tiles_that_take_the_bytes_of_an_operand_wait_for_its_products():
    @T.prim_func
    def kernel(
        A: T.Tensor((256, 128), "bfloat16"),
        first: T.Tensor((2,), "int32"),
        value: T.int32,
        C: T.Tensor((128, 64), "float32"),
        D: T.Tensor((128, 64), "float16"),
    ):
        with T.Kernel(2, threads=256) as bx:
            sums, marks = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, 64), "float16")
            As, ones = T.alloc_shared((32, 64), "bfloat16"), T.alloc_shared((32, 64), "bfloat16")
            T.clear(sums)
            for _ in T.serial(first[bx] & 3, 3):  # a block takes one tile, and shares bytes among its own
                if value > 3:
                    continue
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[k * 32, bx * 64], As)
                for i, j in T.Parallel(32, 64):
                    ones[i, j] = 1
                T.gemm(As, ones, sums, transpose_A=True, policy=T.GemmWarpPolicy.FullCol)
            for i in T.Parallel(64):
                if i % 2 == 0:
                    marks[i, 0] = value
            T.copy(sums, C[bx * 64, 0])
            T.copy(marks, D[bx * 64, 0])

    made = elaborate(kernel, name="kernel", dims={}, args={}, config={})
    launch = lower(made, HOPPER, until="place_product_waits").launches[0]
    places = {stmt.buffer.name: stmt.place for stmt in walk(launch.body) if isinstance(stmt, Alloc)}
    consumers = next(stmt.body for stmt in launch.body if isinstance(stmt, Group) and stmt.count == 256)
    loops = [place for place, stmt in enumerate(consumers) if isinstance(stmt, For)]
    assert places["marks_shared"][1] + 64 * 64 * 2 > places["As"][1]
    assert isinstance(consumers[loops[-1] + 1], ProductsWait)


def looked_up(refilled):
    """A product whose first operand is looked up in a table in shared memory; ``refilled``: in every trip."""

    @T.prim_func
    def kernel(
        A: T.Tensor((1024, 1024), "uint8"),
        B: T.Tensor((1024, 1024), "float16"),
        table: T.Tensor((16, 16), "float16"),
        C: T.Tensor((1024, 1024), "float16"),
    ):
        with T.Kernel(8, 8, threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), "uint8"), T.alloc_shared((128, 64), "float16")
            wide, sums = T.alloc_fragment((128, 64), "float16"), T.alloc_fragment((128, 128), "float32")
            values = T.alloc_shared((16,), "float16")
            T.clear(sums)
            for i in T.Parallel(16):
                values[i] = table[0, i]
            for k in T.Pipelined(16, num_stages=3):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[bx * 128, k * 64], Bs)
                for i, j in T.Parallel(128, 64):
                    wide[i, j] = values[As[i, j].astype("int32") & 15]
                T.gemm(wide, Bs, sums, transpose_B=True)
                if refilled:
                    for i in T.Parallel(16):
                        values[i] = values[i] + T.float16(1)
            T.copy(sums, C[by * 128, bx * 128])

    made = elaborate(kernel, name="kernel", dims={}, args={}, config={})
    return lower(made, HOPPER, until="synchronise").launches[0]


@pytest.mark.parametrize("refilled", [False, True])
def test_threads_meet_in_front_of_a_loop_for_what_stands_there_alone(refilled):
    trip = trip_of(looked_up(refilled))
    assert any(isinstance(stmt, Sync) for stmt in walk(trip.body)) == refilled
