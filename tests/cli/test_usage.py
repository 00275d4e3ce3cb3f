import os
import subprocess
import sys
from pathlib import Path

import pytest

SELFNORM = Path(sys.executable).parent / "selfnorm"


def called(*arguments):
    done = subprocess.run([SELFNORM, *arguments], capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["trian"], "selfnorm: no such command 'trian'. Did you mean 'train'?"),
        (["bench"], "selfnorm bench: missing command; see selfnorm bench --help"),
        (["prepare"], "selfnorm prepare: missing argument 'TEXT"),
        (["prepare", "x", "--too", "y"], "selfnorm prepare: no such option: --too"),
        (["prepare", "x", "--to", "y", "--size", "many"], "selfnorm prepare: invalid value for '--size'"),
        (["score", "x", "y", "--format", "csv"], "selfnorm score: invalid value for '--format': 'csv' is not one of"),
        (["rescore", "x", "--to", "y", "--beam", "-1"], "selfnorm rescore: invalid value for '--beam'"),
    ],
    ids=lambda each: each if isinstance(each, str) else " ".join(each),
)
def test_a_wrong_call_is_one_sentence(arguments, wanted):
    status, out, err = called(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(wanted)


def test_a_call_of_nothing_is_the_help():
    status, out, err = called()
    assert (status, err) == (0, "")
    assert out == called("--help")[1]


def test_help_says_what_options_take():
    wanted = ["--svg PATH", "--paths N [1<=x<=100]", "--lm-scale NUMBER", "--reference TEXT", "--json Print"]
    lines = [" ".join(line.strip("│* ").split()) for line in called("lattice", "--help")[1].splitlines()]
    for each in wanted:
        assert any(line.startswith(each) for line in lines), each
    assert any(line.startswith("FILE ") for line in lines)
    assert "--format tsv|jsonl" in " ".join(called("score", "--help")[1].split())


def test_one_of_several_processes_that_fails_does_not_wait_for_the_interpreter(tmp_path):
    """There PyTorch's threads abort at times, and SIGABRT is no exit status for wrong input."""
    code = """if True:
        import atexit, os, sys
        atexit.register(os.abort)
        import torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        from selfnorm.cli import main
        from selfnorm.distributed import heartbeat
        heartbeat.beat()
        sys.argv = ["selfnorm", "wer", "nowhere", "nothing"]
        main()
    """
    environment = {**os.environ, "SELFNORM_BEATS": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert not list(tmp_path.glob("[0-9]*")), "its heartbeat is still watched"
