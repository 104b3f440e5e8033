"""LLVM text of the functions that run a product on the matrix unit of x86.

A block is up to two by two tiles of sums, which are tiles 0 to 3, row by row; 4 and 5 are rows of ``a``, 6
and 7 columns of ``b``.
"""

from __future__ import annotations

from itertools import product

_STATE = """
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tileloaddt164(i8 immarg, ptr, i64)
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.{name}(i8 immarg, i8 immarg, i8 immarg)
define internal i32 @tilec_{name}_configure(i32 %upper, i32 %lower, i32 %words) noinline nounwind {{
  %config = alloca [64 x i8], align 64
  store <16 x i32> zeroinitializer, ptr %config, align 64
  store i8 1, ptr %config, align 64
  %bytes = shl i32 %words, 2
  %wide = trunc i32 %bytes to i16
  %up = trunc i32 %upper to i8
  %low = trunc i32 %lower to i8
  %deep = trunc i32 %words to i8
{fields}
  call void @llvm.x86.ldtilecfg(ptr %config)
  ret i32 0
}}
define internal i32 @tilec_{name}_release() nounwind {{
  call void @llvm.x86.tilerelease()
  ret i32 0
}}
"""
#: Ends the names of functions that load ``b`` past the first cache, so that the rows of ``a`` stay there.
PAST = "_past"
#: Where the four tiles of sums lie that are read (``c``) or written (``out``).
_PLACES = """\
  %{side}_down = shl i64 %{side}_stride, 4
  %{side}00 = getelementptr i8, ptr %{side}, i64 0
  %{side}01 = getelementptr i8, ptr %{side}, i64 64
  %{side}10 = getelementptr i8, ptr %{side}, i64 %{side}_down
  %{side}11 = getelementptr i8, ptr %{side}10, i64 64"""
#: What a function takes of rows of ``a``: they are ``there`` where they are read in place, else ``here``. A
#: branch around the call would make loops of two kinds, twice the code.
_ROWS_OF_A = {
    "a_numbers": "ptr %here, i64 %here_stride, ptr %there, i64 %there_stride, i32 %in_place, i64 %a_step",
    "a_placed": """\
  %placed = icmp ne i32 %in_place, 0
  %a = select i1 %placed, ptr %there, ptr %here
  %a_stride = select i1 %placed, i64 %there_stride, i64 %here_stride
  %a_down = shl i64 %a_stride, 4""",
}
#: One block over the whole of K: strides and steps in bytes.
_BLOCK = """
define internal i32 @tilec_{name}_{rows}x{cols}{past}(
    {a_numbers},
    ptr %b, i64 %b_stride, i64 %b_step, i64 %b_across,
    ptr %c, i64 %c_stride, ptr %out, i64 %out_stride, i64 %steps, i32 %clear)
    noinline nounwind {{
entry:
{a_placed}
{places}
  %cleared = icmp ne i32 %clear, 0
  br i1 %cleared, label %zero, label %load
zero:
{zero}
  br label %loop
load:
{load}
  br label %loop
loop:
  %k = phi i64 [ 0, %zero ], [ 0, %load ], [ %next, %loop ]
  %a_at = mul i64 %k, %a_step
  %b_at = mul i64 %k, %b_step
  %a0 = getelementptr i8, ptr %a, i64 %a_at
  %a1 = getelementptr i8, ptr %a0, i64 %a_down
  %b0 = getelementptr i8, ptr %b, i64 %b_at
  %b1 = getelementptr i8, ptr %b0, i64 %b_across
{multiply}
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %steps
  br i1 %more, label %loop, label %end
end:
{store}
  ret i32 0
}}
"""
#: Two tiles of rows beside ``panels`` of ``b`` over a K of up to two steps: tiles 4 to 7 hold ``a``, each row
#: its steps, so that each panel is loaded once for both rows, and ``a`` once for all panels.
_HELD = """
define internal i32 @tilec_{name}_held{steps}{past}(
    {a_numbers},
    ptr %b, i64 %b_stride, i64 %b_step, i64 %b_across, ptr %out, i64 %out_stride, i64 %panels)
    noinline nounwind {{
entry:
{a_placed}
  %out_down = shl i64 %out_stride, 4
  %a00 = getelementptr i8, ptr %a, i64 0
  %a01 = getelementptr i8, ptr %a, i64 %a_step
  %a10 = getelementptr i8, ptr %a, i64 %a_down
  %a11 = getelementptr i8, ptr %a10, i64 %a_step
{hold}
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %next, %loop ]
  %b_at = mul i64 %n, %b_across
  %out_at = shl i64 %n, 6
  %b0 = getelementptr i8, ptr %b, i64 %b_at
  %b1 = getelementptr i8, ptr %b0, i64 %b_step
  %out0 = getelementptr i8, ptr %out, i64 %out_at
  %out1 = getelementptr i8, ptr %out0, i64 %out_down
{multiply}
  %next = add i64 %n, 1
  %more = icmp slt i64 %next, %panels
  br i1 %more, label %loop, label %end
end:
  ret i32 0
}}
"""
#: Steps of K up to which a block holds its ``a``.
HELD_STEPS = 2


