"""A training step as it is written, or, where shapes come again on a GPU, recorded as a CUDA graph and replayed.

A deep model launches thousands of small kernels a step, and the host is slower at that than the GPU at running them. A
graph is launched at once. Its inputs have a fixed place: a batch is copied there, and the numbers that change from step
to step (learning rate, seeds, counts) are tensors on the device.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from selfnorm.corpus.batches import Batch

SEEN = 1  # steps of a shape, after which it is worth a graph: the first one compiles kernels and fills caches
MOST = 128  # graphs; shapes beyond run as they are written


class Outcome(NamedTuple):
    """Of one step: the gradient's norm, some hidden vectors, and the state after it; good until the next step."""

    norm: Tensor
    hidden: Tensor  # [n, H]
    state: Any


Work = Callable[[Batch, Any], Outcome]


@dataclass(frozen=True)
class Recorded:
    graph: Any
    batch: Batch
    state: Any
    outcome: Outcome

    def __call__(self, batch: Batch, state: Any) -> Outcome:
        for name in ("inputs", "real", "targets"):
            getattr(self.batch, name).copy_(getattr(batch, name), non_blocking=True)
        for mine, given in zip(tree.tree_leaves(self.state), tree.tree_leaves(state)):
            if isinstance(mine, Tensor):
                mine.copy_(given)
        self.graph.replay()
        return self.outcome


class Steps:
    """Makes steps by `work`; with `record`, those of frequent shapes by graphs."""

    def __init__(
        self,
        work: Work,
        generator: torch.Generator,
        *,
        record: bool,
        groups: int = 1,
        forget: Callable[[], None] = lambda: None,  # drops the gradients that a recording left behind
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.work, self.generator, self.record, self.groups = work, generator, record, groups
        self.forget, self.say = forget, say
        self.seen: Counter[Any] = Counter()
        self.graphs: dict[Any, Recorded] = {}
        self.pool: Any = None  # one memory for all graphs: they never run at the same time

    def __call__(self, batch: Batch, state: Any) -> Outcome:
        if not self.record:
            return self.work(batch, state)
        key = self._shape(batch, state)
        if key not in self.graphs:
            self.seen[key] += 1
            if self.seen[key] <= SEEN or len(self.graphs) >= MOST or not self._recorded(key, batch, state):
                return self.work(batch, state)
        return self.graphs[key](batch, state)

    def _shape(self, batch: Batch, state: Any) -> Any:
        leaves = [tuple(leaf.shape) if isinstance(leaf, Tensor) else leaf for leaf in tree.tree_leaves(state)]
        return tuple(batch.inputs.shape), len(batch.targets), batch.bounds(self.groups), tuple(leaves)

    def _recorded(self, key: Any, batch: Batch, state: Any) -> bool:
        """Record the step, which does not make it; a step that cannot be recorded ends all recording."""
        copy = {name: getattr(batch, name).clone() for name in ("inputs", "real", "targets")}
        fixed = replace(batch, **copy)
        state = tree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, state)
        graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        chances = self.generator, torch.cuda.default_generators[here.device.index]
        spare = [each.clone_state() for each in chances]
        graph.register_generator_state(self.generator)
        self.pool = torch.cuda.graph_pool_handle() if self.pool is None else self.pool
        try:
            # other threads go on with their own work: batches are made ahead in pinned memory
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                outcome = self.work(fixed, state)
        except RuntimeError as error:  # out of memory is one
            torch.cuda.set_stream(here)
            for chance, state_before in zip(chances, spare):
                chance.graphsafe_set_state(state_before)
            self.record, self.graphs, self.pool = False, {}, None
            self.forget()
            self.say(f"steps are not recorded as CUDA graphs: {str(error).splitlines()[0]}; training goes on without")
            return False
        self.graphs[key] = Recorded(graph, fixed, state, outcome)
        return True
