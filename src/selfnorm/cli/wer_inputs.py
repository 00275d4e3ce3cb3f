"""What `selfnorm wer` compares: transcripts and lattices, brought together by the names of utterances."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from selfnorm import lattices
from selfnorm.cli.options import some, tell
from selfnorm.lattices import transcripts
from selfnorm.lattices.broken import Broken
from selfnorm.lattices.lattice import Lattice
from selfnorm.lattices.nbest import NBest
from selfnorm.lattices.oracle import oracle, oracle_nbest
from selfnorm.wer import Errors, count, lower, only_case

Words = Mapping[str, tuple[str, ...]]  # of each utterance


def read(path: Path, fold: bool) -> Words:
    """The words of each reference, in lower case where case is to be ignored."""
    return _in_case(transcripts.read(path), fold)


def _in_case(words: Words, fold: bool) -> Words:
    return {name: lower(each) for name, each in words.items()} if fold else words


def tell_case(said: Words, heard: Mapping[Path, Words]) -> None:
    """Whoever compares upper case with lower case finds nearly every word wrong, and should know why."""
    for path, words in heard.items():
        if number := sum(only_case(reference, words[name]) for name, reference in said.items()):
            differ = "word differs" if number == 1 else "words differ"
            tell(f"{path}: {number:,} {differ} from the reference only in case; --ignore-case takes them for right")


def match(said: Words, hypotheses: Path, references: Path, allow: bool, fold: bool) -> tuple[Words, int, int]:
    """A hypothesis for each reference, how many were missing, and how many had no reference and are left out."""
    words = transcripts.read(hypotheses, "hypothesis", said, transcripts.ignored(references))
    heard = _in_case(words, fold)
    unheard = [name for name in said if name not in heard]
    unknown = [name for name in heard if name not in said]
    if len(unheard) == len(said):
        raise ValueError(
            f"{hypotheses}: has {some(unknown)} where {references} has {some(unheard)}, and no utterance in common "
            "with it; give both the same names"
        )
    if unheard and not allow:
        raise ValueError(
            f"{hypotheses}: {len(unheard):,} of the {len(said):,} utterances in {references} are missing: "
            f"{some(unheard)}; add them, or count their words as deletions with --allow-missing"
        )
    if unknown and not allow:
        raise ValueError(
            f"{hypotheses}: {len(unknown):,} utterances have no reference in {references}: {some(unknown)}; "
            "add one for each, or leave them out with --allow-missing"
        )
    if unheard:
        tell(f"{hypotheses}: {len(unheard):,} utterances are missing; their words count as deletions")
    if unknown:
        tell(f"{hypotheses}: {len(unknown):,} utterances have no reference; they are left out")
    return {name: heard.get(name, ()) for name in said}, len(unheard), len(unknown)


def speakers_of(said: Words, path: Path) -> Mapping[str, str]:
    """Kaldi's utt2spk reads like a text: an utterance and one word."""
    found = transcripts.read(path)
    for name in said:
        if len(found.get(name, ())) != 1:
            raise ValueError(
                f"{path}: utterance {name} has {len(found.get(name, ()))} speakers; give each utterance one, "
                "on a line of its own"
            )
    return {name: found[name][0] for name in said}


def nearest_of(
    said: Words, paths: list[Path], words: Path | None, references: Path, allow: bool, fold: bool
) -> tuple[Mapping[str, Errors], int]:
    """The fewest errors in each utterance's lattice or list, and how many of these were broken."""
    found: dict[str, Errors] = {}
    broken = 0
    for each in lattices.read(paths, words=words):
        if isinstance(each, Broken):
            tell(each.sentence)
            broken += 1
        elif each.utterance in said:
            found[each.utterance] = _least(_folded(each) if fold else each, said[each.utterance])
    absent = [name for name in said if name not in found]
    if absent and not allow and not broken:
        raise ValueError(
            f"{paths[0]}: {len(absent):,} of the {len(said):,} utterances in {references} have no lattice: "
            f"{some(absent)}; add them, or count their words as deletions with --allow-missing"
        )
    if absent:
        tell(f"{paths[0]}: {len(absent):,} utterances have no lattice; in the oracle their words count as deletions")
    return {name: found.get(name) or count(reference, ()) for name, reference in said.items()}, broken


def _folded(each: Lattice | NBest) -> Lattice | NBest:
    if isinstance(each, Lattice):
        return replace(each, words=lower(each.words))
    return replace(each, hypotheses=tuple(replace(one, words=lower(one.words)) for one in each.hypotheses))


def _least(each: Lattice | NBest, reference: Sequence[str]) -> Errors:
    return oracle_nbest(each, reference) if isinstance(each, NBest) else oracle(each, reference).errors
