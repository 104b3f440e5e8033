"""What the rules for idioms leave alone: each condition of a rule, broken."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.idioms.elements.choose_values import ChooseValues
from tilec.backends.cuda.idioms.elements.name_bounds import NameBounds
from tilec.backends.cuda.idioms.elements.open_pairs import OpenPairs
from tilec.backends.cuda.idioms.grids.open_tile_loops import OpenTileLoops
from tilec.backends.cuda.idioms.sums.clear_before_loops import ClearBeforeLoops
from tilec.backends.cuda.idioms.sums.mask_behind_products import MaskBehindProducts
from tilec.backends.cuda.idioms.sums.scale_behind_products import ScaleBehindProducts
from tilec.backends.cuda.idioms.sums.start_from_zero import StartFromZero
from tilec.backends.cuda.idioms.tiles.copy_boxes import CopyBoxes
from tilec.backends.cuda.idioms.tiles.forward_passages import ForwardPassages
from tilec.backends.cuda.idioms.tiles.hold_results import HoldResults
from tilec.backends.cuda.idioms.trips.pipeline_loads import PipelineLoads
from tilec.backends.cuda.passes.products.read_turned_tiles import ReadTurnedTiles
from tilec.ir.nodes.barriers import GridBarrier
from tilec.ir.text.forms import small
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
HEAD = """
kernel("small")
X = tensor(float32, (64, 64), ("64", "64"), access="in")
Y = tensor(float16, (64, 64), ("64", "64"), access="inout")
Z = tensor(float16, (64, 64), ("64", "64"), access="out")
n = scalar(int32)
with launch(1, threads=(128, 1, 1)) as (bx,):
    tile = alloc(float16, (64, 64), "shared.dyn")
    half = alloc(float16, (64,), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    for i, j in parallel(64, 64):
        acc[i, j] = X[i, j] * 2.0
"""
OUT = "copy(acc[0:+64, 0:+64], tile[0:+64, 0:+64])\n"
IN = "copy(tile[0:+64, 0:+64], Z[0:+64, 0:+64])\n"
LOAD = "copy(Y[0:+64, 0:+64], tile[0:+64, 0:+64])\n"


def made(rule, body: str) -> str:
    """What a rule makes of statements behind those of `HEAD`; nothing where it leaves them."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    kernel = parse_kernel(HEAD + lines)
    found = format_kernel(rule.apply(kernel, SM90A))
    return "" if found == format_kernel(kernel) else found


@pytest.mark.parametrize(
    "body",
    [
        OUT + IN,
        "if n > 3:\n    " + OUT + "    " + IN,
        OUT
        + "if n > 3:\n    "
        + IN
        + "else:\n    for i, j in parallel(64, 64):\n        Y[i, j] = tile[i, j]\n",
        "for k in serial(0, n, 1):\n    " + OUT + "    " + IN,
        OUT + "for i, j in parallel(32, 64):\n    Z[i, j] = tile[i + 32, j]\n",
        OUT + IN + LOAD + IN,
        LOAD + "for i, j in parallel(64, 64):\n    Y[i, j] = tile[i, j]\n",
    ],
    ids=["straight", "in a branch", "read in branches", "in a loop", "a part", "another life", "in place"],
)
def test_a_tile_that_values_pass_through_is_not_written(body):
    assert OUT.split("\n")[0] not in made(ForwardPassages(), body) != ""


@pytest.mark.parametrize(
    "body",
    [
        OUT + "for i, j in parallel(64, 64):\n    acc[i, j] = 0.0\n" + IN,
        OUT + "for i, j in parallel(64, 64):\n    Z[i, j] = tile[i + 1, j]\n",
        "if n > 3:\n    " + OUT + IN,
        "for k in serial(0, n, 1):\n    " + IN + "    " + OUT,
        "copy(acc[0:+32, 0:+64], tile[0:+32, 0:+64])\n" + IN,
        OUT + "if n > 3:\n    fill(tile[0:+64, 0:+64], cast(float16, 1))\n" + IN,
        OUT + IN + "gemm(tile[0:+64, 0:+64], tile[0:+64, 0:+64], acc[0:+64, 0:+64], clear=True)\n",
        LOAD + "for i, j in parallel(64, 64):\n    Y[j, i] = tile[i, j]\n",
        "for i, j in parallel(64, 64):\n    half[i] = cast(float16, acc[i, j])\n"
        "for i, j in parallel(64, 64):\n    Z[i, j] = half[i]\n",
        OUT,
    ],
    ids=[
        "its source changes",
        "read outside",
        "written in a branch",
        "read in the next trip",
        "a part is written",
        "overwritten in a branch",
        "multiplied",
        "in place, elsewhere",
        "one element of many",
        "never read",
    ],
)
def test_a_tile_that_others_see_stays(body):
    assert made(ForwardPassages(), body) == ""


# ---- weights that go to a product ----

WEIGHTS = OUT
AS_FIRST = "gemm(tile[0:+64, 0:+64], other[0:+64, 0:+64], sum[0:+64, 0:+64], clear=False)\n"
TILES = 'sum = alloc(float32, (64, 64), "local.fragment")\nother = alloc(float16, (64, 64), "shared.dyn")\n'


@pytest.mark.parametrize(
    "body",
    [
        WEIGHTS + AS_FIRST,
        "for i, j in parallel(64, 64):\n    tile[i, j] = cast(float16, acc[i, j] * 2.0)\n" + AS_FIRST,
        "for k in serial(0, n, 1):\n    " + WEIGHTS + "    " + AS_FIRST,
        WEIGHTS + AS_FIRST + AS_FIRST,
    ],
    ids=["copied", "computed", "in a loop", "twice"],
)
def test_weights_that_pass_through_a_tile_stay_in_registers(body):
    assert 'tile = alloc(float16, (64, 64), "local.fragment")' in made(HoldResults(), TILES + body)


@pytest.mark.parametrize(
    "body",
    [
        WEIGHTS + AS_FIRST + IN,
        WEIGHTS + AS_FIRST.replace("tile", "half2", 1).replace("other", "tile").replace("half2", "other"),
        LOAD + AS_FIRST,
        "copy(acc[0:+32, 0:+64], tile[0:+32, 0:+64])\n" + AS_FIRST,
        AS_FIRST + WEIGHTS,
        WEIGHTS + "if n > 3:\n    " + AS_FIRST,
    ],
    ids=["stored, too", "second operand", "from a tensor", "a part", "used before", "in a branch"],
)
def test_other_operands_stay_in_their_tiles(body):
    assert made(HoldResults(), TILES + body) == ""


# ---- where sums start ----

PRODUCT = "gemm(tile[0:+64, 0:+64], tile[0:+64, 0:+64], sum[0:+64, 0:+64], clear={})\n"
SUM = 'sum = alloc(float32, (64, 64), "local.fragment")\n'
USED = "copy(sum[0:+64, 0:+64], Z[0:+64, 0:+64])\n"


def loop(clear: str, head: str = "pipelined(0, n, num_stages=2)", before: str = "") -> str:
    return f"for k in {head}:\n    {before}{PRODUCT.format(clear)}"


@pytest.mark.parametrize(
    "body",
    [
        SUM + loop("k == 0"),
        SUM + loop("k < 1"),
        SUM + loop("k == n - 4", "serial(n - 4, n, 1)"),
        SUM + loop("k // 32 == 0", "serial(0, n, 32)"),
        SUM + "fill(sum[0:+64, 0:+64], 1.0)\n" + loop("k == 0", "serial(0, 4, 1)"),
        SUM + "for t in serial(0, 9, 1):\n    for k in serial(0, n, 1):\n        " + PRODUCT.format("k == 0"),
        SUM + loop("False", before="if k == 0:\n        fill(sum[0:+64, 0:+64], 0.0)\n    "),
    ],
    ids=["first", "below one", "run-time start", "steps", "trips are known", "a loop around it", "branch"],
)
def test_what_is_cleared_in_the_first_trip_is_cleared_before(body):
    text = made(ClearBeforeLoops(), body + USED)
    assert "clear=False" in text
    assert "if k" not in text
    assert text.index("fill(sum[0:+64, 0:+64], 0.0)") < text.index("for k")


@pytest.mark.parametrize(
    "body",
    [
        SUM + loop("k == 1"),
        SUM + loop("k < 2"),
        SUM + loop("k == 0", "serial(n, n + 4, 1)"),
        SUM + loop("k != 0"),
        SUM + "fill(sum[0:+64, 0:+64], 1.0)\n" + loop("k == 0"),
        SUM + "for t in serial(0, 9, 1):\n    for k in serial(0, t, 1):\n        " + PRODUCT.format("k == 0"),
        SUM + loop("k == 0", before="copy(sum[0:+64, 0:+64], Z[0:+64, 0:+64])\n    "),
    ],
    ids=[
        "another trip",
        "two trips",
        "another start",
        "the rest",
        "no trip",
        "no trip of some",
        "read before",
    ],
)
def test_other_conditions_stay(body):
    assert made(ClearBeforeLoops(), body + USED) == ""


FIRST = "copy(Y[0:+64, 0:+64], sum[0:+64, 0:+64])\n"


@pytest.mark.parametrize(
    "body",
    [
        SUM + FIRST + loop("False"),
        SUM + "for i, j in parallel(64, 64):\n    sum[i, j] = X[0, j] * 2.0\n" + loop("False"),
        SUM + FIRST + "for t in serial(0, 2, 1):\n    " + PRODUCT.format("False"),
    ],
)
def test_a_sum_that_starts_elsewhere_starts_from_zero(body):
    text = made(StartFromZero(), body + USED)
    assert text.index("fill(sum") < text.index("gemm(") < text.index("sum[i0, i1] = sum[i0, i1] + ")


@pytest.mark.parametrize(
    "body",
    [
        SUM + FIRST + loop("k == 0"),
        SUM + "copy(Y[0:+32, 0:+64], sum[0:+32, 0:+64])\n" + loop("False"),
        SUM + FIRST + "fill(Y[0:+64, 0:+64], cast(float16, 1))\n" + loop("False"),
        SUM + FIRST + loop("False", before="copy(sum[0:+64, 0:+64], tile[0:+64, 0:+64])\n    "),
        SUM + FIRST + "copy(sum[0:+64, 0:+64], Z[0:+64, 0:+64])\n" + loop("False"),
    ],
    ids=["cleared", "a part", "changed", "read in the loop", "read before"],
)
def test_other_starts_stay(body):
    assert made(StartFromZero(), body + USED) == ""


# ---- loops that nobody has pipelined ----

FILL = "copy(X[0:+64, k * 32:+32], big[0:+64, 0:+32])\n    "
BIG = SUM + 'big = alloc(float32, ({}, 32), "shared.dyn")\n'


@pytest.mark.parametrize(("rows", "stages"), [(64, 4), (512, 3), (768, 2)])
def test_stages_are_as_many_as_fit(rows, stages):
    body = BIG.format(rows) + loop("False", "serial(0, n, 1)", FILL)
    assert f"for k in pipelined(0, n, num_stages={stages})" in made(PipelineLoads(), body)


def test_a_loop_of_steps_counts_trips():
    text = made(PipelineLoads(), BIG.format(64) + loop("False", "serial(8, n, 16)", FILL))
    assert "for k in pipelined(0, (n - 8 + 15) // 16, num_stages=4)" in text
    assert "(8 + k * 16) * 32" in text


@pytest.mark.parametrize(
    "body",
    [
        BIG.format(1024) + loop("False", "serial(0, n, 1)", FILL),
        BIG.format(64) + loop("False", "serial(0, n, 1)"),
        BIG.format(64) + "for k in serial(0, n, 1):\n    " + FILL,
        BIG.format(64) + loop("False", "serial(0, n, 1)", "if k > n - 2:\n        break\n    " + FILL),
        BIG.format(64)
        + loop("False", "serial(0, n, 1)", "copy(Y[0:+64, 0:+32], big[0:+64, 0:+32])\n    ")
        + "    copy(sum[0:+64, 0:+64], Y[0:+64, 0:+64])\n",
    ],
    ids=["no room", "no load", "no product", "left early", "loads what it stores"],
)
def test_other_loops_stay(body):
    assert made(PipelineLoads(), body) == ""


# ---- blocks that walk over tiles ----

WALK = """
kernel("walk")
rows = dim(int32, div=8)
X = tensor(float32, (rows, 64), ("rows", "64"), access="in")
Z = tensor(float32, (rows, 512), ("rows", "512"), access="out")
sums = tensor(float32, (512,), ("512",), access="inout")
with launch(6, threads=(128, 1, 1)) as (bx,):
    tile = alloc(float32, (64, 64), "local.fragment")
    total = alloc(float32, (64, 64), "local.fragment")
"""
LOAD_X = "copy(X[y * 64:+64, 0:+64], tile[0:+64, 0:+64])\n"
STORE_Z = "copy(tile[0:+64, 0:+64], Z[y * 64:+64, x * 64:+64])\n"
BODY = LOAD_X + STORE_Z
ROWS = "(rows + 63) // 64"


def walked(head: str, body: str) -> str:
    """What `OpenTileLoops` makes of a loop."""
    inner = "".join(f"        {line}\n" for line in body.splitlines())
    kernel = parse_kernel(f"{WALK}    {head}:\n{inner}")
    found = format_kernel(OpenTileLoops().apply(kernel, SM90A))
    return "" if found == format_kernel(kernel) else found


@pytest.mark.parametrize(
    ("head", "body", "grid"),
    [
        ("for t in serial(bx, 80, 6)", "y = t // 8\nx = t % 8\n" + BODY, "80"),
        ("for w in serial(0, 8, 1)", "y = (w * 6 + bx) // 8\nx = (w * 6 + bx) % 8\n" + BODY, "48"),
        ("for w in serial(0, 8, 1)", "y = (bx * 8 + w) // 8\nx = (bx * 8 + w) % 8\n" + BODY, "48"),
        (
            "for w in serial(0, 8, 1)",
            "t = w * 6 + bx\ny = t % 5\nx = t // 5\nif x < 8:\n    " + LOAD_X + "    " + STORE_Z,
            "40",
        ),
        (
            f"for w in serial(0, ({ROWS} * 8 + 5) // 6, 1)",
            f"t = w * 6 + bx\ny = t // 8\nx = t % 8\nif t < {ROWS} * 8:\n    " + LOAD_X + "    " + STORE_Z,
            f"{ROWS} * 8",
        ),
        (
            f"for t in serial(bx, {ROWS} * 8, 6)",
            "y = t // 8\nx = t % 8\natomic_add(sums[x], 1.0)\n" + BODY,
            f"{ROWS} * 8",
        ),
        ("for x in serial(0, 8, 1)", "y = bx\n" + BODY, "6, 8"),
        ("for w in serial(0, 8, 1)", "y = w * 6 + bx\nx = (bx * 8 + w) % 8\n" + BODY, "6, 8"),
    ],
    ids=[
        "steps",
        "waves",
        "runs",
        "a limit that is found",
        "a limit that is said",
        "added up",
        "own axis",
        "two orders",
    ],
)
def test_blocks_that_walk_over_tiles_become_a_grid(head, body, grid):
    text = walked(head, body)
    assert f"with launch({grid}, threads" in text
    assert "serial" not in text
    assert "if " not in text


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("for t in serial(bx, 80, 5)", "y = t // 8\nx = t % 8\n" + BODY),
        ("for t in serial(bx, 80, 6)", "y = t // 8\nx = bx\n" + BODY),
        ("for t in serial(bx, 80, 6)", "y = t // 8\nx = t % 7\n" + BODY),
        ("for t in serial(bx, 80, 6)", "y = t // 8\nx = t % 8 // 2\n" + BODY),
        ("for t in serial(bx, 80, 6)", "y = t // 8\nx = t % 8\n" + STORE_Z),
        ("for t in serial(bx, 80, 6)", "y = t // 8\nx = t % 8\n" + BODY + "sums[x] = 1.0\n"),
        ("for t in serial(bx, 80, 6)", "y = t // 8\nx = t % 8\natomic_max(sums[x], 1.0)\n" + BODY),
        (
            "for t in serial(bx, 80, 6)",
            "y = t // 8\nx = t % 8\n" + BODY + "copy(Z[0:+64, 0:+64], total[0:+64, 0:+64])\n",
        ),
        ("for t in serial(bx, 80, 6)", "y = t // 8\nx = t % 8\nif x > 6:\n    break\n" + BODY),
        ("for t in serial(bx, 80, 6)", f"y = t // 8\nx = t % 8\n{small(GridBarrier)}()\n" + BODY),
    ],
    ids=[
        "other steps",
        "the block's own column",
        "columns meet",
        "tiles meet",
        "a tile is carried on",
        "an element meets",
        "a maximum",
        "reads others' tiles",
        "left early",
        "blocks meet",
    ],
)
def test_other_walks_stay(head, body):
    assert walked(head, body) == ""


