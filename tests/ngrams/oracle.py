"""KenLM's lmplz, which our estimates must agree with: built from KenLM's own source package, outside the repository.

    pip download kenlm==0.3.0 --no-deps --no-binary kenlm
    python tests/ngrams/oracle.py kenlm-0.3.0.tar.gz    # builds it (about two minutes) and prints where it is

It needs a C++ compiler, CMake and Boost; on Debian, as root:

    apt-get install g++ cmake zlib1g-dev libboost-program-options-dev libboost-thread-dev libboost-system-dev \
        libboost-test-dev

Tests use it where it has been built and are skipped elsewhere: they never build it themselves.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

VERSION = "0.3.0"
SHA256 = "c4628bb9fb63c8a6f9240035b8b037385cfc404cb72e933cf48878291edac1e8"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "selfnorm-oracle"
LMPLZ = CACHE / f"kenlm-{VERSION}" / "lmplz"
ABSENT = f"{LMPLZ} is absent; build it as tests/ngrams/oracle.py says"

Gram = tuple[str, ...]
Arpa = list[dict[Gram, tuple[float, float]]]  # for each order: words -> log10 probability and back-off


def found() -> Path | None:
    return LMPLZ if LMPLZ.is_file() else None


def build(package: Path) -> Path:
    """Check and compile KenLM's source package; the program appears whole or not at all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if hashlib.sha256(package.read_bytes()).hexdigest() != SHA256:
            raise SystemExit(f"{package}: not the file this script was written for; its SHA-256 is wrong")
        with tarfile.open(package) as packed:
            packed.extractall(folder, filter="data")
        made = folder / "build"
        source = folder / f"kenlm-{VERSION}"
        subprocess.run(["cmake", "-S", source, "-B", made, "-DCMAKE_BUILD_TYPE=Release"], check=True)
        subprocess.run(["cmake", "--build", made, "--target", "lmplz", "-j", "2"], check=True)
        LMPLZ.parent.mkdir(parents=True, exist_ok=True)
        half = LMPLZ.with_suffix(".new")
        shutil.copy2(made / "bin" / "lmplz", half)
        os.replace(half, LMPLZ)
    return LMPLZ


def lmplz(text: Path, to: Path, order: int, *options: str, memory: str = "500M") -> None:
    """Run it. A blank line is an empty sentence for it, and it skips no other."""
    command = [LMPLZ, "-o", order, "--text", text, "--arpa", to, "-S", memory, "-T", to.parent, "--discount_fallback"]
    subprocess.run([*map(str, command), *options], check=True, capture_output=True)


def read(lines: Sequence[str]) -> Arpa:
    """An ARPA file by the book, slowly: the judge of our writer shares no code with our reader."""
    arpa: Arpa = []
    for line in lines:
        if re.fullmatch(r"\\\d+-grams:", line):
            arpa.append({})
        elif arpa and line and line != "\\end\\":
            probability, words, *back_off = line.split("\t")
            arpa[-1][tuple(words.split(" "))] = (float(probability), float(back_off[0]) if back_off else 0.0)
    return arpa


def header(lines: Sequence[str]) -> list[int]:
    return [int(line.split("=")[1]) for line in lines if line.startswith("ngram ")]


def differences(ours: Arpa, theirs: Arpa) -> list[float]:
    """For each order the largest difference of any number; infinite where the n-grams are not the same."""
    return [
        max((abs(a - b) for gram in mine for a, b in zip(mine[gram], other[gram])), default=0.0)
        if mine.keys() == other.keys()
        else float("inf")
        for mine, other in zip(ours, theirs, strict=True)
    ]


if __name__ == "__main__":
    if not found() and len(sys.argv) != 2:
        sys.exit("give KenLM's source package: python tests/ngrams/oracle.py kenlm-0.3.0.tar.gz")
    print(found() or build(Path(sys.argv[1])))
