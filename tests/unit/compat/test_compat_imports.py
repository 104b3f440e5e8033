"""How other packages' names are found: by no finder of the process, and not before one is imported."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import tilec
from tilec.aliases import _HOMES  # type: ignore[import-not-found]


def _in_process(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_the_import_changes_nothing_for_others() -> None:
    code = """
import importlib.machinery, sys, typing
before = list(sys.meta_path), list(sys.path_hooks)
import tilec
own = [module for name, module in sys.modules.items() if name.partition(".")[0] == "tilec"]
others = [module.__name__ for module in own if not hasattr(module, "__file__") or "compat" in module.__file__]
print((sys.meta_path, sys.path_hooks) == before, len(own) < 10, others)
"""
    assert _in_process(code) == "True True []"


def test_other_packages_are_found_without_the_aliases() -> None:
    code = """
import importlib.util, sys
import tilec, tilec.errors, tilec.carver, json.decoder
try: import no_such_package
except ImportError: pass
print("tilec.aliases" in sys.modules, "tilec.compat" in sys.modules, len(sys.path_hooks))
"""
    assert _in_process(code) == "False False 2"


def test_no_finder_even_after_an_alias() -> None:
    code = """
import sys
before = list(sys.meta_path)
import tilec.jit.kernel, tilec.rocm.anything, tilec.tvm.ir
print(sys.meta_path == before, len({name for name in sys.modules if name.startswith("tilec.compat")}))
"""
    assert _in_process(code) == "True 0"


def test_the_folder_is_not_imported_under_its_own_name() -> None:
    with pytest.raises(ImportError, match=r"import tilec\.carver"):
        importlib.import_module("tilec.compat")


@pytest.mark.parametrize("module", sorted(_HOMES))
def test_every_alias_leads_to_modules_that_exist(module: str) -> None:
    importlib.import_module(module)
    for home in _HOMES[module]:
        importlib.import_module(home)


def test_files_win_over_aliases() -> None:
    for module in ("carver.arch.driver", "contrib.nvcc", "intrinsics.utils", "language.v2", "tvm.tirx"):
        assert importlib.import_module(f"tilec.{module}").__file__
    from tilec.contrib import nvcc

    assert tilec.contrib.nvcc is nvcc
