"""Every kernel compiles for a GPU, though none is here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

KERNELS = """
_draw attend attend_back chunks dots gather merge missed move pulls ranks slopes squares target_logits update values
""".strip()


def test_every_kernel_compiles():
    script = Path(__file__).with_name("compile_for_gpu.py")
    settings = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[-2] == KERNELS
