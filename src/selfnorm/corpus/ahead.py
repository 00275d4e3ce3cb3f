"""Batches made ahead of time by a thread, so that a GPU never waits for its input."""

import queue
import threading
from collections.abc import Iterator
from typing import Self

import torch

from selfnorm.corpus.batches import Batch, Batches


class Ahead(Iterator[Batch]):
    """The batches from `start_step` on, epoch after epoch, without end; close it, or use it in a `with`.

    `depth` batches are held ready.
    """

    def __init__(self, batches: Batches, start_step: int, device: torch.device | str = "cpu", depth: int = 4) -> None:
        self.batches, self.start_step, self.device = batches, start_step, torch.device(device)
        self.ready: queue.Queue[Batch | BaseException] = queue.Queue(depth)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._work, name="batches ahead", daemon=True)
        self.thread.start()

    def __next__(self) -> Batch:
        if self.stopped.is_set():
            raise StopIteration
        batch = self.ready.get()
        if isinstance(batch, BaseException):
            self.close()
            raise batch
        return batch.to(self.device, non_blocking=True)  # from pinned memory: the copy is queued, not waited for

    def close(self) -> None:
        self.stopped.set()
        self.thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        cuda = self.device.type == "cuda"
        try:
            if cuda:
                torch.cuda.set_device(self.device)  # a thread starts on GPU 0, and pinning would wake that one
            step = self.start_step
            while not self.stopped.is_set():
                batch = self.batches.batch(*divmod(step, self.batches.steps_per_epoch))
                self._put(batch.pin() if cuda else batch)
                step += 1
        except BaseException as error:  # belongs to whoever asks for the next batch
            self._put(error)

    def _put(self, item: Batch | BaseException) -> None:
        while not self.stopped.is_set():
            try:
                self.ready.put(item, timeout=0.1)  # not for ever: who closes us takes nothing any more
                return
            except queue.Full:
                continue
