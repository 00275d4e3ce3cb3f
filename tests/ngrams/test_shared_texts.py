"""Agreement with lmplz on real texts, which are not part of the repository."""

import bz2
from itertools import islice
from pathlib import Path

import oracle
import pytest

from selfnorm.corpus.numbered import Numbered
from selfnorm.ngrams.estimate import estimate_arpa
from selfnorm.scorers import NGram

DATA = Path(__file__).parents[2].parent / "shared" / "data"
TEXTS = {
    "ptb": ("ptb/ptb.train.txt.bz2", "ptb/ptb.valid.txt.bz2", None),
    "wikitext-2": ("wikitext-2/wiki.train.tokens.bz2", "wikitext-2/wiki.valid.tokens.bz2", None),
    "podcasts": ("podcasts/train.txt.bz2", "podcasts/valid.txt.bz2", 2_000_000),
}
pytestmark = [
    pytest.mark.skipif(oracle.found() is None, reason=oracle.ABSENT),
    pytest.mark.skipif(not DATA.is_dir(), reason="the shared texts are not beside the repository"),
]


def unpacked(name, to, words=None):
    """Without blank lines, and `<unk>` renamed: lmplz counts the first and refuses the second."""
    seen = 0
    with bz2.open(DATA / name, "rt", encoding="utf-8") as lines, to.open("w", encoding="utf-8") as out:
        for line in lines:
            if line.strip():
                out.write(line.strip().replace("<unk>", "unk_") + "\n")
                seen += len(line.split())
            if words and seen >= words:
                break
    return to


@pytest.mark.parametrize("name", TEXTS)
def test_every_number_and_the_perplexity_agree_with_lmplz(name, tmp_path):
    train, valid, words = TEXTS[name]
    text = unpacked(train, tmp_path / "train.txt", words)
    estimate_arpa(Numbered([text]), tmp_path / "ours.arpa", 4)
    oracle.lmplz(text, tmp_path / "theirs.arpa", 4, memory="2G")
    files = [tmp_path / each for each in ("ours.arpa", "theirs.arpa")]
    arpas = [oracle.read(each.read_text(encoding="utf-8").splitlines()) for each in files]
    assert max(oracle.differences(*arpas)) < 1e-4
    held_out = unpacked(valid, tmp_path / "valid.txt", 50_000).read_text(encoding="utf-8").splitlines()
    sentences = [line.split() for line in islice(held_out, 2000)]
    mean = [NGram.load(each).text(sentences).scores.mean() for each in files]
    assert mean[0] == pytest.approx(mean[1], abs=1e-5)  # 4 digits of the perplexity
