"""Names of an author that mean something in the C++ that a launch becomes get an underscore behind them.

new = X[i]; for this in ...    ->    new_ = X[i]; for this_ in ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.codegen.words import spelled
from tilec.ir.analysis.renaming import renamed
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Launch, walk
from tilec.ir.traits import defined
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Var


class SpellNames(LaunchPass):
    """In: variables with any names. Out: none that a launch or its statements define has a name that C++, or
    a device function that TVM writes, has another use for. Buffers keep theirs, to which TVM adds; dims,
    scalars and names in front of the launches get others where their code is made."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such variables renamed."""
        found = {var for stmt in walk((launch,)) for var in defined(stmt) if _is_taken(var)}
        (made,) = renamed((launch,), {var: _spelled(var) for var in found})
        assert isinstance(made, Launch)
        return made


def _is_taken(var: Var) -> bool:
    return not tirx.is_buffer_var(var) and spelled(var.name) != var.name


def _spelled(var: Var) -> Var:
    return tirx.Var(spelled(var.name), dtype_of(var))
