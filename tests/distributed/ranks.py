"""Several ranks on this machine, each a forked process: PyTorch is there at once, and they share one process group."""

import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from selfnorm.distributed.world import World


def on_ranks(size: int, work: Callable[[World], Any]) -> list[Any]:
    """What `work` returns on each rank."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryDirectory() as folder:
        children = [_start(Path(folder), rank, size, work) for rank in range(size)]
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        said = [path.read_bytes() for rank in range(size) if (path := Path(folder) / f"said-{rank}").exists()]
    results = [pickle.loads(each) for each in said]
    faults = [each for each in results if isinstance(each, _Fault)]
    assert not faults, "\n".join(each.text for each in faults)
    assert ends == [0] * size, ends
    return results


class _Fault:
    def __init__(self, text: str) -> None:
        self.text = text


def _start(folder: Path, rank: int, size: int, work: Callable[[World], Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        torch.set_num_threads(1)  # the parent's threads do not live in the child
        store = dist.FileStore(str(folder / "store"), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60))
        world = World(rank, size)
        try:
            result: Any = work(world)
            world.leave()
        except BaseException:
            result = _Fault(f"rank {rank}: {traceback.format_exc()}")
        (folder / f"said-{rank}").write_bytes(pickle.dumps(result))
        status = 1 if isinstance(result, _Fault) else 0
    finally:
        os._exit(status)  # whatever happens, this process must not go on as a second pytest