def tile_source(name: str) -> str:
    """The functions around the instruction ``name``: configure, release, and two for each size of a block and
    each number of steps that are held, of which the second loads ``b`` past the first cache (`PAST`)."""
    blocks = (_block(name, *form) for form in product((1, 2), (1, 2), (False, True)))
    held = (_held(name, *form) for form in product(range(1, HELD_STEPS + 1), (False, True)))
    return "".join((_STATE.format(name=name, fields=_fields()), *blocks, *held))


def _fields() -> str:
    """What the configuration says of each tile: bytes of a row from its byte 16 on, rows from byte 48 on."""
    widths = ("64",) * 4 + ("%wide",) * 2 + ("64",) * 2
    rows = ("%up", "%up", "%low", "%low", "%up", "%low", "%deep", "%deep")
    lines = []
    for tile, (width, count) in enumerate(zip(widths, rows, strict=True)):
        lines += _field(f"width{tile}", 16 + 2 * tile, f"i16 {width}")
        lines += _field(f"rows{tile}", 48 + tile, f"i8 {count}")
    return "\n".join(lines)


def _field(name: str, place: int, value: str) -> list[str]:
    address = f"  %{name} = getelementptr i8, ptr %config, i64 {place}"
    return [address, f"  store {value}, ptr %{name}"]


def _block(name: str, rows: int, cols: int, past: bool) -> str:
    tiles = list(product(range(rows), range(cols)))

    def moved(call: str, side: str) -> str:
        return "\n".join(
            _call(call, 2 * row + col, f"ptr %{side}{row}{col}", f"i64 %{side}_stride") for row, col in tiles
        )

    return _BLOCK.format(
        **_ROWS_OF_A,
        name=name,
        rows=rows,
        cols=cols,
        past=PAST if past else "",
        places="\n".join(_PLACES.format(side=side) for side in ("c", "out")),
        zero="\n".join(_call("tilezero", 2 * row + col) for row, col in tiles),
        load=moved("tileloadd64", "c"),
        multiply=_step(name, rows, cols, _load_b(past)),
        store=moved("tilestored64", "out"),
    )


def _held(name: str, steps: int, past: bool) -> str:
    """Rows of ``a`` by steps in tiles 4 to 7, steps of a panel in 2 and 3, sums in 0 and 1."""
    rows = range(2)
    places = list(product(range(steps), rows))
    load_b = _load_b(past)
    hold = [
        _call("tileloadd64", 4 + 2 * row + step, f"ptr %a{row}{step}", "i64 %a_stride")
        for step, row in places
    ]
    multiply = [
        *(_call("tilezero", row) for row in rows),
        *(_call(load_b, 2 + step, f"ptr %b{step}", "i64 %b_stride") for step in range(steps)),
        *(_call(name, row, f"i8 {4 + 2 * row + step}", f"i8 {2 + step}") for step, row in places),
        *(_call("tilestored64", row, f"ptr %out{row}", "i64 %out_stride") for row in rows),
    ]
    return _HELD.format(
        **_ROWS_OF_A,
        name=name,
        steps=steps,
        past=PAST if past else "",
        hold="\n".join(hold),
        multiply="\n".join(multiply),
    )


def _load_b(past: bool) -> str:
    return "tileloaddt164" if past else "tileloadd64"


def _step(name: str, rows: int, cols: int, load_b: str) -> str:
    """One step of K, ``b`` by the instruction ``load_b``. All loads first: the next step's then start while
    this one's products run, which loads between the products do not beat (on a Xeon of model 207)."""
    lines = [_call(load_b, 6 + col, f"ptr %b{col}", "i64 %b_stride") for col in range(cols)]
    lines += [_call("tileloadd64", 4 + row, f"ptr %a{row}", "i64 %a_stride") for row in range(rows)]
    for row, col in product(range(rows), range(cols)):
        lines.append(_call(name, 2 * row + col, f"i8 {4 + row}", f"i8 {6 + col}"))
    return "\n".join(lines)


def _call(name: str, tile: int, *args: str) -> str:
    return f"  call void @llvm.x86.{name}({', '.join((f'i8 {tile}', *args))})"
