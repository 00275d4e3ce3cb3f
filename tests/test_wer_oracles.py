"""Agreement with NIST's sclite and with jiwer, on random pairs and on real ones from outside the repository."""

from pathlib import Path

import pytest
import sclite

from selfnorm.lattices.transcripts import read
from selfnorm.wer import Errors, align, count, counts

DATA = Path(__file__).parents[2] / "shared" / "data" / "asr"
PAIRS = {
    "misheard": lambda: sclite.misheard(1000, seed=1),
    "unrelated": lambda: sclite.unrelated(1000, seed=1),
    "few words": lambda: sclite.unrelated(1000, seed=2, vocabulary=4, longest=12),
    "ps-lattices": lambda: real("ps-lattices"),
    "moonshine-nbest": lambda: real("moonshine-nbest"),
}
FIRST_PASS = {"ps-lattices": 41.28, "moonshine-nbest": 20.22}  # WER, as measured when the sets were made


def real(name):
    if not DATA.is_dir():
        pytest.skip("the shared recordings' transcripts are not beside the repository")
    references = read(DATA / name / "refs.txt")
    hypotheses = read(DATA / name / "nbest.jsonl.gz", "hypothesis")
    return [(list(words), list(hypotheses[utterance])) for utterance, words in references.items()]


def shown(pairs):
    """As sclite shows an alignment: upper case where words differ, asterisks where there is none."""
    right = [word == heard for word, heard in pairs]
    return tuple(
        ["*" if each is None else each if same else each.upper() for each, same in zip(side, right)]
        for side in zip(*pairs)
    )


@pytest.mark.skipif(sclite.found() is None, reason=sclite.ABSENT)
@pytest.mark.parametrize("name", PAIRS)
def test_counts_and_alignments_are_sclites(name, tmp_path):
    pairs = PAIRS[name]()
    wanted, alignments = sclite.sclite(pairs, tmp_path)
    for pair, triple, errors, alignment in zip(pairs, wanted, counts(*zip(*pairs)), alignments, strict=True):
        assert errors == count(*pair)
        assert (errors.substitutions, errors.deletions, errors.insertions) == triple, pair
        theirs = tuple(["*" if set(word) == {"*"} else word for word in side] for side in alignment)
        assert (shown(align(*pair)) or ([], [])) == theirs, pair


@pytest.mark.parametrize("name", ["misheard", "ps-lattices", "moonshine-nbest"])
def test_the_rate_is_jiwers(name):
    jiwer = pytest.importorskip("jiwer", reason="jiwer is not installed; it comes with the test extra")
    pairs = [(" ".join(reference), " ".join(hypothesis)) for reference, hypothesis in PAIRS[name]() if reference]
    for reference, hypothesis in pairs:
        assert count(reference.split(), hypothesis.split()).rate == jiwer.wer(reference, hypothesis)
    total = sum((count(reference.split(), hypothesis.split()) for reference, hypothesis in pairs), Errors())
    assert total.rate == pytest.approx(jiwer.wer(*map(list, zip(*pairs))), abs=1e-12)


def test_the_rate_is_above_jiwers_only_where_two_texts_have_little_in_common():
    """Sclite's weights are not Levenshtein's: one more error for three substitutions less."""
    jiwer = pytest.importorskip("jiwer", reason="jiwer is not installed; it comes with the test extra")
    above = []
    for reference, hypothesis in PAIRS["unrelated"]():
        if reference:
            fewest = jiwer.process_words(" ".join(reference), " ".join(hypothesis))
            least = fewest.substitutions + fewest.deletions + fewest.insertions
            errors = count(reference, hypothesis)
            assert least <= errors.total
            if errors.total > least:
                above.append(errors.rate)
    assert 0 < len(above) < 100
    assert min(above) > 0.5


@pytest.mark.parametrize("name", FIRST_PASS)
def test_the_first_pass_has_the_rate_it_was_made_with(name):
    total = sum((count(*pair) for pair in real(name)), Errors())
    assert 100 * total.rate == pytest.approx(FIRST_PASS[name], abs=0.005)
