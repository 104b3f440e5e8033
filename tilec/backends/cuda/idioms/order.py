"""The rules for idioms, in the order in which they run."""

from __future__ import annotations

from tilec.backends.cuda.idioms.drop_idle_tiles import DropIdleTiles
from tilec.backends.cuda.idioms.forward_passages import ForwardPassages
from tilec.lowering.passes.base import Pass

IDIOMS: tuple[Pass, ...] = (ForwardPassages(), DropIdleTiles())
