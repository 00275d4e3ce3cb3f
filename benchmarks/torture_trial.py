"""What every item of the reliability programme shares: a trial, the tests as trials, and how a refusal is judged."""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"


@dataclass(frozen=True)
class Trial:
    """No faults is a trial passed; `case` names one of many, `content` is the file that was read."""

    kind: str
    faults: Sequence[str] = ()
    case: str = ""
    content: bytes | None = None


Trials = Iterator[Trial]
Item = Callable[[Path, random.Random], Trials]


def of_tests(kind: str, *names: str, chosen: str = "", **variables: str) -> Trials:
    """Every test of these files, or of those that `chosen` names, is a trial; those skipped are none."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-o", "timeout=0"]
        command += [f"--junitxml={report}", *(str(TESTS / name) for name in names), *(["-k", chosen] if chosen else [])]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **variables})
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    if not cases:
        yield Trial(kind, [f"no test ran: {done.stdout[-500:]}{done.stderr[-500:]}"], " ".join(names))
    for case in cases:
        wrong = [each for tag in ("failure", "error") for each in case.iter(tag)]
        if case.find("skipped") is None:
            said = [each.get("message") or each.tag for each in wrong]
            yield Trial(kind, said, f"{case.get('classname')}::{case.get('name')}")


def of_cases(kind: str, folder: Path, cases: Mapping[str, Callable[[Path], None]]) -> Trials:
    """Each case in a folder of its own; whatever it raises is its fault."""
    for number, (name, case) in enumerate(cases.items()):
        place = folder / f"{number:03}"
        place.mkdir(parents=True)
        try:
            case(place)
            yield Trial(kind, case=name)
        except Exception as error:
            yield Trial(kind, [f"{type(error).__name__}: {error}"], name)


def memory(name: str) -> int:
    """Bytes of this process, as the system calls them: VmSize, VmRSS, VmHWM."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def refused(action: Callable[[], object], *said: str) -> None:
    """The action must end with one sentence, a ValueError or OSError, that holds these words."""
    try:
        action()
    except (ValueError, OSError) as error:
        sentence = str(error)
        missing = [words for words in said if words not in sentence]
        assert not missing, f"{missing} is not in: {sentence}"
        assert "\n" not in sentence, f"more than one line: {sentence}"
    else:
        raise AssertionError("nothing was refused")
