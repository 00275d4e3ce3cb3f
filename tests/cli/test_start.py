import resource
import subprocess
import sys
from pathlib import Path

import pytest

SELFNORM = Path(sys.executable).parent / "selfnorm"


def seconds_of_help():
    """What a child spends on a processor: the clock on the wall also counts what else the machine does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([SELFNORM, "--help"], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "evaluate" in done.stdout
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_starts_at_once():
    assert min(seconds_of_help() for _ in range(5)) < 0.5


def test_help_needs_no_torch():
    code = "import sys\nfrom selfnorm import cli\nassert not {'torch', 'numpy', 'matplotlib'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_selfnorm_imports_no_torch_and_needs_no_network():
    """Sockets are refused: an import that reached out would fail."""
    code = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise OSError('no network')\n"
        "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
        "import selfnorm\n"
        "assert 'torch' not in sys.modules\n"
        "selfnorm.SampledLoss, selfnorm.Output, selfnorm.functional.sampled_loss, selfnorm.load\n"
        "assert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_names_are_attribute_errors():
    import selfnorm

    with pytest.raises(AttributeError, match="no attribute 'SampledLos'"):
        _ = selfnorm.SampledLos
