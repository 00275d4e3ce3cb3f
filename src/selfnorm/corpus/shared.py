"""`prepare` by any number of processes: texts are numbered piece by piece, and one of them makes DATA of the pieces.

DATA is the same to the last byte as that of one process: what is counted and encoded does not depend on how the texts
were cut.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from selfnorm import manifest
from selfnorm.claims import STALE
from selfnorm.corpus.prepare import Progress, Source, Summary, Work, check, no_progress, sources_of
from selfnorm.corpus.segments import Placed
from selfnorm.corpus.sharing import LAST, Board, Over, Tell, alike, listing, numbered
from selfnorm.corpus.staging import staged
from selfnorm.corpus.text import BLOCK, bad_text, blocks, cuts
from selfnorm.corpus.workers import TYPES, BadBlock, Task, number
from selfnorm.files import sha256
from selfnorm.vocabulary import Vocabulary

SHARD = 1 << 28  # bytes of a plain text that are one piece


class Shard(NamedTuple):
    text: int
    begin: int
    end: int | None
    before: int  # bytes in all shards before this one


def prepare_shared(
    texts: list[Path],
    to: Path,
    size: int | None = None,
    valid: Path | None = None,
    test: Path | None = None,
    vocab: Path | None = None,
    keep_empty: bool = False,
    wait: bool = True,
    tell: Tell = lambda sentence: None,
    progress: Progress | None = None,
    block: int = BLOCK,
    types: int = TYPES,
    shard: int = SHARD,
    stale: float = STALE,
) -> Summary:
    """As `prepare`, together with all others who call this with the same arguments; work lies in `to`.shared.

    Who does not `wait` gets `Busy` when others hold all that is left. The summary is the same for all; its seconds are
    the sum of all processes'.
    """
    sources = sources_of(texts, valid, test)
    check(sources, to, size)
    words = None if vocab is None else Vocabulary.load(vocab)
    given: dict[str, Any] = {"text": listing(texts)}
    given |= {name: None if path is None else listing([path]) for name, path in (("valid", valid), ("test", test))}
    given |= {"size": size, "vocab": alike(vocab), "keep_empty": keep_empty, "shard": shard}
    board = Board(to.resolve().with_name(f"{to.resolve().name}.shared"), tell, wait, stale)
    board.begin(given)
    shards = list(_shards(sources, shard))
    names = numbered("shard", len(shards))
    by_name = dict(zip(names, shards))
    job = _Job(sources, shards, progress or no_progress)

    def numbers(name: str, folder: Path) -> None:
        job.number(by_name[name], folder, keep_empty, block, types)

    def merge(_: str, folder: Path) -> None:
        summary = job.merge(board, names, to, size, words)
        entry = sha256(to / manifest.MANIFEST)
        (folder / "summary.json").write_text(json.dumps({"data": entry, "summary": asdict(summary)}))

    try:
        board.do(names, numbers)
        board.do([LAST], merge)
    except Over:
        pass
    found = board.read(LAST, "summary.json")
    if not (to / manifest.MANIFEST).is_file() or sha256(to / manifest.MANIFEST) != found["data"]:
        raise ValueError(f"{to}: is not what {board.folder} says was made; remove that folder to make it again")
    board.tidy()
    return Summary.of(found["summary"])


def _shards(sources: list[Source], size: int) -> Iterator[Shard]:
    before = 0
    for text, source in enumerate(sources):
        for begin, end in cuts(source.path, size):
            yield Shard(text, begin, end, before + begin)
        before += source.path.stat().st_size


class _Job:
    """What this process does of the work."""

    def __init__(self, sources: list[Source], shards: list[Shard], progress: Progress) -> None:
        self.sources, self.shards, self.progress = sources, shards, progress
        self.total = sum(source.path.stat().st_size for source in sources)
        self.words = 0  # that this process counted

    def number(self, shard: Shard, folder: Path, keep_empty: bool, block: int, types: int) -> None:
        """Number the words of a shard in a folder of its own."""
        began, done = time.perf_counter(), 0
        path = self.sources[shard.text].path

        def tasks() -> Iterator[Task]:
            nonlocal done
            for piece in blocks(path, block, shard.begin, shard.end):
                done = shard.before + piece.read - shard.begin
                yield Task(shard.text, piece)

        def seen(placed: Placed) -> None:
            self.words += placed.words
            self.progress("count", done, self.total, self.words)

        try:
            placed = number(tasks(), seen, folder, 1, keep_empty, types)
        except BadBlock as bad:
            raise bad_text(path, bad.error) from None
        content = {"seconds": time.perf_counter() - began, "placed": [asdict(each) for each in placed]}
        (folder / "placed.json").write_text(json.dumps(content))

    def merge(self, board: Board, names: list[str], to: Path, size: int | None, words: Vocabulary | None) -> Summary:
        """Make DATA of all shards."""
        began, seconds = time.perf_counter(), 0.0
        placed: list[tuple[int, Placed]] = []
        for name, shard in zip(names, self.shards, strict=True):
            for file in board.files(name):
                board.path(name, file)  # whole, or refused
            content = board.read(name, "placed.json")
            seconds += content["seconds"]
            for each in content["placed"]:
                placed.append((shard.text, replace(Placed(**each), worker=f"{name}/{each['worker']}")))
        with staged(to) as folder:
            work = Work(self.sources, folder, self.progress, board.folder)
            work.put(placed)
            work.write(size, words)
        return work.summary(to, seconds + time.perf_counter() - began)
