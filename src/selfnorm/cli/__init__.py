"""The command line: one file per verb, each parses, calls and prints."""

import errno
import os
import sys
from contextlib import suppress

import typer

from selfnorm.cli.bench import bench
from selfnorm.cli.demo import demo
from selfnorm.cli.evaluate import evaluate
from selfnorm.cli.lattice import lattice
from selfnorm.cli.ngram import ManyThresholds, ngram
from selfnorm.cli.options import tell_once, trace
from selfnorm.cli.prepare import prepare
from selfnorm.cli.reproduce import reproduce
from selfnorm.cli.rescore import rescore
from selfnorm.cli.score import score
from selfnorm.cli.train import train
from selfnorm.cli.usage import WrongCall, named, sentence
from selfnorm.cli.wer import wer
from selfnorm.distributed import LOST
from selfnorm.distributed.heartbeat import rest
from selfnorm.files import WriteError

BROKEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM)
WRONG_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EROFS)

app = typer.Typer(
    name="selfnorm",
    help="Train large-vocabulary language models on samples; use their raw outputs as probabilities.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for verb in (demo, prepare, train, evaluate, score, lattice, rescore, wer, reproduce):
    app.command()(named(verb))
app.command(cls=ManyThresholds)(named(ngram))
app.add_typer(bench, name="bench")


def main() -> None:
    """One of several processes that fails goes at once: the threads of its exchange would abort a tidy end at times."""
    if sys.stderr is None:  # closed by who started us: that nobody reads it is no reason to fail
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        _call()
    except SystemExit as end:
        exchange = sys.modules.get("torch.distributed")  # which is not imported for that
        if not end.code or exchange is None or not exchange.is_available() or not exchange.is_initialized():
            raise
        rest()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(int(end.code))


def _call() -> None:
    """Wrong input is one sentence and exit status 2; `--debug` shows where it came from."""
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except WrongCall as error:
        tell_once(sentence(error))
        sys.exit(2)
    except (ValueError, OSError) as error:
        trace("--debug" in sys.argv)
        tell_once(f"selfnorm: {_sentence(error)}")
        sys.exit(_status(error))
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        trace("--debug" in sys.argv)
        line = str(error).strip().partition("\n")[0]
        named = error.__cause__ is not None  # where it was raised says what to lower
        tell_once(f"selfnorm: {line if named else f'out of memory ({line}); give it less at a time, or more memory'}")
        sys.exit(3)


def _out_of_memory(error: Exception) -> bool:
    """PyTorch's by name, which is not imported for that."""
    torchs = type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)
    return torchs or isinstance(error, MemoryError)


def _sentence(error: Exception) -> str:
    """Python's own words for what the system refused begin with a number, and end with the file."""
    if isinstance(error, OSError) and error.filename and not isinstance(error, WriteError):
        return f"{error.filename}: {error.strerror}; give another path, or mend this one"
    return str(error)


def _status(error: Exception) -> int:
    """3 when the machine failed, not the input: a full or broken disk, a process that died; LOST when others did."""
    if isinstance(error, ConnectionError):
        return LOST
    number = getattr(error, "errno", None)
    failed = isinstance(error, ChildProcessError) or number in BROKEN
    return 3 if failed or (isinstance(error, WriteError) and number not in WRONG_PATH) else 2