# ---- operands that are scaled, boxes that loops bring ----

SCALED = "for i, j in parallel(64, 64):\n    tile[i, j] = cast(float16, cast(float32, Y[i, j]) * 0.5)\n"
PLACE = (
    LOAD + "for i, j in parallel(64, 64):\n    tile[i, j] = cast(float16, cast(float32, tile[i, j]) * 0.5)\n"
)
MULTIPLIED = SUM + "{}" + PRODUCT.format("True") + USED


@pytest.mark.parametrize(
    "body",
    [
        MULTIPLIED.format(SCALED),
        MULTIPLIED.format(PLACE),
        SUM + SCALED + "fill(sum[0:+64, 0:+64], 0.0)\n" + PRODUCT.format("False") + USED,
    ],
    ids=["brought", "in place", "cleared before"],
)
def test_a_factor_moves_behind_the_product(body):
    text = made(ScaleBehindProducts(), body)
    assert text.index("gemm(") < text.index("sum[i0, i1] = sum[i0, i1] * 0.5")
    assert text.count("* 0.5") == 1


@pytest.mark.parametrize(
    "body",
    [
        MULTIPLIED.format(SCALED.replace("0.5", "cast(float32, i)")),
        MULTIPLIED.format(SCALED.replace("Y[i, j]", "X[i, j]")),
        SUM + SCALED + PRODUCT.format("False") + USED,
        MULTIPLIED.format(SCALED) + IN,
        SUM + PRODUCT.format("True") + SCALED + PRODUCT.format("True") + USED,
        SUM + LOAD + PRODUCT.format("True") + PLACE.removeprefix(LOAD) + PRODUCT.format("True") + USED,
    ],
    ids=["a factor of rows", "another type", "onto a sum", "read elsewhere", "used before", "both"],
)
def test_other_factors_stay(body):
    assert made(ScaleBehindProducts(), body) == ""


