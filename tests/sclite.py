"""NIST's sclite (Debian package `sctk`, which puts it beside the PATH), and pairs to count with it."""

import random
import re
import shutil
import subprocess
from pathlib import Path

from selfnorm.lattices.transcripts import write_trn

ABSENT = "sclite is not installed; on Debian: apt-get install sctk"
SYLLABLES = ["ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "wo", "zu"]


def found():
    beside = Path("/usr/lib/sctk/bin/sclite")
    return shutil.which("sclite") or (str(beside) if beside.is_file() else None)


def sclite(pairs, folder):
    """Substitutions, deletions and insertions of each pair, and its alignment: words, upper case where wrong."""
    names = [f"s_{number:05d}" for number in range(len(pairs))]
    for side, name in enumerate(("references", "hypotheses")):
        write_trn(folder / f"{name}.trn", {each: pair[side] for each, pair in zip(names, pairs)})
    files = [folder / f"{name}.trn" for name in ("references", "hypotheses")]
    command = [found(), "-r", files[0], "trn", "-h", files[1], "trn", "-i", "rm", "-o", "pra", "stdout"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counts, alignments = {}, {}
    for block in said.split("\nid: (")[1:]:
        name = block[: block.index(")")]
        counts[name] = tuple(map(int, re.search(r"#I\) \d+ (\d+) (\d+) (\d+)", block).groups()))
        lines = [re.findall(rf"^>* ?{side}: (.*)$", block, re.MULTILINE) for side in ("REF", "HYP")]
        alignments[name] = tuple(" ".join(parts).split() for parts in lines)
    return [counts[name] for name in names], [alignments[name] for name in names]


def misheard(number, seed, vocabulary=200, longest=30):
    """References with words changed, left out and put in, from none to most of them: what a recogniser does."""
    generator = random.Random(seed)
    words = [first + second for first in SYLLABLES for second in SYLLABLES][:vocabulary]
    pairs = []
    for _ in range(number):
        reference = generator.choices(words, k=generator.randint(0, longest))
        share, hypothesis = 0.6 * generator.random(), []
        for word in reference:
            chance = generator.random() / share
            if chance < 0.2:
                continue
            hypothesis.append(generator.choice(words) if chance < 0.7 else word)
            if 0.7 < chance < 1:
                hypothesis.append(generator.choice(words))
        pairs.append((reference, hypothesis))
    return pairs


def unrelated(number, seed, vocabulary=20, longest=30):
    """Two texts that have nothing to do with each other: many alignments of the same weight."""
    generator = random.Random(seed)
    return [
        tuple(generator.choices(SYLLABLES[:vocabulary], k=generator.randint(0, longest)) for _ in range(2))
        for _ in range(number)
    ]
