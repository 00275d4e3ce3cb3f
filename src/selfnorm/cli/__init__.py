"""The command line: one file per verb, each parses, calls and prints."""

import errno
import sys

import typer

from selfnorm.cli.bench import bench
from selfnorm.cli.demo import demo
from selfnorm.cli.evaluate import evaluate
from selfnorm.cli.lattice import lattice
from selfnorm.cli.ngram import ManyThresholds, ngram
from selfnorm.cli.options import tell_once
from selfnorm.cli.prepare import prepare
from selfnorm.cli.reproduce import reproduce
from selfnorm.cli.rescore import rescore
from selfnorm.cli.score import score
from selfnorm.cli.train import train
from selfnorm.cli.wer import wer
from selfnorm.distributed import LOST
from selfnorm.files import WriteError

app = typer.Typer(
    name="selfnorm",
    help="Train large-vocabulary language models on samples; use their raw outputs as probabilities.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for verb in (demo, prepare, train, evaluate, score, lattice, rescore, wer, reproduce):
    app.command()(verb)
app.command(cls=ManyThresholds)(ngram)
app.add_typer(bench, name="bench")


def main() -> None:
    """Wrong input is one sentence and exit status 2; `--debug` shows where it came from."""
    try:
        app()
    except BrokenPipeError:  # who read our output has enough
        sys.stderr.close()
        sys.exit(0)
    except (ValueError, OSError) as error:
        if "--debug" in sys.argv:
            raise
        tell_once(f"selfnorm: {_sentence(error)}")
        sys.exit(_status(error))


def _sentence(error: Exception) -> str:
    """Python's own words for what the system refused begin with a number, and end with the file."""
    if isinstance(error, OSError) and error.filename and not isinstance(error, WriteError):
        return f"{error.filename}: {error.strerror}; give another path, or mend this one"
    return str(error)


def _status(error: Exception) -> int:
    """3 when the machine failed, not the input: a full or broken disk, a process that died; LOST when others did."""
    broken = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM)
    if isinstance(error, ConnectionError):
        return LOST
    ours = isinstance(error, ChildProcessError | WriteError) or getattr(error, "errno", None) in broken
    return 3 if ours else 2
