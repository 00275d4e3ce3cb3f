"""Tensors of every kind come back bit for bit, by our reader and by the library's."""

import pickle

import pytest
import torch
from faults import Evil
from safetensors.torch import load_file, save_file

from selfnorm.files import atomic, silent
from selfnorm.tensorfile import DTYPES, read_tensors, write_tensors


def write(path, tensors):
    with atomic(path) as file:
        write_tensors(file.write, tensors, silent)


def same(left, right):
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)


def kinds():
    base = torch.arange(-30.0, 30.0).reshape(5, 12)
    yield from ((str(dtype), base.to(dtype)) for dtype in DTYPES)
    yield "no dimension", torch.tensor(3.5)
    yield "empty", torch.empty(0)
    yield "empty matrix", torch.empty(3, 0, dtype=torch.bfloat16)
    yield "transposed", base.T
    yield "strided", base[::2, ::3]
    yield "strided vector", base[0, ::2]
    yield "expanded", base[:1].expand(4, 12)
    yield "with gradient", torch.nn.Parameter(base)
    yield "generator", torch.Generator().manual_seed(3).get_state()
    yield "infinite", torch.tensor([float("inf"), float("-inf")])
    yield "larger than a block", torch.arange(300_000)


def test_every_kind_comes_back(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = {name: tensor.clone() if "torch" in name else tensor for name, tensor in kinds()}
    write(path, tensors)
    for read in (read_tensors, load_file):
        again = read(path)
        assert again.keys() == tensors.keys()
        assert all(same(again[name], tensors[name]) for name in tensors)


def test_changing_a_tensor_leaves_its_file_alone(tmp_path):
    path = tmp_path / "x.safetensors"
    write(path, {"weight": torch.ones(3)})
    read_tensors(path)["weight"].zero_()
    assert same(read_tensors(path)["weight"], torch.ones(3))


def test_no_tensor_at_all(tmp_path):
    write(tmp_path / "x.safetensors", {})
    assert read_tensors(tmp_path / "x.safetensors") == {}


def test_files_of_the_library_are_read(tmp_path):
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in kinds()}
    save_file(tensors, tmp_path / "x.safetensors")
    again = read_tensors(tmp_path / "x.safetensors")
    assert all(same(again[name], tensors[name]) for name in tensors)


def test_tied_tensors_are_written_once_and_tied_again(tmp_path):
    path = tmp_path / "x.safetensors"
    weight = torch.randn(100, 100)
    write(path, {"output": weight, "embedding": weight, "upper": weight[:50], "turned": weight.T})
    again = read_tensors(path)
    assert again["output"].data_ptr() == again["embedding"].data_ptr()
    assert same(again["upper"], weight[:50])  # shares memory, but is another tensor
    assert same(again["turned"], weight.T)
    assert path.stat().st_size < 2.6 * weight.numel() * 4


def test_a_generator_goes_on_where_it_was(tmp_path):
    generator = torch.Generator().manual_seed(1)
    torch.rand(5, generator=generator)
    write(tmp_path / "x.safetensors", {"generator": generator.get_state()})
    expected = torch.rand(5, generator=generator)
    generator.set_state(read_tensors(tmp_path / "x.safetensors")["generator"])
    assert same(torch.rand(5, generator=generator), expected)


@pytest.mark.parametrize(
    ("tensor", "sentence"),
    [
        (torch.eye(2).to_sparse(), "cannot be saved"),
        (torch.empty(2, device="meta"), "cannot be saved"),
        (torch.zeros(2, dtype=torch.complex64), "cannot be saved"),
        (torch.tensor([1.0, float("nan")]), "holds NaN"),
    ],
)
def test_what_cannot_be_saved_is_a_sentence(tmp_path, tensor, sentence):
    with pytest.raises(ValueError, match=f"'weight'.* {sentence}"):
        write(tmp_path / "x.safetensors", {"weight": tensor})
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_none_are_refused_and_run_nothing(tmp_path):
    path, sentinel = tmp_path / "x.safetensors", tmp_path / "sentinel"
    torch.save({"weight": Evil(sentinel)}, tmp_path / "x.pt")
    hostile = [
        pickle.dumps(Evil(sentinel)),
        (tmp_path / "x.pt").read_bytes(),
        b"",
        b"{}",
        (1 << 62).to_bytes(8, "little") + b"{}",
        (200_000).to_bytes(8, "little") + b"[" * 200_000,
        tied_to_nothing(),
    ]
    for content in hostile:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.safetensors: .*nothing was read"):
            read_tensors(path)
    assert not sentinel.exists()


def tied_to_nothing():
    header = b'{"__metadata__":{"embedding":"output"}}'
    return len(header).to_bytes(8, "little") + header
