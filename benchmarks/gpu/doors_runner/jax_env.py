"""What the checks of functions of JAX share: JAX on the device of the checks, inputs, NumPy's results."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from checks import Env, LeftOut, error_of

#: Norm of a difference over that of what is wanted, by what results are rounded to.
NEAR = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}


@functools.cache
def opened(env: Env) -> Any:
    """The functions of JAX by kernel. Groups share a GPU, of which JAX would take most for itself, and a
    platform that cannot be had is an error, not another one."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ["JAX_PLATFORMS"] = "cpu" if env.device == "cpu" else "cuda,cpu"
    try:
        import jax  # noqa: F401
        import jax_tvm_ffi  # noqa: F401
    except ModuleNotFoundError as error:
        raise LeftOut(f"{error.name} is not installed") from None
    return env.package.jax_functions()


def floats(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    """An array of numbers of mean 0 and deviation 1, on the device of the checks."""
    import jax.numpy as jnp

    made = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return jnp.asarray(made, dtype=dtype)


def wide(array: Any) -> Any:
    """As NumPy's float64."""
    return np.asarray(array).astype(np.float64)


def agree(found: Any, wanted: Any, dtype: str = "float32") -> None:
    """Raises AssertionError where a result differs from NumPy's in shape, type, or by more than it rounds."""
    facts = (found.shape, str(found.dtype))
    assert facts == (wanted.shape, dtype), f"{facts} for {(wanted.shape, dtype)}"
    off = float(np.linalg.norm(wide(found) - wanted) / np.linalg.norm(wanted))
    assert off < NEAR[dtype], f"the relative error is {off:.3g}"


def refused(kind: str, word: str, call: Callable[..., Any], *args: Any, **named: Any) -> str:
    """The text of the error of a class of this name, with ``word``, that a call or its result must raise."""
    import jax

    def wait(*args: Any, **named: Any) -> None:
        jax.block_until_ready(call(*args, **named))

    error = error_of(wait, *args, **named)
    assert error is not None, "it was not refused"
    names = [each.__name__ for each in type(error).__mro__]
    assert kind in names, f"{names[0]}: {error}"
    assert word in str(error), f"{names[0]} without {word}: {error}"
    return str(error)