@pytest.mark.parametrize(
    ("value", "is_box"),
    [
        ("Y[i, j]", True),
        ("if_then_else(i < 64, Y[i, j], cast(float16, 0))", True),
        ("if_then_else(i + n < 64, Y[i + n, j], cast(float16, 0))", True),
        ("if_then_else(i < 63, Y[i, j], cast(float16, 0))", False),
        ("if_then_else(i < 64, Y[i, j], cast(float16, 1))", False),
        ("Y[j, i]", False),
        ("Y[i * 2, j]", False),
        ("Y[i, i]", False),
    ],
)
def test_loops_that_bring_boxes_are_copies(value, is_box):
    body = f"for i, j in parallel(64, 64):\n    tile[i, j] = {value}\n"
    assert ("copy(Y[" in made(CopyBoxes(), body)) == is_box


MASK = """for k in serial(0, n, 1):
    for i, j in parallel(64, 64):
        acc[i, j] = {}
    gemm(tile[0:+64, 0:+64], tile[0:+64, 0:+64], acc[0:+64, 0:+64], trans_b=True, clear=False)
"""
SEEN = "if_then_else(k * 64 + j < n and i >= j, acc[i, j], {})"


@pytest.mark.parametrize(
    ("start", "mask"),
    [
        ('if_then_else(k * 64 + j >= n or i < j, float32("-inf"), 0.0)', 'float32("-inf")'),
        ('if_then_else(k * 64 + j < n and i >= j, 0.0, float32("-inf"))', 'float32("-inf")'),
        ("if_then_else(k * 64 + j >= n or i < j, -1e+30, 0.0)", "-1e+30"),
    ],
    ids=["hidden", "seen", "a number that absorbs"],
)
def test_a_mask_in_a_sum_is_put_behind_its_product(start, mask):
    """float16 operands of 64 products sum up to 2.7e11 at most."""
    text = made(MaskBehindProducts(), MASK.format(start))
    product, _, *rest = text[text.index("gemm(") :].splitlines()
    assert "clear=True" in product
    assert SEEN.format(mask) in rest[0]


