import subprocess
import sys
import time
from pathlib import Path

import pytest

SELFNORM = Path(sys.executable).parent / "selfnorm"


def test_help_starts_at_once_and_without_torch():
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        done = subprocess.run([SELFNORM, "--help"], capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - begin)
    assert "demo" in done.stdout
    assert min(seconds) < 0.5


def test_importing_selfnorm_imports_no_torch_and_needs_no_network():
    """Sockets are refused: an import that reached out would fail."""
    code = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise OSError('no network')\n"
        "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
        "import selfnorm\n"
        "assert 'torch' not in sys.modules\n"
        "selfnorm.SampledLoss, selfnorm.Output, selfnorm.functional.sampled_loss\n"
        "assert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_names_are_attribute_errors():
    import selfnorm

    with pytest.raises(AttributeError, match="no attribute 'SampledLos'"):
        _ = selfnorm.SampledLos
