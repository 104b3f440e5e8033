"""The dim that no caller gives: how many multiprocessors the device of a call has, on a CPU how many workers.

Kernels that ask for it (``driver.get_num_sms()`` in a build) have it as their last dim. The library fills it
in at launch, so that it stands in no signature, in no manifest and in no guard of a variant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.capacity import CAPACITY
from tilec.ir.guards import Guard

if TYPE_CHECKING:
    from tilec.ir.nodes import Dim, Kernel

NUM_SMS = "_num_sms"
#: What code may rely on. The runtime counts no further.
REACH = Guard(min=1, max=CAPACITY.max_workers)
#: What the interpreter takes where nobody says: few, so that blocks have several tiles each. Results of a
#: kernel that is right depend on it no more than on the device.
INTERPRETED = 3


def takes_num_sms(kernel: Kernel) -> bool:
    """Whether a kernel asks for the number."""
    return any(dim.name == NUM_SMS for dim in kernel.dims)


def callers_dims(kernel: Kernel) -> tuple[Dim, ...]:
    """The dims that callers give, in order."""
    return tuple(dim for dim in kernel.dims if dim.name != NUM_SMS)
