"""Arrays that may be larger than the memory: beyond a limit they lie in mapped files, with the same contents.

Which arrays those are changes no number, only where the bytes are. The system keeps what it can of the files in memory
and takes it back when others need it.
"""

import mmap
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from selfnorm.files import naming

Array = npt.NDArray[Any]


class Scratch:
    """Hands out arrays: from memory while `memory` bytes last, then from files in `folder`."""

    def __init__(self, folder: Path, memory: int) -> None:
        self.folder, self.left = folder, memory
        self.files = 0

    def array(self, size: int, dtype: npt.DTypeLike) -> Array:
        """Zeros."""
        if self.take(size * np.dtype(dtype).itemsize):
            return np.zeros(size, dtype)
        with self.file() as file:
            os.truncate(file.fileno(), size * np.dtype(dtype).itemsize)
            return _mapped(file, np.dtype(dtype))

    def column(self, dtype: npt.DTypeLike) -> "Column":
        return Column(self, np.dtype(dtype))

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True

    def file(self) -> IO[bytes]:
        self.files += 1
        path = self.folder / f"{self.files}.array"
        with naming(self.folder, path):
            return path.open("w+b")


class Column:
    """An array that grows at its end."""

    def __init__(self, scratch: Scratch, dtype: np.dtype[Any]) -> None:
        self.scratch, self.dtype = scratch, dtype
        self.pieces: list[Array] = []
        self.spilled: IO[bytes] | None = None

    def append(self, piece: Array) -> None:
        piece = np.ascontiguousarray(piece, self.dtype)
        if self.spilled is None and not self.scratch.take(piece.nbytes):
            self.spilled = self.scratch.file()
            self._spill(*self.pieces)
            self.scratch.left += sum(each.nbytes for each in self.pieces)
            self.pieces = []
        if self.spilled is None:
            self.pieces.append(piece)
        else:
            self._spill(piece)

    def finish(self) -> Array:
        if self.spilled is None:
            pieces, self.pieces = self.pieces, []
            return np.concatenate(pieces) if pieces else np.zeros(0, self.dtype)
        with self.spilled as file:
            file.flush()
            return _mapped(file, self.dtype)

    def _spill(self, *pieces: Array) -> None:
        assert self.spilled is not None
        with naming(self.scratch.folder, Path(self.spilled.name)):
            for piece in pieces:
                self.spilled.write(piece.data.cast("B") if len(piece) else b"")


def _mapped(file: IO[bytes], dtype: np.dtype[Any]) -> Array:
    size = os.fstat(file.fileno()).st_size
    return np.frombuffer(mmap.mmap(file.fileno(), size), dtype) if size else np.zeros(0, dtype)
