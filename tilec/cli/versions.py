"""What `tilec --version` says: tilec, Python, and the installed tools that decide the bytes of a library."""

from __future__ import annotations

import platform

import tilec
from tilec.cache import installed_version

#: Tools and the distributions that bring them.
_TOOLS = {
    "tvm": "apache-tvm",
    "zig": "ziglang",
    "nvrtc": "nvidia-cuda-nvrtc-cu12",
    "nvrtc 13": "nvidia-cuda-nvrtc",
}


def versions() -> dict[str, str]:
    """Names to versions, of what is installed."""
    tools = {name: installed_version(package) for name, package in _TOOLS.items()}
    own = {"tilec": tilec.__version__, "python": platform.python_version()}
    return {**own, **{name: version for name, version in tools.items() if version is not None}}
