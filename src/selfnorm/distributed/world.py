"""The processes that train together: their number, and how they talk about small things.

`torchrun` starts them and tells each its rank. Tensors of a training step travel by exchange.py and shards.py; here are
words: whether all were given the same recipe, what a checkpoint holds, whether a signal came to one of them.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from selfnorm.distributed import JOIN

T = TypeVar("T")

gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name since PyTorch 2.12

WAIT = 1800.0  # seconds one waits for another in a training; SELFNORM_WAIT changes it
FAULT = "selfnorm/fault"  # the store's key for how many ranks have something to tell the user

unreached = False  # whether the others were looked for in vain


class World:
    """`rank` of `size`; a process alone is number 0 of 1 and talks to nobody."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.voting: Callable[[], list[int]] = lambda: [0]

    @classmethod
    def join(cls, device: str = "auto") -> "World":
        """The world that the environment tells of (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), or one of its own."""
        size = _number("WORLD_SIZE", 1)
        if size == 1:
            return cls()
        rank, local = _number("RANK"), _number("LOCAL_RANK", _number("RANK"))
        host, port = os.environ.get("MASTER_ADDR", ""), _number("MASTER_PORT")
        if not host:
            raise ValueError(
                "WORLD_SIZE is set, MASTER_ADDR is not; start several processes by --processes or torchrun"
            )
        backend = _backend(device, local)
        seconds = float(os.environ.get("SELFNORM_JOIN", JOIN))
        try:
            store, _, _ = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=seconds)))
            store.set_timeout(timedelta(seconds=seconds))
            waiting = timedelta(seconds=seconds)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=waiting)
            dist.barrier()
            dist.distributed_c10d._set_pg_timeout(_waiting(), dist.group.WORLD)
        except (RuntimeError, ValueError) as error:
            global unreached
            unreached = True
            raise ConnectionError(
                f"process {rank} of {size} did not reach the others at {host}:{port} within {seconds:.0f} s "
                f"({short(error)}); start all of them, and let them reach this address"
            ) from None
        return cls(rank, size)

    @property
    def alone(self) -> bool:
        return self.size == 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes files and speaks to the user."""
        return self.rank == 0

    def vote(self, number: int) -> int:
        """The largest number of all ranks, as it was at their last vote: so nobody waits, and all hear the same."""
        if self.alone:
            return number
        heard, self.voting = self.voting(), self.largest(number)
        return heard[0]

    def largest(self, *numbers: int) -> Callable[[], list[int]]:
        """The largest of all ranks, of each number: asked now, to be had later."""
        mine = torch.tensor(numbers)
        work = None if self.alone else dist.all_reduce(mine, dist.ReduceOp.MAX, async_op=True)

        def had() -> list[int]:
            if work is not None:
                work.wait()
            return mine.tolist()

        return had

    def all(self, mine: T) -> list[T]:
        """What every rank has, by rank."""
        found: list[Any] = [mine]
        if not self.alone:
            found = [None] * self.size
            dist.all_gather_object(found, mine)
        return found

    def of_first(self, mine: T) -> T:
        """What the first rank has."""
        box = [mine]
        if not self.alone:
            dist.broadcast_object_list(box, 0)
        return box[0]

    def agree(self, **things: object) -> None:
        """All ranks must have been given the same."""
        for rank, others in enumerate(self.all(things)):
            if differing := [name.replace("_", " ") for name in things if others.get(name) != things[name]]:
                raise ValueError(
                    f"process {rank} has another {' and another '.join(differing)} than process {self.rank}; "
                    "give all processes the same recipe, data, kind of machine and version of selfnorm"
                )

    def total(self, mine: Tensor) -> Tensor:
        """The sum over the ranks, in place."""
        if not self.alone:
            dist.all_reduce(mine)
        return mine

    def tensors_of_first(self, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """The first rank's tensors by name, on the CPU, one at a time."""
        for name, shape, dtype in self.of_first([(name, each.shape, each.dtype) for name, each in tensors.items()]):
            here = tensors[name].cpu() if self.first else torch.empty(shape, dtype=dtype)
            if not self.alone and here.numel():
                dist.broadcast(here.contiguous(), 0)
            yield name, here

    def leave(self) -> None:
        if not self.alone and dist.is_initialized():
            with suppress(RuntimeError):
                self.voting()
                dist.barrier()  # nobody goes while another still reads
            dist.destroy_process_group()


def first_to_tell() -> bool:
    """Whether no other of several ranks has told the user what went wrong; this one is then the one to do so."""
    if unreached:
        return _number("LOCAL_RANK", 0) == 0
    try:
        if dist.is_initialized():
            store = dist.distributed_c10d._get_default_store()
        else:
            seconds = timedelta(seconds=5)
            store, _, _ = next(rendezvous("env://", _number("RANK"), _number("WORLD_SIZE"), timeout=seconds))
        first = store.add(FAULT, 1) == 1
        if _number("RANK") == 0 and "TORCHELASTIC_USE_AGENT_STORE" not in os.environ:
            _keep(store)
        return first
    except (RuntimeError, ValueError):  # better twice than never
        return _number("LOCAL_RANK", 0) == 0


def _keep(store: Any) -> None:
    """The store ends with this process: the others may ask it first, for two seconds."""
    until = time.monotonic() + 2
    while store.add(FAULT, 0) < _number("WORLD_SIZE") and time.monotonic() < until:
        time.sleep(0.05)


def of_others(error: RuntimeError) -> bool:
    """Whether it came up between the ranks."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower() or "peer" in str(error)


def lost(error: RuntimeError) -> bool:
    """Whether it says no more than that another rank is gone."""
    signs = ("closed by", "reset by", "onnection refused", "roken pipe", "imed out", "imeout")
    return any(sign in str(error) for sign in signs)


def _backend(device: str, local: int) -> str:
    """NCCL between GPUs, one for each process of this machine; gloo else."""
    if ":" in device:
        raise ValueError(f"training.device = {device!r} is one GPU; several processes take 'cuda', or 'cpu'")
    if device == "cpu" or not torch.cuda.is_available():
        return "gloo"
    count = torch.cuda.device_count()
    torch.cuda.set_device(local % count)
    return "cpu:gloo,cuda:nccl" if _number("LOCAL_WORLD_SIZE", 1) <= count else "gloo"


def _number(name: str, default: int | None = None) -> int:
    value = os.environ.get(name, default)
    if value is None:
        raise ValueError(f"WORLD_SIZE is set, {name} is not; start several processes by `torchrun` or --processes")
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"the environment has {name}={value}; it must be a whole number") from None


def _waiting() -> timedelta:
    return timedelta(seconds=float(os.environ.get("SELFNORM_WAIT", WAIT)))


def short(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
