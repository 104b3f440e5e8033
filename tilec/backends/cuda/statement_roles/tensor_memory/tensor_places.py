"""What is known at a place of a program of fragments that may lie in tensor memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.ir import Var

#: Where a fragment is: zeros that nobody has stored, registers, tensor memory, both.
ZERO, REGISTERS, MEMORY, BOTH = "zero", "registers", "memory", "both"


@dataclass
class State:
    """What is known at a place of a program: where fragments are that hold something; what products under
    way use; what threads have loaded from or put to tensor memory since they last met, and whether they have
    waited for products since."""

    places: dict[Var, str] = field(default_factory=dict)
    busy: set[Var] = field(default_factory=set)
    touched: set[Var] = field(default_factory=set)
    waited: bool = False

    def copy(self) -> State:
        """Another one that says the same."""
        return State(dict(self.places), set(self.busy), set(self.touched), self.waited)

    def become(self, other: State) -> None:
        """What another one says."""
        self.places, self.busy, self.touched, self.waited = vars(other.copy()).values()

    def joined(self, other: State) -> State:
        """What is known where two ways meet, if each brings fragments where they shall be then: where both
        have them, else in tensor memory; what only one of them has holds nothing on the other."""
        places = {name: other.places.get(name, place) for name, place in self.places.items()}
        places = {**other.places, **{name: _meet(self.places[name], places[name]) for name in places}}
        both = self.busy | other.busy, self.touched | other.touched
        return State(places, *both, self.waited or other.waited)


def _meet(first: str, second: str) -> str:
    if first == second != BOTH:
        return first
    either = {first, second}
    return REGISTERS if MEMORY not in either else MEMORY
