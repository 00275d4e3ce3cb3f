"""What `selfnorm rescore` is given: places, models, scales; a sentence where they do not fit."""

from collections.abc import Callable, Iterator, Mapping
from math import isfinite, log
from pathlib import Path
from typing import Any

from selfnorm.cli.options import tell

WRITTEN = {
    "nbest.jsonl.gz",
    "lat.1.gz",
    "lattices",
    "scales.json",
    *(f"hypotheses.{kind}" for kind in ("txt", "trn", "ctm")),
}


def unknown_words(policy: str) -> tuple[float, bool]:
    """The penalty of unknown words, and whether they keep the lattice's score."""
    try:
        if policy == "keep":
            return 0.0, True
        if policy.startswith("share="):
            return -log(int(policy.removeprefix("share="))), False
        if not isfinite(float(policy)):
            raise ValueError
        return float(policy), False
    except ValueError:
        raise ValueError(
            f"--unknown {policy!r}: give keep, share=N (N words share the score of <unk>) or a penalty such as -5"
        ) from None


def load_scorers(
    model: Path | None, ngram: Path | None, old: Path | None, normalize: bool, device: str | None
) -> dict[str, Any]:
    from selfnorm.rescoring import NEURAL, NGRAM, OLD
    from selfnorm.scorers import Neural, NGram

    found: dict[str, Any] = {}
    if model is not None:
        if not model.is_dir():
            raise ValueError(f"{model}: there is no such folder; give a run that `selfnorm train` wrote")
        try:
            found[NEURAL] = Neural.load(model, device)
        except (AssertionError, RuntimeError) as error:
            if device is None:
                raise
            raise ValueError(f"--device {device}: cannot be used here ({str(error).splitlines()[0]})") from None
        if normalize:
            found[NEURAL].normalized()
    for name, path in ((NGRAM, ngram), (OLD, old)):
        if path is not None:
            if not path.is_file():
                raise ValueError(f"{path}: there is no such file; give an n-gram model in ARPA format")
            found[name] = NGram.load(path)
    if old is not None and len(found) == 1:
        raise ValueError("--old-ngram alone replaces nothing; give --model or --ngram too")
    return found


def check_exact(asked: Mapping[str, bool]) -> None:
    """`exact` keeps one path of a lattice: what needs several would have nothing to choose from."""
    for option, given in asked.items():
        if given:
            raise ValueError(
                f"--algorithm exact keeps one path of each lattice, and {option} needs all that are good; take "
                "--algorithm push_forward, with --beam inf --hypotheses 0 to follow every history"
            )


def check_scales(
    lm_scale: float | None,
    word_penalty: float | None,
    weight: float | None,
    ngram_weight: float | None,
    unknown: str | None,
) -> None:
    """What a scales.json says cannot be said beside it; that unknown words keep their scores is not in it."""
    own = {"--lm-scale": lm_scale, "--word-penalty": word_penalty, "--weight": weight, "--ngram-weight": ngram_weight}
    for option, given in {**own, "--unknown": None if unknown == "keep" else unknown}.items():
        if given is not None:
            raise ValueError(f"--scales and {option} say the same thing; give one of them")


def check_file(option: str, path: Path | None) -> None:
    if path is not None and path.is_dir():
        raise ValueError(f"--{option} {path}: is a folder; give a file")


def check_places(lattices: list[Path], to: Path) -> None:
    """Nothing that was given may be written over."""
    if to.exists() and not to.is_dir():
        raise ValueError(f"--to {to}: is a file; give a folder")
    for path in lattices:
        place = path.resolve().parent
        inside = (place == to.resolve() and path.name in WRITTEN) or place == (to / "lattices").resolve()
        if path.resolve() == to.resolve() or inside:
            raise ValueError(f"--to {to}: {path} lies there and would be written over; give another folder")


def with_a_scale(items: Iterator[Any], tuning: bool) -> Iterator[Any]:
    told = False
    for item in items:
        if "kind" in getattr(item, "header", ()) and not told:
            told = True
            without_a_scale(item.utterance, tuning)
        yield item


def without_a_scale(utterance: str, tuning: bool) -> None:
    """Kaldi's lattices do not say at which LM scale they were made, and a search at another one goes wrong."""
    sentence = f"{utterance}: Kaldi's lattices do not say their LM scale; give --lm-scale, 1/acwt, often 10"
    if tuning:
        raise ValueError(f"{sentence}, for the search before tuning")
    tell(f"{sentence}; 1 is taken")


def speaker_of(path: Path | None) -> Callable[[str], str]:
    from selfnorm.lattices import transcripts
    from selfnorm.lattices.transcripts import set_of

    if path is None:
        return set_of
    known = transcripts.read(path)

    def speaker(utterance: str) -> str:
        if len(known.get(utterance, ())) != 1:
            raise ValueError(f"{path}: utterance {utterance} has no speaker there; give each utterance one")
        return known[utterance][0]

    return speaker
