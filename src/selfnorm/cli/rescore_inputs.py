"""What `selfnorm rescore` is given: places, models, scales; a sentence where they do not fit."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfnorm.cli.options import NO_SCALE, tell

if TYPE_CHECKING:
    from selfnorm.rescoring import Setting
    from selfnorm.rescoring.plan import Row


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
            found[name] = NGram.load(path)
    if old is not None and len(found) == 1:
        raise ValueError("--old-ngram alone replaces nothing; give --model or --ngram too")
    return found


def refusing_exact(asked: Mapping[str, bool]) -> str | None:
    """`exact` keeps one path of a lattice: what needs several would have nothing to choose from."""
    for option, given in asked.items():
        if given:
            return (
                f"--algorithm exact keeps one path of each lattice, and {option} needs all that are good; take "
                "--algorithm push_forward, with --beam inf --hypotheses 0 to follow every history"
            )
    return None


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


def tell_tuned(lattices: list[Path], tuned_on: list[Path]) -> None:
    """Errors where scales were chosen for the fewest errors say little of others."""
    tuned = {path.resolve() for path in tuned_on}
    for path in lattices:
        if tuned & {path.resolve(), path.resolve().parent} or any(each.parent == path.resolve() for each in tuned):
            tell(
                f"{path}: --tune-on names it, too, so its errors are too few; --cross-validate 10 tunes apart from them"
            )
            return


def check_places(given: list[Path], to: Path) -> None:
    """Nothing that was given may be written over."""
    from selfnorm.rescoring.earlier import SCALES
    from selfnorm.rescoring.results import KALDI, LATTICES, LISTS, TEXT, TIMES, TRN

    written = (LISTS, KALDI, LATTICES, SCALES, TEXT, TRN, TIMES)
    if to.exists() and not to.is_dir():
        raise ValueError(f"--to {to}: is a file; give a folder")
    inside = (each for path in given if path.is_dir() for each in path.iterdir() if each.is_symlink())
    for path in (*given, *inside):
        place = path.resolve().parent
        within = (place == to.resolve() and path.resolve().name in written) or place == (to / LATTICES).resolve()
        if path.resolve() == to.resolve() or within:
            raise ValueError(f"--to {to}: {path} lies there and would be written over; give another folder")


class Headers:
    """Tells once what utterances do not say of their scales, and what they say of them differently.

    `tuning`: whether scales are tuned on any utterances, `tuned_on`: whether on these. `refusal`: why lattices cannot
    be taken, only lists.
    """

    def __init__(self, setting: "Setting", tuning: bool, tuned_on: bool, refusal: str | None = None) -> None:
        self.setting, self.tuning, self.tuned_on, self.refusal = setting, tuning, tuned_on, refusal
        self.first: Row | None = None
        self.told: set[str] = set()

    def of(self, items: Iterable[Any]) -> Iterator[Any]:
        from selfnorm.rescoring.plan import Row

        for item in items:
            self.see(Row.of(item))
            yield item

    def see(self, row: "Row") -> None:
        from selfnorm.rescoring.plan import BINARY, LIST, TEXT

        if self.refusal and row.kind != LIST:
            raise ValueError(self.refusal)
        if self.setting.lm_scale is None and row.kind in (TEXT, BINARY):
            if self.tuning:  # a search at another scale goes wrong
                raise ValueError(f"{row.utterance}: {NO_SCALE}, for the search before tuning")
            self._once("kaldi", f"{row.utterance}: {NO_SCALE}; 1 is taken")
        if self.setting.lm_scale is None and row.kind == LIST and row.scored and not self.tuning:
            sentence = "lists do not say the scale of their LM scores; give --lm-scale, for Kaldi's 1/acwt, often 10"
            self._once("lists", f"{row.utterance}: {sentence}; 1 is taken")
        self.first = self.first or row
        if self.tuned_on and self._said(row) != self._said(self.first):
            self._once(
                "headers",
                f"{row.utterance} has other scales than {self.first.utterance} (LM scale {row.scale:g}, not "
                f"{self.first.scale:g}; word penalty {row.penalty:g}, not {self.first.penalty:g}), and tuning begins "
                "with one for all, that of the first; give --lm-scale and --word-penalty, or tune them apart",
            )

    def _said(self, row: "Row") -> tuple[float | None, float | None]:
        """What the header decides."""
        scale = row.scale if self.setting.lm_scale is None else None
        return scale, row.penalty if self.setting.word_penalty is None else None

    def _once(self, about: str, sentence: str) -> None:
        if about not in self.told:
            self.told.add(about)
            tell(sentence)


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