@pytest.mark.parametrize(
    "start",
    [
        "if_then_else(k * 64 + j >= n, -1e9, 0.0)",
        'if_then_else(k * 64 + j >= n, float32("inf"), 0.0)',
        'if_then_else(k * 64 + j >= n, float32("-inf"), 1.0)',
        "if_then_else(k * 64 + j >= n, X[i, j], 0.0)",
    ],
    ids=["a product changes it", "inf", "a sum goes on", "a bias"],
)
def test_what_products_change_stays_in_front_of_them(start):
    assert not made(MaskBehindProducts(), MASK.format(start))


TURNED = """
kernel("turned")
A = tensor({0}, (64, 64), ("64", "64"), access="in")
C = tensor(float32, (64, 64), ("64", "64"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    a = alloc({0}, (64, 64), "shared.dyn")
    b = alloc({0}, (64, 64), "shared.dyn")
    acc = alloc(float32, (64, 64), "local.fragment")
    copy(A[0:+64, 0:+64], a[0:+64, 0:+64])
    for i, j in parallel(64, {1}):
        b[i, j] = a[j, i]
{2}    gemm(a[0:+64, 0:+64], b[0:+64, 0:+64], acc[0:+64, 0:+64], trans_b=True, clear=True)
{3}    copy(acc[0:+64, 0:+64], C[0:+64, 0:+64])
"""


