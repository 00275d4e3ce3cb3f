"""Files that are whole or absent: what the system refuses, links, and two writers at a time."""

import errno
import os
from pathlib import Path

import pytest

from selfnorm.files import WriteError, atomic, write_whole


def test_of_a_folder_that_cannot_be_written_the_file_is_named(tmp_path, monkeypatch):
    """On a read-only file system even to remove what is not there is refused, and that hid the first error."""

    def refused(path, *_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "open", refused)
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: refused(path))
    with pytest.raises(WriteError, match=r"x\.svg cannot be written: Read-only file system") as caught:
        write_whole(tmp_path / "x.svg", b"")
    assert caught.value.filename == str(tmp_path / "x.svg")


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "big").mkdir()
    for name in ("there", "not there yet"):
        link = tmp_path / f"{name}.link"
        link.symlink_to(tmp_path / "big" / name)
        write_whole(link, b"new")
        assert link.is_symlink()
        assert (tmp_path / "big" / name).read_bytes() == b"new"
    assert sorted(path.name for path in (tmp_path / "big").iterdir()) == ["not there yet", "there"]


def test_a_link_that_leads_nowhere_is_replaced(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    write_whole(tmp_path / "loop", b"new")
    assert (tmp_path / "loop").read_bytes() == b"new"


@pytest.mark.parametrize("letter", ["x", "ß"])
def test_a_name_as_long_as_a_name_may_be(tmp_path, letter):
    path = tmp_path / (letter * (255 // len(letter.encode())))
    write_whole(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: is a pipe or device, not a file; give another name"):
        write_whole(tmp_path / "pipe", b"")
    assert (tmp_path / "pipe").is_fifo()


def test_writers_with_the_same_number_do_not_share_a_file(tmp_path):
    """Processes of two containers may have the same."""
    path = tmp_path / "file"
    with atomic(path) as first, atomic(path) as second:
        for _ in range(3):
            first.write(b"first")
            second.write(b"second")
    assert path.read_bytes() == b"first" * 3
    assert list(tmp_path.iterdir()) == [path]
