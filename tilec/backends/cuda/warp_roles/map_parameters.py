"""Tensor maps that a launch has as parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm.tirx.script import builder as T

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.warp_roles.nodes import TensorMap


class MapParameters:
    """For what knows a launch's emission: ``maps`` are its tensor map parameters by the id of the map."""

    maps: dict[int, Expr]

    def map_of(self, found: TensorMap) -> Expr:
        """The address of a tensor map parameter."""
        return T.address_of(self.maps[id(found)])
