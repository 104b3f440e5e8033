"""Names of pass configs: accepted, part of no result (docs/in-process.md says which have an effect)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from enum import Enum, EnumMeta
from functools import lru_cache
from typing import Any

from tilec.errors import SourceError, SourceTypeError
from tilec.language.values.kernel.places import here, source_error
from tilec.spelling import nearest

_TL = """
SIMPLIFY DYNAMIC_ALIGNMENT DISABLE_DYNAMIC_TAIL_SPLIT DISABLE_WARP_SPECIALIZED ENABLE_FAST_MATH
DISABLE_FAST_MATH DISABLE_TMA_LOWER DISABLE_THREAD_STORAGE_SYNC DISABLE_SAFE_MEMORY_ACCESS DISABLE_WGMMA
ENABLE_ASYNC_COPY CONFIG_INDEX_BITWIDTH DEVICE_COMPILE_FLAGS PTXAS_REGISTER_USAGE_LEVEL
ENABLE_PTXAS_VERBOSE_OUTPUT DISABLE_DATA_RACE_CHECK DISABLE_BUFFER_INIT_CHECK
DISABLE_PRELOWER_SEMANTIC_CHECK DISABLE_OUT_OF_BOUND_WARNING ENABLE_DUMP_IR DUMP_IR_DIR AST_PRINT_ENABLE
LAYOUT_VISUALIZATION_ENABLE LAYOUT_VISUALIZATION_FORMATS PASS_PROFILE PASS_PROFILE_THRESHOLD
EMIT_LINE_DIRECTIVES ENABLE_AGGRESSIVE_SHARED_MEMORY_MERGE DISABLE_SHARED_MEMORY_MERGE
DISABLE_SHUFFLE_ELECT DISABLE_VECTORIZE_256 ENABLE_LOWER_LDGSTG ENABLE_LOWER_LDGSTG_PREDICATED
STORAGE_REWRITE_DETECT_INPLACE LAYOUT_COST_MODEL REDUCER_LAYOUT LOOP_UNSWITCHING DISABLE_LOOP_UNSWITCHING
LOOP_UNSWITCHING_ALLOW_NON_TRIVIAL_ELSE FORCE_LET_INLINE DISABLE_RDC DEBUG_MERGE_SHARED DISABLE_PIPELINE
ENABLE_REDUCE_VERBOSE ENABLE_LAYOUT_VERBOSE SIMPLIFY_VERBOSE
""".split()
_TIR = """
ENABLE_EQUIV_TERMS_IN_CSE DISABLE_CSE SIMPLIFY DISABLE_STORAGE_REWRITE DISABLE_VECTORIZE USE_ASYNC_COPY
ENABLE_DEBUG MERGE_STATIC_SMEM ADD_LOWER_PASS NOALIAS
""".split()
#: Strings that do not follow from the name.
_SPELLED = {"TL_DISABLE_SAFE_MEMORY_ACCESS": "tl.disable_safe_memory_legalize", "TL_SIMPLIFY": "tl.Simplify"}


_MEMBERS = {
    **{f"TL_{name}": _SPELLED.get(f"TL_{name}", f"tl.{name.lower()}") for name in _TL},
    **{f"TIR_{name}": f"tir.{name.lower()}" for name in _TIR},
    "CUDA_KERNELS_OUTPUT_DIR": "cuda.kernels_output_dir",
}

_NAME = re.compile(r"(TL|TIR)_([A-Z0-9_]+)")
#: Keys that are on or off.
_SWITCH = re.compile(r"tl\.(enable|disable)_")


class _Keys(EnumMeta):
    """Options of other versions are members, too: they mean nothing here."""

    def __getattr__(cls, name: str) -> Any:
        found = _NAME.fullmatch(name)
        if found is None:
            raise AttributeError(f"there is no pass config {name}")
        value = f"{found[1].lower()}.{found[2].lower()}"
        member: Any = str.__new__(cls, value)  # type: ignore[arg-type]
        member._name_, member._value_ = name, value
        return cls._value2member_map_.setdefault(value, member)


class _Text(str, Enum, metaclass=_Keys):
    """Members that equal their strings."""

    def __str__(self) -> str:
        return str(self.value)


#: The keys; each equals its string.
PassConfigKey: Any = _Text("PassConfigKey", _MEMBERS)  # type: ignore[call-overload]


def by_text(configs: Mapping[Any, Any] | None) -> dict[str, Any]:
    """By the strings of the keys; one that nobody knows is said once. Raises SourceTypeError for what is no
    dict, and for a text where a switch is on or off."""
    if not isinstance(configs, (Mapping, type(None))):
        raise _no_config(f"pass configs are a dict, not {type(configs).__name__}")
    found = {str(getattr(key, "value", key)): value for key, value in (configs or {}).items()}
    for text, value in found.items():
        if _SWITCH.match(text) and isinstance(value, str):
            raise _no_config(f"the pass config {text} is True or False, not {value!r}")
        if re.sub(r"^tirx\.", "tir.", text) not in PassConfigKey._value2member_map_:
            near = nearest(text, PassConfigKey._value2member_map_)
            hint = f"; did you mean {near}?" if near else ""
            _warn_once(f"pass_configs has the unknown key {text}, which means nothing{hint}")
    return found


def _no_config(what: str) -> SourceError:
    remedy = 'write {"tl.enable_fast_math": True}'
    return source_error(SourceTypeError, what, construct="pass_configs", remedy=remedy)


@lru_cache(maxsize=256)
def _warn_once(text: str) -> None:
    place = here()
    warnings.warn_explicit(text, UserWarning, place.file or "", place.line or 0)
