"""Padded batches of token ids: from text, from prefixes of a text, or made up for timing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LONGEST = 256
CLS, SEP, PAD = 101, 102, 0


@dataclass(frozen=True)
class Batch:
    """``ids`` int32 (sentences, pitch), ``lengths`` int32 (sentences,); past a length lies padding."""

    ids: np.ndarray
    lengths: np.ndarray

    @property
    def mask(self) -> np.ndarray:
        """int64 (sentences, pitch): 1 for tokens, 0 for padding."""
        return (np.arange(self.ids.shape[1]) < self.lengths[:, None]).astype(np.int64)

    def record(self) -> bytes:
        """The batch as the engine reads it."""
        head = np.array(self.ids.shape, np.int32)
        return head.tobytes() + self.lengths.tobytes() + self.ids.tobytes()


def pad(sentences: Sequence[Sequence[int]]) -> Batch:
    """A batch as wide as its longest sentence."""
    lengths = np.array([len(tokens) for tokens in sentences], np.int32)
    ids = np.full((len(sentences), int(lengths.max())), PAD, np.int32)
    for row, tokens in zip(ids, sentences, strict=True):
        row[: len(tokens)] = tokens
    return Batch(ids, lengths)


def tokenize(lines: Sequence[str], tokenizer_file: Path) -> list[list[int]]:
    """Token ids of each line, with the marks at both ends, cut at LONGEST."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=LONGEST)
    return [encoding.ids for encoding in tokenizer.encode_batch(list(lines))]


def in_batches(sentences: Sequence[Sequence[int]], size: int) -> list[Batch]:
    """The sentences in their order, ``size`` at a time: neighbours of any length share a batch."""
    return [pad(sentences[at : at + size]) for at in range(0, len(sentences), size)]


def prefixes(tokens: Sequence[int], lengths: Iterable[int]) -> list[list[int]]:
    """The first n tokens of one sentence for each n of ``lengths``, its end mark kept from n = 2 on."""
    return [list(tokens[:n]) if n < 2 else [*tokens[: n - 1], SEP] for n in lengths]


def made_up(sentences: int, length: int, seed: int = 0) -> Batch:
    """A batch without padding: random words between the marks."""
    ids = np.random.default_rng(seed).integers(1000, 30522, (sentences, length)).astype(np.int32)
    ids[:, 0], ids[:, -1] = CLS, SEP
    return Batch(ids, np.full(sentences, length, np.int32))