@pytest.mark.parametrize(
    ("dtype", "columns", "before", "behind", "reads"),
    [
        ("float16", 64, "", "", True),
        ("float8_e4m3fn", 64, "", "", True),
        ("float16", 64, "", "    copy(A[0:+64, 0:+64], a[0:+64, 0:+64])\n", True),
        ("float32", 64, "", "", False),
        ("float16", 32, "", "", False),
        ("float16", 64, "    copy(A[0:+64, 0:+64], a[0:+64, 0:+64])\n", "", False),
        ("float16", 64, "", "    copy(b[0:+64, 0:+64], a[0:+64, 0:+64])\n", False),
    ],
    ids=["16 bits", "8 bits", "changes behind", "32 bits", "a part", "changes before", "another reader"],
)
def test_products_read_a_tile_that_is_turned_for_them_alone(dtype, columns, before, behind, reads):
    kernel = parse_kernel(TURNED.format(dtype, columns, before, behind))
    text = format_kernel(ReadTurnedTiles().apply(kernel, SM90A))
    assert ("b[i, j]" not in text and "trans_b" not in text) == reads


# ---- branches behind the loop of products ----

BRANCHED = """
kernel("branched")
X = tensor(float32, (64,), ("64",), access="in")
n = scalar(int32)
with launch(8, threads=(128, 1, 1)) as (bx,):
    acc = alloc(float32, (64, 64), "local.fragment")
    row = alloc(float32, (64,), "local.fragment")
    for k in pipelined(0, n, num_stages=2):
        fill(acc[0:+64, 0:+64], cast(float32, k))
{}"""
FIRST = "        for i, j in parallel(64, 64):\n            acc[i, j] = acc[i, j] * 2.0\n"
OTHER = "        for p, q in parallel(64, 64):\n            acc[p, q] = acc[p, q] + X[q]\n"


