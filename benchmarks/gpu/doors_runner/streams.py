"""Calls on streams other than the default one, and from several threads."""

from __future__ import annotations

import torch
from checks import Env, LeftOut, agree, check, in_threads, matmul

#: Cycles that a stream sleeps, so that work which does not wait for it comes too early.
SLEEP = 50_000_000


class Late:
    """Inputs that a stream gets after it has slept, and what operators should make of them. What is called
    was called before, and the stream has small blocks of memory: neither makes the host wait."""

    def __init__(self, env: Env) -> None:
        self.x, self.w = torch.zeros(4096, device="cuda"), env.random(4096)
        self.rows = torch.zeros(64, 4096, device="cuda")
        self.stream = torch.cuda.Stream()
        with torch.cuda.stream(self.stream):
            self.begin(cycles=1, of_x=0.0, of_rows=0.0)
            env.ops.product(self.x, self.w, 2.0)
            env.ops.column_sums(self.rows)
        torch.cuda.synchronize()

    def begin(self, cycles: int = SLEEP, of_x: float = 3.0, of_rows: float = 2.0) -> None:
        """Queues on the current stream what the inputs will be."""
        torch.cuda._sleep(cycles)
        self.x.fill_(of_x)
        self.rows.fill_(of_rows)

    def end(self, found: torch.Tensor, sums: torch.Tensor) -> None:
        """Compares, having looked whether the calls returned before they ran."""
        assert not self.stream.query(), "a call waited for its stream"
        self.stream.synchronize()
        agree(found, 6.0 * self.w)
        agree(sums, torch.full((4096,), 128.0, device="cuda"))


@check("an operator runs on the current stream, behind what is queued there", cuda=True)
def _(env: Env) -> None:
    late = Late(env)
    with torch.cuda.stream(late.stream):
        late.begin()
        found, sums = env.ops.product(late.x, late.w, 2.0), env.ops.column_sums(late.rows)
    late.end(found, sums)


@check("the loader runs on a stream that is named, and makes outputs there", cuda=True)
def _(env: Env) -> None:
    late = Late(env)
    stream = late.stream.cuda_stream
    with torch.cuda.stream(late.stream):
        late.begin()
    found = env.library.product(late.x, late.w, 2.0, stream=stream)
    sums = env.library.column_sums(late.rows, stream=stream)
    late.end(found, sums)


@check("calls on two streams do not share memory", cuda=True)
def _(env: Env) -> None:
    streams = [torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.default_stream()]
    rows = [env.random(200, 10_000) for _ in streams]
    found: list[list[torch.Tensor]] = [[] for _ in streams]
    torch.cuda.synchronize()
    for number in range(60):
        with torch.cuda.stream(streams[number % 3]):
            found[number % 3].append(env.ops.column_sums(rows[number % 3]))
    torch.cuda.synchronize()
    for each, made in zip(rows, found, strict=True):
        for sums in made:
            agree(sums, each.sum(0))


@check("a second device, which is not the current one", cuda=True)
def _(env: Env) -> None:
    if torch.cuda.device_count() < 2:
        raise LeftOut("this machine has one GPU")
    x, w = env.random(1000).to("cuda:1"), env.random(1000).to("cuda:1")
    agree(env.ops.product(x, w, 2.0), 2 * x * w)
    assert torch.cuda.current_device() == 0


@check("calls from several threads, each on a stream of its own")
def _(env: Env) -> None:
    inputs = [
        (env.random(100 + 10 * number, 3000), env.random(64, 128, dtype=torch.float16)) for number in range(4)
    ]
    b, ops = env.random(128, 136, dtype=torch.float16), env.ops
    env.synchronize()

    def calls(number: int) -> None:
        rows, a = inputs[number]
        for _ in range(20):
            agree(ops.column_sums(rows), rows.sum(0))
            agree(env.library.matmul_float16(a, b), matmul(a, b), dtype=torch.float16)

    def work(number: int) -> None:
        if env.device == "cpu":
            calls(number)
            return
        with torch.cuda.stream(torch.cuda.Stream()):
            calls(number)

    in_threads(work, 4)


@check("the first call of a thread is one of the library", cuda=True)
def _(env: Env) -> None:
    x, w = env.random(1000), env.random(1000)
    made = torch.empty_like(x)
    torch.cuda.synchronize()
    in_threads(lambda _: env.library.product(x, w, 2.0, made, stream=0), 1)
    torch.cuda.synchronize()
    agree(made, 2 * x * w)


@check("a backward pass on a stream and from a thread")
def _(env: Env) -> None:
    def work(number: int) -> None:
        x, w = env.random(500).requires_grad_(), env.random(500).requires_grad_()
        for _ in range(10):
            x.grad = None
            env.ops.product(x, w, 3.0).sum().backward()
            agree(x.grad, 3.0 * w.detach())

    def on_stream(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            work(number)

    work(0)
    in_threads(work if env.device == "cpu" else on_stream, 2)
