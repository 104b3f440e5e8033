"""Options of the compiler that a kernel's own code states: T.annotate_pass_configs, T.annotate_compile_flags.

They may depend on compile-time parameters. Options of the decorator and of `tilec.compile` win key by key;
their flags come behind the kernel's own.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tilec.errors import SourceTypeError
from tilec.language.frontend.pass_configs import by_text
from tilec.language.values import session as sessions
from tilec.language.values.places import source_error


def annotate_pass_configs(configs: Mapping[Any, Any]) -> None:
    """Pass options of this kernel: keys are members of `PassConfigKey` or their texts."""
    if not isinstance(configs, Mapping):
        raise source_error(
            SourceTypeError,
            f"pass configs are a dict, not {type(configs).__name__}",
            construct="T.annotate_pass_configs",
            remedy='write {"tl.enable_fast_math": True}',
        )
    held = sessions.current("T.annotate_pass_configs").pass_configs
    held.update(by_text(configs))


def annotate_compile_flags(flags: str | Sequence[str]) -> None:
    """Flags of this kernel for the device compiler, as a text or a list."""
    given = shlex.split(flags) if isinstance(flags, str) else list(flags)
    if not all(isinstance(flag, str) for flag in given):
        raise source_error(
            SourceTypeError,
            f"compile flags are texts, not {flags!r}",
            construct="T.annotate_compile_flags",
            remedy="give a text or a list of texts",
        )
    sessions.current("T.annotate_compile_flags").compile_flags.extend(given)


def merged_configs(own: Mapping[str, Any], given: Mapping[Any, Any] | None) -> dict[str, Any]:
    """The kernel's own pass options under those that were given."""
    return {**own, **by_text(given or {})}


def merged_flags(own: Sequence[str], given: str | Sequence[str] | None) -> list[str]:
    """The kernel's own flags, then those that were given."""
    return [*own, *(shlex.split(given) if isinstance(given, str) else given or ())]
