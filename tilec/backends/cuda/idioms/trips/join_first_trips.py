"""The first trip of a loop of products that stands in front of it is one of the loop's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.trips.peeled_trips import with_first_trips
from tilec.ir.nodes import Kernel, Launch, walk
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target

_NOTE = "the first trip of a loop, which stands in front of it, is one of the loop's"


class JoinFirstTrips(Pass):
    """In: loops of products from the second trip on, behind the statements of the first one, whose products
    may clear their sums. Out: loops over all trips, in whose first one those products clear."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with whole loops."""
        return rewrite_launches(kernel, lambda launch: _whole(kernel, launch))


def _whole(kernel: Kernel, launch: Launch) -> Launch:
    body = with_first_trips(launch.body, ScopedRewrite(kernel, launch).facts)
    if sum(1 for _ in walk(body)) == sum(1 for _ in walk(launch.body)):
        return launch
    return with_notes(replace(launch, body=body), [_NOTE])
