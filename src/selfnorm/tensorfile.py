"""Named tensors in one safetensors file: streamed out, read back, never a pickle.

The format is eight bytes (the header's length), a JSON header and the plain bytes of the tensors. It is written here
and not by the library, because that one leaves a stub under the final name when the disk is full, refuses tied tensors,
and needs all tensors on the CPU at once.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from selfnorm.files import BLOCK, Hook, Write

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
ALIGN = 8  # the tensors start at a multiple of this, so that a reader may map them


def write_tensors(write: Write, tensors: Mapping[str, Tensor], hook: Hook) -> None:
    """Hand the file to `write` piece by piece; the hook is told of every piece."""
    for name, tensor in tensors.items():
        _check(name, tensor)
    tied = _tied(tensors)
    # Wide types first keep every tensor aligned to its own width.
    names = sorted(tensors.keys() - tied.keys(), key=lambda name: (-tensors[name].element_size(), name))
    write(_header({name: tensors[name] for name in names}, tied))
    for name in names:
        for piece in _pieces(tensors[name]):
            write(piece)
            hook(f"writing {name}")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name; those that were one tensor when written are one again."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            tied = file.metadata() or {}
    except (SafetensorError, RuntimeError) as error:  # PyTorch's own when it cannot map the file
        raise ValueError(f"{path}: not a whole safetensors file ({error}); nothing was read from it") from error
    for name, first in tied.items():
        if first not in tensors or name in tensors:
            raise ValueError(
                f"{path}: {name!r} is said to be tied to {first!r}, which cannot be; nothing was read from it"
            )
    return tensors | {name: tensors[first] for name, first in tied.items()}


def _check(name: str, tensor: Tensor) -> None:
    if tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in DTYPES:
        kind = f"{tensor.layout} {tensor.dtype} on {tensor.device}"
        raise ValueError(
            f"tensor {name!r} ({kind}) cannot be saved; save dense tensors of {', '.join(DTYPES.values())}"
        )
    # The sum is NaN if any value is, or if it meets both infinities: one pass without a copy, then a closer look.
    if tensor.is_floating_point() and tensor.sum().isnan() and tensor.isnan().any():
        raise ValueError(f"tensor {name!r} holds NaN and is not saved; go on from the last checkpoint")


def _tied(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """name -> the earlier name of the very same memory, which is written once."""
    first: dict[tuple, str] = {}
    tied = {}
    for name, tensor in tensors.items():
        if tensor.numel():  # empty tensors have no memory to share
            place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
            if first.setdefault(place, name) != name:
                tied[name] = first[place]
    return tied


def _header(tensors: Mapping[str, Tensor], tied: Mapping[str, str]) -> bytes:
    fields: dict[str, object] = {"__metadata__": tied} if tied else {}
    start = 0
    for name, tensor in tensors.items():
        end = start + tensor.numel() * tensor.element_size()
        fields[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGN)
    return len(text).to_bytes(8, "little") + text


def _pieces(tensor: Tensor) -> Iterator[memoryview]:
    # One tensor at a time leaves the GPU, so a checkpoint needs no second copy of the model.
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    for start in range(0, len(flat), BLOCK):
        yield flat[start : start + BLOCK]
