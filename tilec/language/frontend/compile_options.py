"""Options of the compiler that a kernel's own code states: T.annotate_pass_configs, T.annotate_compile_flags.

They may depend on compile-time parameters. Options of the decorator and of `tilec.compile` win key by key;
their flags come behind the kernel's own.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.language.frontend.pass_configs import by_text
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error


def annotate_pass_configs(configs: Mapping[Any, Any]) -> None:
    """Pass options of this kernel: keys are members of `PassConfigKey` or their texts."""
    held = sessions.current("T.annotate_pass_configs").pass_configs
    held.update(by_text(configs))


def annotate_compile_flags(flags: str | Sequence[str]) -> None:
    """Flags of this kernel for the device compiler, as a text or a list."""
    sessions.current("T.annotate_compile_flags").compile_flags.extend(flag_list(flags))


def flag_list(flags: Any) -> list[str]:
    """Compile flags one by one: a text is split as a shell does. Raises a SourceError for what is neither a
    text nor a list of texts."""
    if flags is None:
        return []
    if not isinstance(flags, str | list | tuple) or not all(isinstance(each, str) for each in flags):
        raise source_error(
            SourceTypeError,
            f"compile flags are texts, not {flags!r}",
            construct="compile_flags",
            remedy="give a text or a list of texts",
        )
    try:
        return shlex.split(flags) if isinstance(flags, str) else list(flags)
    except ValueError as error:
        what = f"the compile flags {flags!r} cannot be told apart"
        raise source_error(
            SourceValueError, what, construct="compile_flags", why=str(error), remedy="give a list of texts"
        ) from error


def merged_configs(own: Mapping[str, Any], given: Mapping[Any, Any] | None) -> dict[str, Any]:
    """The kernel's own pass options under those that were given."""
    return {**own, **by_text(given)}


def merged_flags(own: Sequence[str], given: object) -> list[str]:
    """The kernel's own flags, then those that were given."""
    return [*own, *flag_list(given)]
