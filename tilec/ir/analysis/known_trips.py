"""What is known of the trips of a serial loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir.analysis.jumps import jumps
from tilec.ir.exprs import int_value

if TYPE_CHECKING:
    from tilec.ir.nodes import For


def known_trips(loop: For) -> range | None:
    """The values of a loop's variable; None where one of its bounds is known at run time alone."""
    start, stop, step = (int_value(bound) for bound in (loop.start, loop.stop, loop.step))
    return None if start is None or stop is None or not step else range(start, stop, step)


def leaves_early(loop: For) -> bool:
    """Whether a trip of a loop may end in the middle."""
    return any(True for stmt in loop.body for _ in jumps(stmt))


def whole_trips(loop: For) -> range | None:
    """The values of a loop's variable where each trip comes to its end; None where one may not, or where a
    bound is known at run time alone."""
    return None if leaves_early(loop) else known_trips(loop)


def counts_from_zero(loop: For) -> bool:
    """Whether a loop's variable is the number of the trip: 0, 1 and so on."""
    return int_value(loop.start) == 0 and int_value(loop.step) == 1
