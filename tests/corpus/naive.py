"""The naive way from text to DATA, and texts to try it on."""

from pathlib import Path

import numpy as np

from selfnorm.corpus.store import Data

TEXT = "the cat sat\n\non the mat\n the  dog \n"


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def zipf_text(words: int, types: int, seed: int = 0) -> bytes:
    chance = np.random.default_rng(seed)
    ids = np.minimum(chance.zipf(1.2, words), types)
    ends = np.where(chance.random(words) < 0.05, "\n", " ")
    return "".join(f"w{id}{end}" for id, end in zip(ids.tolist(), ends.tolist())).encode()


def naive(content: bytes, keep_empty: bool = False) -> list[list[str]]:
    lines = content.split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    sentences = [[word.decode() for word in line.split()] for line in lines]
    return [words for words in sentences if words or keep_empty]


def decoded(data: Data) -> list[list[str]]:
    return [[data.vocabulary.words[id] for id in sentence[:-1]] for sentence in data.train]
