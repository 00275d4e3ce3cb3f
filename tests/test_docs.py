"""The pages cannot rot: their Python runs, what they quote is in the source, what they name exists.

A comment on the line before a block says what the block is:

    <!-- no-run -->                      Python that is only shown
    <!-- source: PATH -->                lines as they stand in that file
    <!-- file: PATH -->                  a new file; runs, too
    <!-- insert before NAME: PATH -->    new lines of that file; runs, too
    <!-- diff: PATH -->                  a change of that file, without line numbers
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

import pytest
import torch

from selfnorm.criteria import CRITERIA
from selfnorm.noise import NOISES
from selfnorm.samplers import SAMPLERS

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, ROOT / "README.md"]
MARK = re.compile(r"<!-- (no-run|source|file|insert before \w+|diff)(?:: (\S+))? -->")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # where the text starts, from 1
    mark: str = ""
    path: str = ""


def name_of(page):
    return str(page.relative_to(ROOT))


def read(page):
    """The fenced blocks of a page, and its prose without them."""
    blocks, prose, inside, mark = [], [], None, ("", "")
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if inside is not None and line.strip() == "```":
            language, start, lines = inside
            blocks.append(Block(language, dedent("\n".join(lines)) + "\n", start, *mark))
            inside, mark = None, ("", "")
        elif inside is not None:
            inside[2].append(line)
        elif line.lstrip().startswith("```"):
            inside = (line.strip().strip("`").strip(), number + 1, [])
        else:
            found = MARK.fullmatch(line.strip())
            if found or line.strip():
                mark = (found[1], found[2] or "") if found else ("", "")
            prose.append(line)
    assert inside is None, f"{page}: a block is not closed"
    return blocks, "\n".join(prose)


def blocks_of(page, *marks):
    return [block for block in read(page)[0] if block.mark.split(" before ")[0] in marks]


@pytest.fixture
def registries():
    """What a page adds to a dict is gone after it."""
    kept = [(table, dict(table)) for table in (CRITERIA, SAMPLERS, NOISES)]
    yield
    for table, before in kept:
        table.clear()
        table.update(before)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_of_the_page_runs(page, registries, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks_of(page, "", "file", "insert"):
            if block.language == "python":
                code = "\n" * (block.line - 1) + block.text  # an error names the line of the page
                exec(compile(code, str(page), "exec"), names)


QUOTED = [
    pytest.param(page, block, id=f"{page.name}:{block.line}") for page in DOCS for block in blocks_of(page, "source")
]


@pytest.mark.parametrize(("page", "block"), QUOTED)
def test_quoted_lines_are_in_the_source(page, block):
    source = (ROOT / block.path).read_text()
    assert any(indent(block.text, " " * depth) in source for depth in (0, 4, 8)), f"not in {block.path}:\n{block.text}"


def rows_of(page, first):
    """The rows of the table whose first column has this name: the code name in it, and the row's other cells."""
    lines = iter(read(page)[1].splitlines())
    for line in lines:
        if line.startswith(f"| {first} |"):
            break
    heads = [cell.strip() for cell in line.strip("|").split("|")]
    next(lines)
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            return rows
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[re.search(r"`(\w+)`", cells[0])[1]] = dict(zip(heads, cells))
    return rows


def test_tables_say_what_the_code_says():
    page = ROOT / "docs" / "criteria.md"
    rows = rows_of(page, "criterion")
    assert list(rows) == list(CRITERIA)
    for name, criterion in CRITERIA.items():
        assert rows[name]["link"] == f"`{criterion.link}`", name
        assert rows[name]["self-normalized"] == ("no" if criterion.needs_log_z else "yes"), name
        assert rows[name]["sums over"] == ("K samples" if criterion.sampled else "C words"), name
        assert (rows[name]["sampler"] == "none") == (not criterion.sampled), name
        assert ("any" not in rows[name]["sampler"]) == (
            criterion.uses_expected_target or not criterion.sampled or name == "mode2"
        ), name
    assert set(rows_of(page, "sampler")) == set(SAMPLERS)
    assert set(rows_of(page, "noise")) == set(NOISES)
    sections = re.findall(r"^### `(\w+)`$", read(page)[1], re.MULTILINE)
    assert sections == list(CRITERIA)
    assert len(blocks_of(page, "source")) == len(CRITERIA)


def anchors(page):
    heads = re.findall(r"^#+ (.*)$", read(page)[1], re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", read(page)[1]):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name}: {target}"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_that_are_named_exist(page):
    known = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }
    known |= {path.stem for path in (ROOT / "tests").rglob("*.py")}
    assert set(re.findall(r"\btest_\w+", read(page)[1])) <= known


def apply(block, tree):
    path = tree / block.path
    if block.mark == "file":
        assert not path.exists(), f"{block.path} is there already; extend.md needs another example"
        path.write_text(block.text)
        return
    text = path.read_text()
    if block.mark == "diff":
        lines = block.text.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
    else:
        old = block.mark.removeprefix("insert before ")
        new = f"{block.text}\n\n{old}"
        old, new = f"\n{old}", f"\n{new}"
    assert text.count(old) == 1, f"extend.md:{block.line}: {block.path} has this {text.count(old)} times:\n{old}"
    path.write_text(text.replace(old, new))


CHECKS = ["tests/criteria", "tests/samplers", "tests/test_noise.py", "tests/test_loss.py"]
# every case of the new three, and the test that compares all samplers
CHOSEN = "even or stratified or Zipf or smallest_variance"


def test_what_extend_adds_passes_the_tests_of_the_package(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").mkdir()
    for check in CHECKS:
        copy = shutil.copytree if (ROOT / check).is_dir() else shutil.copy
        copy(ROOT / check, tmp_path / check)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    changes = blocks_of(ROOT / "docs" / "extend.md", "file", "insert", "diff")
    for block in changes:
        apply(block, tmp_path)

    def run(*command):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    changed = sorted({block.path for block in changes if block.path.startswith("src")})
    run("ruff", "check", *changed)
    run("ruff", "format", "--check", *changed)
    report = run("pytest", *CHECKS, "-vv", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", CHOSEN)
    for must in (
        r"test_optimum_is_the_posterior\[even",
        r"test_every_word_once_is_the_full_sum\[even",
        r"test_optimum_is_the_posterior_in_expectation_over_all_draws\[even",
        r"test_value_and_gradients_are_those_of_the_definition\[\S*even",
        r"test_counted_frequency_is_the_expected_count\[stratified",
        r"test_sums_over_samples_are_unbiased\[stratified",
        r"test_members_tell_one_story\[Zipf",
    ):
        assert re.search(must + r".*PASSED", report), must


def test_labels_that_are_no_words_are_all_named():
    from selfnorm.lattices.htk_fields import NO_WORDS
    from selfnorm.vocabulary import END

    (row,) = re.findall(r"^\| HTK SLF \| (`!NULL`.*?) \| (.*?) \|$", (ROOT / "docs" / "rescoring.md").read_text(), re.M)
    silent, end = ({*re.findall(r"`([^`]+)`", cell)} for cell in row)
    assert silent == {label for label, word in NO_WORDS.items() if label and word != END}
    assert end == {label for label, word in NO_WORDS.items() if word == END}
