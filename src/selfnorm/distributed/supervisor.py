"""Starts the processes of a training, watches them, and starts them afresh from the last checkpoint when one is lost.

torchrun can restart its processes in place, but after a kill the others may hang where they met before. So every
attempt here is a new torchrun. A process that dies ends the attempt at once; one that is frozen is known by its
heartbeat, and the attempt is ended for it.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from selfnorm.cores import cores
from selfnorm.distributed import JOIN
from selfnorm.distributed.heartbeat import BEATS, TOLD, beats

FROZEN = 30.0  # seconds without a heartbeat; SELFNORM_FROZEN changes it
LOOK = 0.2  # seconds between two looks
MERCY = 15.0  # seconds that processes have to end by themselves when one is lost: those that live may have to say why
AWHILE = 3.0  # seconds after a signal in which processes may appear that it can be passed on to
MENDED = (2, 3)  # exit statuses after which a person has to do something first: wrong input, a full disk, no memory
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
STOPPED = tuple(128 + number for number in SIGNALS)  # exit statuses of who was told to end, here or on another machine


@dataclass(frozen=True)
class Machines:
    """Where the processes run: so many on this machine, which is number `node` of `nodes` that meet at `address`."""

    processes: int
    nodes: int = 1
    node: int = 0
    address: str | None = None  # host:port of number 0

    def __post_init__(self) -> None:
        if self.processes < 1 or not 0 <= self.node < self.nodes:
            raise ValueError(f"process counts start at 1 and machine {self.node} must be one of 0 to {self.nodes - 1}")
        if self.nodes > 1 and self.address is None:
            raise ValueError("several machines must know where to meet; give --address HOST:PORT of machine 0")
        if self.address is not None and not self.address.rpartition(":")[2].isdigit():
            raise ValueError(
                f"--address {self.address}: give the name of machine 0 and a free port of it, as host:29400"
            )

    def arguments(self) -> list[str]:
        """torchrun's."""
        host, _, port = (self.address or f"127.0.0.1:{_free_port()}").rpartition(":")
        counts = [f"--nproc-per-node={self.processes}", f"--nnodes={self.nodes}", f"--node-rank={self.node}"]
        seconds = round(float(os.environ.get("SELFNORM_JOIN", JOIN)))
        return [*counts, f"--rdzv-conf=timeout={seconds}", f"--master-addr={host}", f"--master-port={port}"]


@dataclass(frozen=True)
class End:
    """How an attempt ended: an exit status, why in words when no process could tell, and whether one has told."""

    status: int
    why: str | None
    told: bool


def supervise(command: Sequence[str], machines: Machines, restarts: int, say: Callable[[str], None]) -> int:
    """Run `python -m COMMAND` in all processes until it ends well, is stopped, or `restarts` are used up."""
    if not Path("/proc").is_dir():
        raise ValueError("--processes and --restarts need Linux; use torchrun here: torchrun ... -m selfnorm train ...")
    with _forwarded() as passed_on:
        for attempt in range(restarts + 1):
            end = _attempt(command, machines, passed_on)
            if passed_on and end.status and not end.told:  # it came so early that no process could note it
                say(f"stopped by {signal.Signals(passed_on[0]).name} before the training began")
            if end.status == 0 or passed_on or end.status in MENDED or (end.status in STOPPED and not end.why):
                break
            why = end.why or f"a process ended with exit status {end.status}"
            if attempt < restarts:
                say(f"{why}; starting again from the last checkpoint, {attempt + 1} of {restarts} times")
            elif restarts or not end.told:
                say(f"{why}; start the same command again to go on from the last checkpoint")
    return 128 + passed_on[0] if passed_on and end.status else end.status


def _attempt(command: Sequence[str], machines: Machines, passed_on: list[int]) -> End:
    with tempfile.TemporaryDirectory(prefix="selfnorm-") as folder:
        watched, words = Path(folder) / "beats", Path(folder) / "end"
        watched.mkdir()
        threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, cores() // machines.processes))
        environment = {**os.environ, BEATS: str(watched), "OMP_NUM_THREADS": threads}
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
        environment.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # pages of C++ about what is said in a sentence
        agent = [sys.executable, "-m", "selfnorm.distributed.agent", str(words), *machines.arguments()]
        agent.append(f"--log-dir={folder}")  # of torchrun, which leaves a folder behind wherever that is
        torchrun = subprocess.Popen([*agent, "-m", *command], env=environment, start_new_session=True)
        try:
            why = _watch(torchrun, watched, passed_on)
        finally:
            _end_all(torchrun, str(watched))
        if why is None and words.exists():
            why = words.read_text()
        status = torchrun.returncode
        return End(status if status >= 0 else 128 - status, why, (watched / TOLD).exists())


def _watch(torchrun: "subprocess.Popen[bytes]", folder: Path, passed_on: list[int]) -> str | None:
    """Until the attempt ends; who was frozen, if that is why. Signals that come meanwhile go to every rank, once."""
    seen: dict[int, tuple[tuple[int, int], float]] = {}
    frozen, done, since = float(os.environ.get("SELFNORM_FROZEN", FROZEN)), 0, 0.0
    while torchrun.poll() is None:
        alive = beats(folder)
        if not passed_on or alive:
            since = time.monotonic()
        elif time.monotonic() - since > AWHILE:
            torchrun.terminate()
        for number in passed_on[done:] if alive else ():
            done += 1
            for process, _ in alive.values():
                with suppress(ProcessLookupError):
                    os.kill(process, number)
        now = time.monotonic()
        seen = {
            rank: seen[rank] if seen.get(rank, ((0, 0), 0))[0] == new else (new, now) for rank, new in alive.items()
        }
        for rank, (_, when) in seen.items():
            if now - when > frozen:
                return f"process {rank} has been frozen for {frozen:.0f} s"
        time.sleep(LOOK)
    return None


def _end_all(torchrun: "subprocess.Popen[bytes]", mark: str) -> None:
    """Nobody of this attempt lives on: two of them would write to one run."""
    if torchrun.poll() is not None:
        until = time.monotonic() + MERCY
        while _members(mark) and time.monotonic() < until:
            time.sleep(LOOK)
    until = time.monotonic() + MERCY  # the system may need a moment, and for some it never comes
    while (members := _members(mark)) and time.monotonic() < until:
        for process in members:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)
    torchrun.wait()


def _members(mark: str) -> list[int]:
    """The living processes whose environment names this attempt."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and f"{BEATS}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


@contextmanager
def _forwarded() -> Iterator[list[int]]:
    """Signals that came to us, to be passed on."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in SIGNALS}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
