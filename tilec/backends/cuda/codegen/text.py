"""CUDA C++ from TVM's source generator alone.

TVM's builder of CUDA modules writes the text, hands it to a hook that may edit it, and then makes a module of
it. What that last step does depends on the machine: beside a driver it compiles the text with whatever
cuda-bindings or nvcc it finds. Here the hook keeps the text and ends the build, so that nothing of the last
step runs anywhere. Hooks stand only while a text is written: other users of TVM in this process keep theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tvm

_BUILD = "target.build.cuda"
#: Called with the text and the target, before anything is made of the text.
_AFTER_WRITING = "tvm_callback_cuda_postproc"
#: What stands above the text; TVM's own includes files of the CUDA toolkit.
_HEADER = "tirx.intrinsics.cuda.header_generator"
#: TVM's hooks are global to the process.
_hooks = threading.RLock()


class _WrittenError(Exception):
    """Ends TVM's build once the text is there."""


def cuda_text(module: tvm.IRModule, native: Any, above: Callable[[Iterable[str]], str]) -> str:
    """The CUDA C++ of a module of device functions for the TVM target ``native``, without includes;
    ``above`` makes what stands above it from TVM's tags.

    Raises what TVM raises while it writes, and RuntimeError where it ends without having written."""
    import tvm_ffi

    written: list[str] = []

    def keep(text: Any, _target: Any) -> None:
        written.append(str(text))
        raise _WrittenError

    hooks: dict[str, Callable[..., Any]] = {
        _AFTER_WRITING: keep,
        _HEADER: lambda tags: above(map(str, tags)),
    }
    build = tvm_ffi.get_global_func(_BUILD)
    with _hooks, _registered(hooks), native:
        try:
            build(module, native)
        except Exception:
            if not written:
                raise
    if not written:
        raise RuntimeError(f"{_BUILD} did not call {_AFTER_WRITING}: this TVM writes CUDA in another way")
    return written[0]


@contextmanager
def _registered(hooks: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """``hooks`` by their names in the block, what was there before after it."""
    import tvm_ffi

    before = {name: tvm_ffi.get_global_func(name, allow_missing=True) for name in hooks}
    for name, hook in hooks.items():
        tvm_ffi.register_global_func(name, hook, override=True)
    try:
        yield
    finally:
        for name, known in before.items():
            _restore(name, known)


def _restore(name: str, known: Any) -> None:
    import tvm_ffi

    if known is None:
        tvm_ffi.remove_global_func(name)
    else:
        tvm_ffi.register_global_func(name, known, override=True)
