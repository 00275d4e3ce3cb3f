"""A file of many utterances, written one after another: whole or absent, packed where its name says so."""

import bz2
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from selfnorm.files import atomic


@contextmanager
def archive(path: Path) -> Iterator[IO[bytes]]:
    """`.gz` and `.bz2` are packed; the same utterances give the same bytes, so no time or name is stored."""
    with atomic(path) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                yield cast(IO[bytes], packed)
        elif path.suffix == ".bz2":
            with bz2.BZ2File(file, "wb") as small:
                yield small
        else:
            yield file
