"""The 8-bit float that a device computes with."""

from __future__ import annotations

from typing import Any

from tilec.errors import SourceValueError
from tilec.language.values.scalars import dtype

_NAMES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def determine_fp8_type(fp8_format: str = "e4m3") -> dtype:
    """The dtype of a format, "e4m3" or "e5m2". Raises ValueError for others."""
    if fp8_format not in _NAMES:
        raise SourceValueError(
            f"unknown format {fp8_format!r} of 8-bit floats", remedy='use "e4m3" or "e5m2"'
        )
    return dtype(_NAMES[fp8_format])


def determine_torch_fp8_type(fp8_format: str = "e4m3") -> Any:
    """The torch dtype of a format."""
    return determine_fp8_type(fp8_format).as_torch()
