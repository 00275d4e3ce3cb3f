"""Imports are absolute and go down only."""

import ast
import re
from pathlib import Path

import selfnorm

ROOT = Path(selfnorm.__file__).parent

# from top to bottom; a line imports from lines below it, and within its own packages
LAYERS = [
    "__main__",
    "cli",
    "bench demo reproduce",
    "training rescoring",
    "evaluation",
    "scorers",
    "run",
    "checkpoint",
    "loss",
    "functional",
    "criteria models optim distributed",
    "output",
    "corpus samplers lattices ngrams bootstrap",
    "registry recipe vocabulary noise ops wer report manifest tensorfile claims",
    "files fields",
    "bzip2 cores",
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}


def modules():
    return [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]


def package_of(path):
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "selfnorm":
                yield from (alias.name for alias in node.names)
            elif (node.module or "").startswith("selfnorm."):
                yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("selfnorm."))


def test_every_module_has_a_layer():
    assert {package_of(path) for path in modules()} <= set(LEVEL)


def test_imports_go_down_only():
    for path in modules():
        here = package_of(path)
        for there in imported(path):
            if there == "__version__":
                continue
            assert there == here or LEVEL[there] > LEVEL[here], f"{path.relative_to(ROOT)} imports {there}"


ASKING = {  # who must know a device's kind, and why
    "bench/machine.py": "measures time and memory as each kind of device allows",
    "bench/peers.py": "names autocast its device",
    "corpus/ahead.py": "pins memory and chooses the thread's GPU",
    "distributed/layers.py": "names PyTorch's mesh its device",
    "distributed/world.py": "gives each process its GPU, and NCCL to those that have one",
    "functional.py": "checks ids without a host sync on a GPU",
    "models/lstm.py": "runs cuDNN in autocast's dtype",
    "models/transformer.py": "keeps its sum in autocast's dtype",
    "ops/fused.py": "asks whether autocast is on for the device",
    "ops/own.py": "turns autocast off for the device",
    "ops/plain.py": "asks whether autocast is on for the device",
    "ops/rows.py": "writes out as many rows at a time as a CPU keeps in its cache",
    "optim/__init__.py": "lets the fused optimizers skip a bad step on the GPU",
    "reproduce/make.py": "hands back the memory that a finished stage had cached",
    "scorers/neural.py": "takes a GPU when there is one",
    "training/settings.py": "takes a GPU when there is one, and bfloat16 only there",
    "training/state.py": "saves the GPU's generator",
    "training/steps.py": "records steps as CUDA graphs",
    "training/trainer.py": "reports the GPU's memory, names autocast its device",
}


def test_few_files_ask_for_a_device():
    """Which kernel runs is chosen in ops/__init__.py; every other file that asks stands in the list with its reason."""
    asks = re.compile(r"is_cuda|device\.type|place\.type|torch\.cuda|\"cuda\"")
    asking = {str(path.relative_to(ROOT)) for path in modules() if asks.search(path.read_text())}
    assert asking - {"ops/__init__.py"} == ASKING.keys()


def test_files_tell_one_story_in_300_lines():
    for path in modules():
        assert len(path.read_text().splitlines()) <= 300, path
