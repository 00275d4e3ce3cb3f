"""Claims on a shared folder: of many processes, on one or several machines, one at a time does a piece of work.

A claim is a file, `NAME.0`, made so that one process only can make it (a hard link, on NFS too). It says who holds
it, and its time is touched every few seconds. When its holder let go or died, the next takes `NAME.1`, and so on: no
claim is ever removed, moved or written by another, so however late a process acts on what it saw, two never both win.

A holder died if this machine has no such process any more, or if its claim was not touched for a minute by the file
system's own clock. One that merely slept may wake up and go on, while another does the same work. So what is done
under a claim must be written in one rename, and the same whoever does it: the last to come then changes nothing.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from selfnorm.files import WriteError

BEAT = 5.0  # seconds between two touches
STALE = 60.0  # seconds without one after which a holder counts as dead
SHORT, LONG = 0.05, 2.0  # seconds between two looks at what others hold

Report = Callable[[Mapping[str, str]], None]  # told who holds what, when there is nothing to do but to wait


@contextmanager
def claimed(folder: Path, name: str, beat: float = BEAT, stale: float = STALE) -> Iterator[str | None]:
    """None if the claim is ours for the length of the block; else who holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    path, holder = _take(folder, name, stale)
    if path is None:
        yield holder
        return
    ended = threading.Event()
    thread = threading.Thread(target=_touch, args=(path, beat, ended), daemon=True)
    thread.start()
    try:
        yield None
    finally:
        ended.set()
        thread.join()
        with suppress(OSError):  # then it goes stale
            os.utime(path, (0, 0))  # let go


def share(
    folder: Path,
    names: Sequence[str],
    done: Callable[[str], bool],
    do: Callable[[str], None],
    report: Report | None,
    stale: float = STALE,
) -> bool:
    """Do what is not done yet, in order, each by one process; whether all is done, which others may have done.

    Waits for what others hold, and takes it over when they die; `report` is told of it. Without one there is no wait.
    """
    left, pause = list(names), SHORT
    while True:
        held: dict[str, str] = {}
        worked = False
        for name in left:
            if done(name):
                continue
            with claimed(folder, name, min(BEAT, stale / 4), stale) as holder:
                if holder is not None:
                    held[name] = holder
                elif not done(name):
                    do(name)
                    worked = True
        if not held:
            return True
        left = list(held)
        if worked:
            pause = SHORT
            continue
        if report is None:
            return all(map(done, left))
        report(held)
        time.sleep(pause)
        pause = min(LONG, 1.5 * pause)


def _take(folder: Path, name: str, stale: float) -> tuple[Path | None, str]:
    """Our own claim, or None and who holds the last one."""
    number = 0
    while (folder / f"{name}.{number + 1}").exists():
        number += 1
    holder = _holder(folder / f"{name}.{number}", stale)
    if holder:
        return None, holder
    path = folder / f"{name}.{number if holder == '' else number + 1}"
    return (path, "") if _made(path) else (None, "somebody")


def _holder(path: Path, stale: float) -> str | None:
    """Who holds a claim; None if it is over, "" if nobody made it yet."""
    try:
        with path.open("rb") as file:  # opening asks an NFS server for the time anew
            touched, content = os.fstat(file.fileno()).st_mtime, file.read()
    except FileNotFoundError:
        return ""
    if touched == 0:
        return None
    try:
        about = json.loads(content)
        place, process, started = str(about["place"]), int(about["process"]), str(about["started"])
    except (ValueError, LookupError, TypeError):  # its maker is about to write, or died before
        place, process, started = "", 0, ""
    if place == here() and not (runs(process) and _start_of(process) in (started, "")):  # not another of its number
        return None
    if _now(path.parent) - touched > stale:
        return None
    return f"{about['host']}, process {process}" if place else "somebody"


def _made(path: Path) -> bool:
    """Whether the claim was made here; it appears with its words, or else, without hard links, right before them."""
    process = os.getpid()
    about = {"host": socket.gethostname(), "place": here(), "process": process, "started": _start_of(process)}
    words = path.with_name(f".{uuid.uuid4().hex}.claim")
    try:
        words.write_text(json.dumps(about))
        try:
            os.link(words, path)
            return True
        except FileExistsError:  # also where a server answers a request that it heard twice
            return words.stat().st_nlink == 2
        except OSError:
            with path.open("x") as file:
                file.write(json.dumps(about))
            return True
    except FileExistsError:
        return False
    except OSError as error:
        raise WriteError(error.errno, os.strerror(error.errno or 0), str(path)) from error
    finally:
        words.unlink(missing_ok=True)


def _touch(path: Path, beat: float, ended: threading.Event) -> None:
    while not ended.wait(beat):
        with suppress(OSError):  # a server that is away for a while
            os.utime(path)  # None: the server's own time


def _now(folder: Path) -> float:
    """The file system's clock, which need not be ours."""
    path = folder / f".{uuid.uuid4().hex}.now"
    try:
        path.touch()
        return path.stat().st_mtime
    except OSError as error:
        raise WriteError(error.errno, os.strerror(error.errno or 0), str(folder)) from error
    finally:
        path.unlink(missing_ok=True)


def here() -> str:
    """This machine, or the container in it, where a process has the number it has."""
    try:
        space = str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        space = "0"
    return f"{socket.gethostname()}-{space}"


def runs(process: int) -> bool:
    """Whether this machine has such a process."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def leftovers(parent: Path, stem: str) -> list[Path]:
    """Folders `stem`NUMBER.tmp whose makers, processes of this machine, are no more: of our number it was another."""

    def is_left(process: str) -> bool:
        return process.isdigit() and (int(process) == os.getpid() or not runs(int(process)))

    names = {folder: folder.name.removeprefix(stem).removesuffix(".tmp") for folder in parent.iterdir()}
    return [folder for folder, name in names.items() if folder.name == f"{stem}{name}.tmp" and is_left(name)]


def _start_of(process: int) -> str:
    """When a process was started; "over" if it waits to be buried, "" where the system does not say."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "over" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""
