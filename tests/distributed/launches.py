"""Trainings in several processes under a supervisor; ranks are killed or frozen, a few in tests, many in torture."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from trials import differing, outcome

from selfnorm.recipe import Recipe, to_toml


class Launch:
    """`selfnorm train RECIPE RUN --processes N`; what it says goes to a file beside the run."""

    def __init__(
        self,
        recipe: Path,
        run: Path,
        processes: int,
        *more: str,
        err: str | None = None,
        before: Callable[[], object] | None = None,
    ) -> None:
        self.run = run
        self.err = run.with_name(f"{err or run.name}.err")
        self.temporary = run.with_name(f"{err or run.name}.tmp")
        self.temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "SELFNORM_FROZEN": "10", "TMPDIR": str(self.temporary)}
        command = [sys.executable, "-m", "selfnorm", "train", str(recipe), str(run), f"--processes={processes}", *more]
        with self.err.open("w") as said:
            self.process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=said, env=environment, preexec_fn=before
            )

    def ranks(self) -> dict[int, int]:
        """The processes that train, by rank."""
        found = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                if str(self.run).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    variables = dict(
                        each.partition(b"=")[::2] for each in (entry / "environ").read_bytes().split(b"\0")
                    )
                    if b"LOCAL_RANK" in variables:
                        found[int(variables[b"RANK"])] = int(entry.name)
        return found

    def wait_for_torchrun(self, seconds: float = 60.0) -> None:
        """Until the supervisor has started it: signals are noted then."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for entry in Path("/proc").iterdir():
                with suppress(OSError):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if b"selfnorm.distributed.agent" in words and str(self.run).encode() in words:
                        return
            time.sleep(0.05)

    def wait_for_progress(self, processes: int, seconds: float = 60.0) -> bool:
        """Until so many processes live and the log grows; whether the training still runs."""
        until, before = time.monotonic() + seconds, None
        log = self.run / "metrics.jsonl"
        while self.process.poll() is None and time.monotonic() < until:
            if len(self.ranks()) >= processes and log.exists():
                now = log.stat().st_size
                if before is not None and now > before:
                    return True
                before = now
            time.sleep(0.02)
        return False

    def end(self, seconds: float = 240.0) -> tuple[int, str]:
        """The exit status, and what was said on standard error."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            for process in self.ranks().values():
                os.kill(process, signal.SIGKILL)
            self.process.kill()
            status = self.process.wait()
            return status, f"did not end within {seconds:.0f} s: {self.err.read_text()}"
        return status, self.err.read_text()


class Ensemble:
    """One recipe, and its undisturbed run in `processes`."""

    def __init__(self, folder: Path, made: Recipe, processes: int = 2) -> None:
        folder.mkdir(parents=True)
        self.recipe = folder / "recipe.toml"
        self.recipe.write_text(to_toml(made))
        self.folder, self.processes, self.number = folder, processes, 0
        begin = time.monotonic()
        status, said = self.launch("whole").end()
        assert status == 0, said
        self.seconds = time.monotonic() - begin
        self.wanted = outcome(folder / f"{processes}-whole")

    def launch(self, name: str, *more: str) -> Launch:
        return Launch(self.recipe, self.folder / f"{self.processes}-{name}", self.processes, *more)

    def disturbed(self, kinds: Sequence[signal.Signals], chance: random.Random) -> tuple[int, list[str]]:
        """R13: signals, one after the other, each to one rank at a random moment; how many came in time, the faults."""
        self.number += 1
        launch, came = self.launch(str(self.number), f"--restarts={len(kinds)}"), 0
        for kind in kinds:
            if not launch.wait_for_progress(self.processes):
                break
            time.sleep(chance.uniform(0, 0.5))
            ranks = launch.ranks()
            if len(ranks) == self.processes:
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(sorted(ranks.values())), kind)
                    came += 1
                if not self._over(launch, ranks):
                    return came, [f"{kind.name}: the attempt did not end within 60 s", *launch.end(0)]
        return came, self.faults_of(launch)

    def faults_of(self, launch: Launch) -> list[str]:
        """At its end: what differs from the undisturbed run."""
        status, said = launch.end()
        if status != 0:
            return [f"exit status {status}: {said}"]
        left = [f"{path.name} is left of it" for path in launch.temporary.iterdir()]
        return (["a traceback"] if "Traceback" in said else []) + left + differing(outcome(launch.run), self.wanted)

    def _over(self, launch: Launch, before: dict[int, int]) -> bool:
        """Wait until the processes of an attempt are gone, for a minute."""
        until = time.monotonic() + 60
        while launch.process.poll() is None and set(launch.ranks().values()) & set(before.values()):
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True
