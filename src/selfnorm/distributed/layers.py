"""Layers whose weights are spread over the ranks (PyTorch's FSDP2): for models that do not fit into one GPU."""

import warnings
from collections.abc import Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from selfnorm.distributed.world import World


def spread_layers(
    world: World, model: nn.Module, layers: Sequence[nn.Module], device: torch.device
) -> list[nn.Parameter]:
    """Each rank keeps its part of every weight of `layers`; they are whole only while they work. Returns the parts."""
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)  # nobody writes to it
    mesh = init_device_mesh(device.type, (world.size,))
    inside = {id(each) for layer in layers for each in layer.parameters()}
    others = {each for each in model.parameters() if id(each) not in inside}
    for module in (*layers, model):  # the model last: it fetches a layer ahead of its turn
        fully_shard(module, mesh=mesh, ignored_params=others)
        assert isinstance(module, FSDPModule)
        module.set_force_sum_reduction_for_comms(True)  # losses are summed, not averaged: see exchange.py
        module.set_gradient_divide_factor(1.0)
    register_fsdp_forward_method(model, "advance")
    return [each for each in model.parameters() if each not in others]
