"""Tasks in pools whose processes die."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from tilec.build.processes.attempts import run_all


class Broken(Executor):
    """A pool of which a process dies between the question for it and the first task."""

    def submit(self, *_: object, **__: object) -> None:  # type: ignore[override]
        raise BrokenProcessPool


def test_a_pool_that_breaks_as_it_gets_a_task_is_replaced() -> None:
    broken: list[Executor] = [Broken()]
    made: dict[int, int | None] = {}

    def done(number: int, result: int | None) -> bool:
        made[number] = result
        return True

    with ThreadPoolExecutor(2) as threads:
        run_all(lambda: broken.pop() if broken else threads, abs, enumerate([-3, -4, -5]), 2, done)
    assert made == {0: 3, 1: 4, 2: 5}
