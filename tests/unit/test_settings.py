from __future__ import annotations

from pathlib import Path

import pytest

from tilec.errors import EnvironmentError_, InputError
from tilec.settings import read_library_settings, read_settings, stand_in_for_home, zig_cache


def test_defaults() -> None:
    settings = read_settings({})
    assert settings.cache_dir == Path.home() / ".cache" / "tilec"
    assert (settings.cache, settings.cc, settings.jobs, settings.debug) == (True, None, None, False)
    assert not settings.verify


def test_users_without_a_home_are_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under the number of a user whom it does not know."""

    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    with pytest.raises(EnvironmentError_, match="no folder for the compile cache") as caught:
        read_settings({})
    assert "XDG_CACHE_HOME" in caught.value.remedy
    assert read_settings({"XDG_CACHE_HOME": "/x"}).cache_dir == Path("/x/tilec")
    assert zig_cache({"XDG_CACHE_HOME": "/x"}) == Path("/x/zig")
    assert zig_cache({"TILEC_CACHE_DIR": "/c"}) == Path("/c/zig")


def test_every_variable() -> None:
    env = {
        "TILEC_CACHE_DIR": "/c",
        "TILEC_CACHE": "0",
        "TILEC_CC": "gcc",
        "TILEC_JOBS": "3",
        "TILEC_DEBUG": "yes",
        "TILEC_VERIFY": "on",
    }
    settings = read_settings(env)
    assert settings.cache_dir == Path("/c")
    assert (settings.cache, settings.cc, settings.jobs, settings.debug) == (False, "gcc", 3, True)
    assert settings.verify


def test_names_of_the_other_language_are_fallbacks() -> None:
    env = {"TILELANG_CACHE_DIR": "/t", "TILELANG_DISABLE_CACHE": "1"}
    assert read_settings(env).cache_dir == Path("/t")
    assert not read_settings(env).cache
    assert read_settings({**env, "TILEC_CACHE_DIR": "/c"}).cache_dir == Path("/c")


@pytest.mark.parametrize(
    ("name", "value"), [("TILEC_JOBS", "0"), ("TILEC_JOBS", "many"), ("TILEC_DEBUG", "maybe")]
)
def test_values_that_cannot_be_used_are_named(name: str, value: str) -> None:
    with pytest.raises(InputError, match=value) as caught:
        read_settings({name: value})
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("text", "threads"), [("3", 3), ("1024", 1024), ("0", None), ("1025", None), ("many", None), ("", None)]
)
def test_threads_count_as_the_runtime_reads_them(text: str, threads: int | None) -> None:
    assert read_library_settings({"TILEC_NUM_THREADS": text}).threads == threads


def test_the_cache_stands_in_for_a_home_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM looks for caches in a home when it is imported."""
    env = {"TILEC_CACHE_DIR": "/caches"}
    stand_in_for_home(env)
    assert env == {"TILEC_CACHE_DIR": "/caches"}

    def none_there() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none_there)
    stand_in_for_home(env)
    assert env["XDG_CACHE_HOME"] == "/caches"
    given = {"TILEC_CACHE_DIR": "/caches", "XDG_CACHE_HOME": "/own"}
    stand_in_for_home(given)
    assert given["XDG_CACHE_HOME"] == "/own"
