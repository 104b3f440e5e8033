"""The device that kernels are for, as kernel files import it: ``from tilec.carver.arch import driver``."""

from __future__ import annotations

from tilec.language.device import get_num_sms

__all__ = ["get_num_sms"]
