"""A model of operators for compilers and exporters, and the same by torch."""

from __future__ import annotations

import torch
from checks import Env

#: Rows of what one compiled graph has to serve.
ROWS = (48, 80, 33)


class Model(torch.nn.Module):
    """Operators with a workspace, with tensor maps and with a gradient, between torch's own."""

    def __init__(self, env: Env) -> None:
        super().__init__()
        self.ops = env.ops
        self.weight = torch.nn.Parameter(env.random(128, 136, dtype=torch.bfloat16), requires_grad=False)
        self.gain = torch.nn.Parameter(env.random(136), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """136 numbers of any number of rows of 128."""
        made = self.ops.matmul_bfloat16(torch.relu(x).bfloat16(), self.weight).float() + 1
        return self.ops.product(self.ops.column_sums(made), self.gain, 0.5) * 2


class Peer(Model):
    """The same by torch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the other."""
        made = (torch.relu(x).bfloat16() @ self.weight).float() + 1
        return made.sum(0) * self.gain


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Products that are rounded to bfloat16 in between."""
    off = float((found - wanted).norm() / wanted.norm())
    assert off < 2e-2, f"the relative error is {off:.3g}"


def both(env: Env) -> tuple[Model, Peer]:
    """Two models with the same weights."""
    model, peer = Model(env), Peer(env)
    peer.load_state_dict(model.state_dict())
    return model, peer
