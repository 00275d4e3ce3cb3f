"""Imports are absolute and go down only."""

import ast
from pathlib import Path

import selfnorm

ROOT = Path(selfnorm.__file__).parent

# from top to bottom; a line imports from lines below it, and within its own packages
LAYERS = [
    "cli",
    "demo reproduce",
    "training rescoring",
    "evaluation",
    "scorers",
    "run",
    "checkpoint",
    "loss",
    "functional",
    "criteria models optim distributed",
    "output",
    "corpus samplers lattices ngrams",
    "registry recipe vocabulary noise ops wer report manifest tensorfile",
    "files",
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


def test_only_ops_ask_for_a_device():
    """Which kernel runs is chosen in ops/__init__.py; a few files say why they must know a device's kind."""
    known = {"ops/__init__.py", "models/lstm.py", "functional.py", "training/__init__.py", "corpus/batches.py"}
    asking = {
        str(path.relative_to(ROOT))
        for path in modules()
        if "is_cuda" in path.read_text() or ".device.type" in path.read_text()
    }
    assert asking <= known


def test_files_tell_one_story_in_300_lines():
    for path in modules():
        assert len(path.read_text().splitlines()) <= 300, path
