"""Compile processes that end with the process that they compile for, even where that is killed."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from typing import Any

from tilec.codegen.apart import die_with_parent


def end_with_caller() -> None:
    """Called in a compile process. The server that it was forked from ends when nobody holds its pipe any
    more, which compile processes hold, too: without this both would wait for each other for ever."""
    if not sys.platform.startswith("linux"):
        return
    die_with_parent()
    _let_go_of_server()
    caller = multiprocessing.parent_process()
    if caller is not None and not caller.is_alive():
        os._exit(1)


def _let_go_of_server() -> None:
    server: Any = forkserver._forkserver
    held = getattr(server, "_forkserver_alive_fd", None)
    if held is None:
        return
    os.close(held)
    server._forkserver_alive_fd = None
