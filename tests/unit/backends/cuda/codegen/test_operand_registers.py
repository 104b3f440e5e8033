"""The scanner of machine code: registers that products under way read, over loops and branches."""

from __future__ import annotations

import pytest
from operand_registers import overwritten_in

PRODUCT = "HGMMA.64x128x16.F32.BF16 R24, R132, gdesc[UR8].tnspB, R24, gsb0"
SHARED = "HGMMA.64x64x16.F32.BF16 R88, gdesc[UR8], R88, gsb0"
WAIT, ONE_LEFT = "WARPGROUP.DEPBAR.LE gsb0, 0x0", "WARPGROUP.DEPBAR.LE gsb0, 0x1"
CONVERTED = "F2FP.BF16.F32.PACK_AB R133, R91, R90"
LOOP = "@P0 BRA `(.L_x_1)"


def found(*lines: str) -> list[str]:
    """What is overwritten in a kernel of these lines; those with a colon are labels."""
    numbered = (
        line if line.endswith(":") else f"        /*{place:04x}*/  {line} ;"
        for place, line in enumerate(lines)
    )
    return overwritten_in("\n".join((".text.k:", *numbered)))


@pytest.mark.parametrize(
    "write",
    [
        CONVERTED,
        "LDS.64 R134, [R21+0x400]",
        "LDG.E.128 R132, desc[UR14][R2.64]",
        "LDSM.16.M88.4 R132, [R4]",
        "SHFL.BFLY PT, R135, R13, 0x1, 0x1f",
        "IADD3 R132, P1, R4, R5, RZ",
        "LOP3.LUT P1, R132, R21, 0x7f, RZ, 0xc0, !PT",
        "@!P2 IMAD.MOV.U32 R132, RZ, RZ, R6",
        "HGMMA.64x64x16.F32.BF16 R104, gdesc[UR8], R104",
    ],
)
def test_a_write_behind_a_product_is_found(write: str) -> None:
    text = write.split(" ", 1)[1] if write.startswith("@") else write
    assert found(PRODUCT, write) == [f"k: {text}"]
    assert found(PRODUCT, WAIT, write) == []


@pytest.mark.parametrize(
    "other",
    [
        "STS.64 [R132], R132",
        "ISETP.GE.AND P5, PT, R132, RZ, PT",
        "LDS.64 R136, [R132]",
        "F2FP.BF16.F32.PACK_AB R131, R133, R132",
        "BAR.SYNC.DEFER_BLOCKING 0x1, 0x100",
    ],
)
def test_instructions_that_write_elsewhere_are_fine(other: str) -> None:
    assert found(PRODUCT, other) == []


def test_the_next_trip_may_not_write_what_the_last_product_reads() -> None:
    assert found(".L_x_1:", CONVERTED, PRODUCT, LOOP, WAIT) == [f"k: {CONVERTED}"]
    assert found(".L_x_1:", CONVERTED, PRODUCT, WAIT, LOOP) == []
    assert found(".L_x_1:", PRODUCT, WAIT, CONVERTED, LOOP) == []


def test_a_wait_leaves_the_latest_groups_under_way() -> None:
    assert found(PRODUCT, SHARED, ONE_LEFT, CONVERTED) == []
    assert found(SHARED, PRODUCT, ONE_LEFT, CONVERTED) == [f"k: {CONVERTED}"]
    assert found(".L_x_1:", SHARED, PRODUCT, ONE_LEFT, WAIT, CONVERTED, LOOP) == []


def test_a_branch_around_a_wait_counts() -> None:
    assert found(PRODUCT, LOOP, WAIT, ".L_x_1:", CONVERTED) == [f"k: {CONVERTED}"]
    assert found(PRODUCT, "BRA `(.L_x_1)", CONVERTED, ".L_x_1:", WAIT) == []


def test_a_product_whose_operands_are_in_shared_memory_holds_no_registers() -> None:
    assert found(SHARED, CONVERTED) == []
