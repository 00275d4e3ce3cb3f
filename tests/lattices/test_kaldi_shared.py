"""The real lattices, in Kaldi's form and in HTK's; they are not part of the repository."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from selfnorm.lattices import htk, kaldi
from selfnorm.lattices.lattice import SILENT, Scales
from selfnorm.lattices.paths import best
from selfnorm.vocabulary import END

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "asr" / "ps-lattices"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the shared lattices are not beside the repository")


@pytest.fixture(scope="module")
def lattices():
    return list(kaldi.read(DATA / "kaldi" / "lat.txt.gz", words=DATA / "kaldi" / "words.txt"))


def links(utterance):
    """The links of the SLF file, parsed by one expression: source, target, word, acoustic, lm."""
    text = gzip.decompress((DATA / "slf" / f"{utterance}.slf.gz").read_bytes()).decode()
    found = re.findall(r"^J=\S+\s+S=(\S+)\s+E=(\S+)\s+W=(\S+).*?\sa=(\S+)\s+l=(\S+)", text, re.MULTILINE)
    nothing = ("!NULL", "!SENT_START", "!SENT_END")
    return [(int(s), int(e), SILENT if w in nothing else w, float(a), float(l)) for s, e, w, a, l in found]  # noqa: E741


def test_every_utterance_is_read_and_has_the_arcs_of_its_slf_file(lattices):
    assert len(lattices) == 166
    assert sum(lattice.arcs for lattice in lattices) == 599_039
    for lattice in lattices[::10]:
        rows = zip(lattice.sources, lattice.targets, lattice.words, lattice.acoustic, lattice.lm)
        assert sorted(rows) == sorted(links(lattice.utterance))
        assert lattice.notes == ()


def test_the_best_path_is_that_of_the_slf_form(lattices):
    for lattice in lattices[::10]:
        slf = htk.read(DATA / "slf" / f"{lattice.utterance}.slf.gz")
        scales = Scales(lm=slf.scales.lm, penalty=slf.scales.penalty)
        totals = [each.total(scales) for each in (lattice, slf)]
        paths = [best(each, total) for each, total in zip((lattice, slf), totals)]
        scores = [total[list(path.arcs)].sum() for path, total in zip(paths, totals)]
        np.testing.assert_allclose(*scores)
        said = [[each.words[arc] for arc in path.arcs] for each, path in zip((lattice, slf), paths)]
        assert [word for word in said[0] if word] == [word for word in said[1] if word not in (SILENT, END)]


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_they_are_written_and_read_again(lattices, binary, tmp_path):
    words = DATA / "kaldi" / "words.txt"
    with kaldi.writer(tmp_path / "lat.1.gz", words, binary=binary) as write:
        for lattice in lattices[::10]:
            write(lattice)
    kind = np.float32 if binary else np.float64
    for one, other in zip(lattices[::10], kaldi.read(tmp_path / "lat.1.gz", words=words), strict=True):
        assert (one.utterance, one.words) == (other.utterance, other.words)
        np.testing.assert_array_equal(one.targets, other.targets)
        np.testing.assert_array_equal(one.lm.astype(kind), other.lm)
        np.testing.assert_array_equal(one.acoustic.astype(kind), other.acoustic)
