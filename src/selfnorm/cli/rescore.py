"""`selfnorm rescore`: lattices and n-best lists, a second time, with a better language model."""

from collections.abc import Iterator
from contextlib import nullcontext
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from selfnorm.cli.options import Debug, Json, print_json, tell
from selfnorm.cli.rescore_inputs import (
    Headers,
    check_places,
    check_scales,
    load_scorers,
    refusing_exact,
    speaker_of,
    tell_tuned,
    unknown_words,
)
from selfnorm.cli.rescore_tables import counting, errors, fields, show
from selfnorm.cli.sharing import NoWait, Shared, check, given_alike, not_waiting
from selfnorm.files import locked

MANY = 0.5  # share of unknown words that is worth a warning


def option(panel: str, help: str, *names: str, **more: Any) -> Any:
    """An option in a panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


INPUT, MODELS, SCALES, TUNING, SEARCH, OUTPUT = "Input", "Models", "Scales", "Tuning", "Search", "Output"
SHARE = {"min": 0, "max": 1}


def rescore(
    lattices: Annotated[
        list[Path], typer.Argument(help="HTK or Kaldi lattices, n-best lists: files or folders.", metavar="LATTICES")
    ],
    *,
    words: Annotated[Path | None, option(INPUT, "Kaldi's words.txt.")] = None,
    references: Annotated[
        Path | None, option(INPUT, "What was said, to count errors: Kaldi text, .trn, CTM, STM, JSONL.")
    ] = None,
    max_arcs: Annotated[int, option(INPUT, "Of one lattice; larger ones are refused.", min=1)] = 2_000_000,
    frame_shift: Annotated[
        float, option(INPUT, "Seconds of a frame in Kaldi's alignments; 0.03 for chain models.")
    ] = 0.01,
    strict: Annotated[bool, option(INPUT, "Stop at what cannot be read.", "--strict")] = False,
    model: Annotated[Path | None, option(MODELS, "The neural language model.", metavar="RUN")] = None,
    ngram: Annotated[Path | None, option(MODELS, "An n-gram model (ARPA), mixed in word by word.")] = None,
    ngram_weight: Annotated[float | None, option(MODELS, "Of the n-gram in the mixture; else 0.5.", **SHARE)] = None,
    old_ngram: Annotated[
        Path | None, option(MODELS, "The first pass's n-gram: only its part of the scores is replaced.")
    ] = None,
    unknown: Annotated[
        str | None,
        option(MODELS, "For unknown words: share=N (of <unk>; N is 10000), a penalty, keep (the old).", metavar="HOW"),
    ] = None,
    normalize: Annotated[bool, option(MODELS, "Take log Z off: slow, for comparison.", "--normalize")] = False,
    device: Annotated[
        str | None, option(MODELS, "cpu, cuda, cuda:1; else a GPU if there is one.", metavar="NAME")
    ] = None,
    weight: Annotated[
        float | None, option(SCALES, "Of the new scores, else 1; 0: the file's own decide.", **SHARE)
    ] = None,
    lm_scale: Annotated[float | None, option(SCALES, "Else the header's, else 1; for Kaldi 1/acwt, often 10.")] = None,
    word_penalty: Annotated[float | None, option(SCALES, "Added for each word; else the header's, else 0.")] = None,
    scales: Annotated[Path | None, option(SCALES, "The scales.json of an earlier run, in their place.")] = None,
    tune_on: Annotated[
        list[Path] | None, option(TUNING, "Development lattices or lists; may be repeated.", metavar="LATTICES")
    ] = None,
    tune_references: Annotated[Path | None, option(TUNING, "What was said in them.")] = None,
    cross_validate: Annotated[
        int | None, option(TUNING, "In so many folds, each with what is best for all others.")
    ] = None,
    algorithm: Annotated[str, option(SEARCH, "push_forward, path_cover, exact, nbest.", metavar="NAME")] = "auto",
    beam: Annotated[float, option(SEARCH, "In units of the LM scale.", min=0)] = 10.0,
    hypotheses: Annotated[int, option(SEARCH, "At most at a node; 0: any number.", min=0)] = 16,
    order: Annotated[int, option(SEARCH, "Words that recombination compares; -1: all.", min=-1, max=64)] = -1,
    least_risk: Annotated[
        bool, option(SEARCH, "The words with the fewest errors to be expected.", "--least-risk")
    ] = False,
    carry_over: Annotated[
        bool, option(SEARCH, "Histories go on with the speaker's next utterance.", "--carry-over")
    ] = False,
    speakers: Annotated[Path | None, option(SEARCH, "Kaldi's utt2spk; else names up to the first _ or -.")] = None,
    budget: Annotated[int, option(SEARCH, "Histories in one batch of the network.", min=1)] = 4096,
    together: Annotated[int, option(SEARCH, "Arcs of the lattices worked on at a time.", min=1)] = 500_000,
    to: Annotated[Path, option(OUTPUT, "For the best words and the scales.", metavar="FOLDER")],
    output: Annotated[
        str | None,
        option(OUTPUT, "Lattices: replaced (new scores), expanded (by history; not path_cover).", metavar="KIND"),
    ] = None,
    nbest: Annotated[int, option(OUTPUT, "Best hypotheses of each lattice to list.", min=0)] = 0,
    shared: Shared = False,
    no_wait: NoWait = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Give lattices and n-best lists new language model scores, and find the best words.

    selfnorm rescore lattices --model runs/books --references refs.txt --cross-validate 5 --to out

    total = acoustic + lm_scale ((1 - weight) lattice_lm + weight new) + word_penalty for each word

    Scores of self-normalized models are used as they are.
    """
    options = dict(locals())  # all of them, for those who share the work
    from selfnorm import lattices as formats
    from selfnorm.lattices import transcripts
    from selfnorm.rescoring import Rescorer, Search, Setting
    from selfnorm.rescoring.plan import Plan
    from selfnorm.rescoring.results import KINDS
    from selfnorm.rescoring.second_pass import Output, Tally, load_scales, second_pass
    from selfnorm.rescoring.shared import Ways, shared_pass

    if (tune_on is None) != (tune_references is None):
        raise ValueError("--tune-on and --tune-references go together; give development lattices and their words")
    if tune_on is not None and cross_validate is not None:
        raise ValueError("--tune-on and --cross-validate are two ways to tune; choose one")
    if cross_validate is not None and references is None:
        raise ValueError("--cross-validate needs to know what was said; give --references")
    if output is not None and output not in KINDS:
        raise ValueError(f"--output {output!r}: choose from {', '.join(KINDS)}")
    if scales is not None:
        check_scales(lm_scale, word_penalty, weight, ngram_weight, unknown)
    if not 0 < frame_shift < inf:
        raise ValueError(f"--frame-shift {frame_shift:g}: give the seconds of a frame, such as 0.01 or 0.03")
    check(shared, no_wait)
    if shared and carry_over:
        raise ValueError("--carry-over works on the speakers of all utterances together; leave out --shared")
    read = (references, tune_references, words, speakers, ngram, old_ngram)
    check_places([*lattices, *(tune_on or ()), *filter(None, read)], to)
    search = Search(None if order < 0 else order, hypotheses or None, beam)
    penalty, keep = unknown_words(unknown or "share=10000")
    share = (0.5 if ngram_weight is None else ngram_weight) if model is not None else 1.0
    given = Setting(lm_scale, 1.0 if weight is None else weight, word_penalty, share, penalty)
    setting = load_scales(scales) if scales else given
    refusal = None
    if algorithm == "exact" and setting.weight and (model is not None or ngram is not None):
        refusal = refusing_exact(
            {
                "--tune-on": tune_on is not None,
                "--cross-validate": cross_validate is not None,
                "--nbest": nbest > 1,
                "--output": output is not None,
                "--least-risk": least_risk,
            }
        )
    said = transcripts.read(references) if references else None
    if said:
        tell_tuned(lattices, tune_on or [])
    developed = transcripts.read(tune_references) if tune_references else None
    scorers = load_scorers(model, ngram, old_ngram, normalize, device) if setting.weight else {}
    rescorer = Rescorer(scorers, setting, algorithm, search, keep, budget, together)
    if output == "expanded" and rescorer.approximates and not carry_over:
        refusal = (
            "--output expanded keeps histories apart, and path_cover, which Transformers use by themselves, follows "
            "none; take --algorithm push_forward, which is slow for them, or --output replaced"
        )
    tally, developing = (Tally(report=_refuse if strict else tell) for _ in range(2))

    tuning = tune_on is not None or cross_validate is not None
    reading: dict[str, Any] = {"words": words, "max_arcs": max_arcs, "frame_shift": frame_shift}

    headers = Headers(setting, tuning, cross_validate is not None, refusal)

    def develop(tally: Tally) -> tuple[Iterator[Any], Any]:
        tally.report = _refuse if strict else tally.report
        found = tally.good(formats.read(tune_on or [], **reading))
        return Headers(setting, tuning, True, refusal).of(found), developed

    def agree(plan: Plan) -> None:
        if strict and plan.broken:
            _refuse(plan.broken[0])
        if output and len(plan.kaldi) > 1:
            raise ValueError(f"{' and '.join(plan.kaldi.values())}: of a text and a binary archive; share one kind")
        for row in plan.rows:
            headers.see(row)

    places = Output(to, output, nbest, words)
    alone = nullcontext() if shared else locked(to, "another rescoring writes to it; wait, or give another folder")
    with not_waiting(), alone, counting() as progress:
        if shared:
            outcome, tally, broken = shared_pass(
                lattices,
                lambda path: formats.read([path], **reading),
                rescorer,
                places,
                Ways(said, develop if tune_on else None, cross_validate, least_risk),
                given_alike(options | {"device": _device(rescorer)}, apart={"to"}),
                check=agree,
                progress=progress,
                tell=tell,
                wait=not no_wait,
            )
            for sentence in broken:
                tell(sentence)
        else:
            outcome = second_pass(
                headers.of(tally.good(formats.read(lattices, **reading))),
                rescorer,
                places,
                references=said,
                develop=develop(developing) if tune_on else None,
                folds=cross_validate,
                speaker=speaker_of(speakers) if carry_over else None,
                risk=least_risk,
                progress=progress,
            )
    if tally.notes:
        more = f"; {tally.notes - 1:,} more such notes: see `selfnorm lattice`" if tally.notes > 1 else ""
        tell(f"{tally.note}{more}")
    for name, unknown_share in outcome.unknown.items():
        if unknown_share > MANY:
            tell(
                f"{100 * unknown_share:.0f} % of the words in the lattices are unknown to the {name} model; "
                "are they written alike, in upper or lower case?"
            )
    failed = tally.failed + developing.failed
    rows, total = errors(outcome, said) if said else ({}, None)
    if json:
        print_json(fields(outcome, failed, tally.arcs, rows, total, said))
    else:
        show(outcome, to, failed, tally.arcs, rows, total)
    if failed or (said and total is None):
        raise typer.Exit(1)


def _device(rescorer: Any) -> str | None:
    """The kind of device, on which the last digits depend."""
    neural = rescorer.scorers.get("neural")
    return None if neural is None else str(neural.device).partition(":")[0]


def _refuse(sentence: str) -> None:
    raise ValueError(sentence)
