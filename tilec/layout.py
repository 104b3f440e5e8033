"""Layout objects for `T.annotate_layout`, under the name that kernels import them by. Hints here."""

from __future__ import annotations

from tilec.language.hints import Fragment, Layout, make_swizzled_layout

__all__ = ["Fragment", "Layout", "make_swizzled_layout"]