def chosen(condition: str, then: str, orelse: str = "") -> str:
    """What the rule makes of a branch; nothing where it leaves it."""
    text = f"    if {condition}:\n{then}" + (f"    else:\n{orelse}" if orelse else "")
    kernel = parse_kernel(BRANCHED.format(text))
    found = format_kernel(ChooseValues().apply(kernel, SM90A))
    return "" if found == format_kernel(kernel) else found


def test_branches_around_elements_choose_values():
    assert "acc[i, j] = if_then_else(bx < n, acc[i, j] * " in (both := chosen("bx < n", FIRST, OTHER))
    assert "acc[i, j] + X[j])" in both
    assert chosen("bx < n", FIRST + OTHER).count("if_then_else(bx < n") == 2


@pytest.mark.parametrize(
    "body",
    [
        ("0.0 < X[bx]", FIRST),
        ("bx < n", FIRST, FIRST + OTHER),
        ("bx < n", FIRST, OTHER.replace("acc[p, q] =", "acc[q, p] =")),
        ("bx < n", FIRST, OTHER.replace("64, 64", "64, 32")),
        ("bx < n", "        fill(acc[0:+64, 0:+64], 0.0)\n"),
    ],
    ids=["on memory", "more on a side", "other elements", "fewer elements", "no loop"],
)
def test_other_branches_stay(body):
    assert chosen(*body) == ""


