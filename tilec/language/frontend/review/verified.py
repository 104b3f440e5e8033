"""The rules of tile IR, as they are told to who wrote the kernel."""

from __future__ import annotations

from tilec.errors import SourceRuntimeError
from tilec.ir import nodes as ir
from tilec.ir.rules.scope import OutOfScope
from tilec.ir.rules.verifier import verify
from tilec.language.values.value import IN_FRONT, outlived


def verify_source(kernel: ir.Kernel) -> None:
    """`verify` of a kernel as it was written.

    Raises:
        SourceRuntimeError: an expression that was made in a loop or a branch is used behind it.
        IRError: any other rule is broken.
    """
    try:
        verify(kernel)
    except OutOfScope as error:
        raise SourceRuntimeError(
            outlived(error.name),
            place=error.place,
            why="the loop or branch that it belongs to has ended: a list or function has kept it",
            remedy=IN_FRONT,
        ) from None