# ---- loops over pairs of columns ----

PAIRED = """
kernel("paired")
X = tensor(float32, (64, 32), ("64", "32"), access="in")
Z = tensor(float16, (64, 128), ("64", "128"), access="inout")
n = scalar(int32)
with launch(2, threads=(128, 1, 1)) as (bx,):
    acc = alloc(float32, (64, 64), "local.fragment")
    for k in pipelined(0, n, num_stages=2):
        fill(acc[0:+64, 0:+64], cast(float32, k))
    for i, j in parallel(64, 32):
        x = acc[i, 2 * j]
        Z[i, bx * 64 + 2 * j] = cast(float16, x * X[i, j])
        {}
"""
SECOND = "Z[i, bx * 64 + 2 * j + 1] = cast(float16, acc[i, 2 * j + 1] - x)"


def opened(second: str) -> str:
    """What the rule makes of a loop with such a second store; nothing where it leaves it."""
    kernel = parse_kernel(PAIRED.format(second))
    found = format_kernel(OpenPairs().apply(kernel, SM90A))
    return "" if found == format_kernel(kernel) else found


def test_loops_over_pairs_are_loops_over_columns():
    text = opened(SECOND)
    assert "for i, j in parallel(64, 64):" in text
    assert "Z[i, bx * 64 + j] = cast(float16, if_then_else(j % 2 == 0, acc[i, 2 * (j // 2)]" in text


@pytest.mark.parametrize(
    "second",
    [
        SECOND.replace("+ 1] =", "+ 2] ="),
        SECOND.replace("Z[i,", "Z[i + 1,"),
        SECOND.replace("acc[i, 2 * j + 1]", "cast(float32, Z[i, 2 * j + 1])"),
        "acc[i, 2 * j + 1] = x",
        "for q in serial(0, 2, 1):\n            Z[i, q] = cast(float16, x)",
    ],
    ids=["no neighbour", "another row", "reads it", "another tensor", "more"],
)
def test_other_loops_over_pairs_stay(second):
    assert opened(second) == ""


# ---- what conditions on elements read ----

RAGGED = """
kernel("ragged")
X = tensor(int32, (8,), ("8",), access="in")
W = tensor(int32, (8,), ("8",), access="inout")
Z = tensor(float32, (64, 64), ("64", "64"), access="out")
n = scalar(int32)
with launch(8, threads=(128, 1, 1)) as (bx,):
    acc = alloc(float32, (64, 64), "local.fragment")
    for k in pipelined(0, n, num_stages=2):
        fill(acc[0:+64, 0:+64], cast(float32, k))
    g = bx + 1
    for i, j in parallel(64, 64):
        if {}:
            Z[i, j] = acc[i, j]
    W[bx] = 0
"""


def named(condition: str) -> str:
    """What the rule makes of a loop under a condition."""
    return format_kernel(NameBounds().apply(parse_kernel(RAGGED.format(condition)), SM90A))


def test_bounds_that_conditions_read_have_names_in_front_of_the_loop():
    text = named("i < X[bx] and j < X[bx]")
    bound, loop, condition = (text.index(part) for part in (" = X[bx]", "for k in", "if "))
    assert bound < loop < condition
    assert text.count("X[bx]") == 1


@pytest.mark.parametrize(
    "condition",
    ["0 < X[i]", "i < W[bx]", "i < X[g]", "i < n"],
    ids=["of an element", "written", "known later", "reads nothing"],
)
def test_other_conditions_keep_what_they_read(condition):
    assert named(condition) == format_kernel(parse_kernel(RAGGED.format(condition)))
