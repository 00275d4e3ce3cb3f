"""R17: our numbers beside those of others: sclite, jiwer, lmplz, kenlm, the definition, every path of a small lattice.

An oracle that is not installed has no trials; the counts of reliability.json say which had.
"""

import importlib.util
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import oracle
import sclite
from slow_ngram import random_model, render, sentence
from small import drawn, paths
from torture_trial import Trial, Trials

from selfnorm.corpus.numbered import Numbered
from selfnorm.lattices.oracle import oracle as nearest
from selfnorm.lattices.paths import best, words_of
from selfnorm.ngrams.estimate import estimate_arpa
from selfnorm.scorers import NGram
from selfnorm.wer import count

CLOSE = 1e-4  # of log10 probabilities
BATCH = 100  # pairs in one call of sclite

Judge = Callable[[Path, random.Random], Trials]


def _pairs(chance: random.Random, number: int) -> list[tuple[list[str], list[str]]]:
    """Misheard, unrelated, and unrelated with few words."""
    seed, kind = chance.randrange(10**9), chance.randrange(3)
    if kind == 0:
        return sclite.misheard(number, seed)
    return sclite.unrelated(number, seed) if kind == 1 else sclite.unrelated(number, seed, vocabulary=4, longest=12)


def by_sclite(folder: Path, chance: random.Random) -> Trials:
    """Substitutions, deletions and insertions of every pair."""
    pairs = _pairs(chance, BATCH)
    counts, _ = sclite.sclite(pairs, folder)
    for pair, wanted in zip(pairs, counts):
        errors = count(*pair)
        found = (errors.substitutions, errors.deletions, errors.insertions)
        yield Trial("sclite", [] if found == wanted else [f"{found}, not {wanted}"], repr(pair))


def by_jiwer(_folder: Path, chance: random.Random) -> Trials:
    """The fewest errors there can be; sclite's weights allow more only where over half of the words are wrong."""
    import jiwer

    for reference, hypothesis in _pairs(chance, BATCH):
        if reference:
            said = jiwer.process_words(" ".join(reference), " ".join(hypothesis))
            fewest, errors = said.substitutions + said.deletions + said.insertions, count(reference, hypothesis)
            good = errors.total == fewest or (errors.total > fewest and errors.rate > 0.5)
            fault = [] if good else [f"{errors.total} errors, not {fewest}"]
            yield Trial("jiwer", fault, repr((reference, hypothesis)))


def by_lmplz(folder: Path, chance: random.Random) -> Trials:
    """Kneser-Ney models of small random texts, where a single count moves the discounts; some pruned."""
    size, order, threshold = chance.randint(2, 30), chance.randint(2, 5), chance.randint(0, 2)
    rows = [
        " ".join(f"w{int(chance.paretovariate(0.8)) % size}" for _ in range(chance.randint(0, 8))) for _ in range(60)
    ]
    text = folder / "text.txt"
    text.write_text("w0\n" + "\n".join(rows) + "\n")
    estimate_arpa(Numbered([text], True), folder / "ours.arpa", order=order, prune=(0, threshold), threads=1)
    oracle.lmplz(text, folder / "theirs.arpa", order, "--prune", "0", str(threshold), memory="50M")
    found, wanted = ((folder / f"{name}.arpa").read_text().splitlines() for name in ("ours", "theirs"))
    off = max(oracle.differences(_written(found), _written(wanted)))
    same = oracle.header(found) == oracle.header(wanted) and off < CLOSE
    yield Trial(
        "lmplz", [] if same else [f"off by {off:.2g}"], f"order {order}, prune 0 {threshold}", text.read_bytes()
    )


def _written(lines: list[str]) -> oracle.Arpa:
    """As read, with ARPA's -99 for a back-off of nothing, which lmplz writes as -inf."""
    levels = oracle.read(lines)
    return [{gram: (log, max(back_off, -99.0)) for gram, (log, back_off) in level.items()} for level in levels]


def _model(folder: Path, chance: random.Random) -> tuple[list[dict], Path, list[list[str]]]:
    """A random back-off model without n-grams whose suffix is missing, which kenlm refuses, and sentences for it."""
    levels = random_model(chance, chance.randint(2, 4), 5, chance.uniform(0.1, 0.7))
    for number in range(1, len(levels)):
        for gram in list(levels[number]):
            if gram[1:] not in levels[number - 1] or gram[:-1] not in levels[number - 1]:
                del levels[number][gram]
    path = folder / "lm.arpa"
    path.write_text(render(levels))
    path.with_name("lm.arpa.index").unlink(missing_ok=True)
    words = ["w0", "w1", "w2", "w3", "w4", "zebra"]
    return levels, path, [chance.choices(words, k=chance.randint(0, 9)) for _ in range(10)]


def by_kenlm(folder: Path, chance: random.Random) -> Trials:
    """Every word's log10 probability by kenlm's own query."""
    import kenlm

    levels, path, texts = _model(folder, chance)
    if not all(levels):
        return  # kenlm reads no model with an order that is empty
    quiet = kenlm.Config()
    quiet.show_progress, quiet.arpa_complain = False, kenlm.ARPALoadComplain.NONE
    theirs = kenlm.Model(str(path), quiet)
    wanted = [score for text in texts for score, _, _ in theirs.full_scores(" ".join(text))]
    yield _compared("kenlm", path, texts, wanted)


def by_definition(folder: Path, chance: random.Random) -> Trials:
    """The same by the definition of a back-off model, slowly."""
    levels, path, texts = _model(folder, chance)
    yield _compared("definition", path, texts, [score for text in texts for score in sentence(levels, text)])


def _compared(kind: str, path: Path, texts: list[list[str]], wanted: list[float]) -> Trial:
    found = NGram.load(path).text(texts).scores / math.log(10)
    off = float(np.abs(found - np.array(wanted)).max()) if len(found) == len(wanted) else math.inf
    return Trial(kind, [] if off < CLOSE else [f"off by {off:.2g}"], repr(texts), path.read_bytes())


def by_every_path(_folder: Path, chance: random.Random) -> Trials:
    """The best path and the nearest one to a reference among all paths of a lattice."""
    seed = chance.randrange(2**32)
    lattice = drawn(seed, most_nodes=8, most_arcs=18)
    totals, every = lattice.total(), paths(lattice)
    score, faults = best(lattice).score, []
    wanted = max(totals[arcs].sum() for arcs in every)
    if not math.isclose(score, wanted, rel_tol=1e-9, abs_tol=1e-9):
        faults.append(f"the best path has {score}, not {wanted}")
    reference = chance.choices(["w0", "w1", "w2", "w3"], k=chance.randint(0, 6))
    errors = min(count(reference, words_of(lattice, arcs)).total for arcs in every)
    if (found := nearest(lattice, reference).errors.total) != errors:
        faults.append(f"the nearest path has {found} errors, not {errors}")
    yield Trial("every path", faults, f"drawn({seed}, 8, 18), {reference}")


def judges() -> dict[str, Judge]:
    """Those that are here; each is asked in turn."""
    here: dict[str, tuple[bool, Judge]] = {
        "sclite": (sclite.found() is not None, by_sclite),
        "jiwer": (importlib.util.find_spec("jiwer") is not None, by_jiwer),
        "lmplz": (oracle.found() is not None, by_lmplz),
        "kenlm": (importlib.util.find_spec("kenlm") is not None, by_kenlm),
        "definition": (True, by_definition),
        "every path": (True, by_every_path),
    }
    return {name: judge for name, (there, judge) in here.items() if there}


def agreement(folder: Path, chance: random.Random) -> Trials:
    """R17: one oracle after the other, as many trials of each."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = judges()
    done = dict.fromkeys(asked, 0)
    while True:
        name = min(done, key=lambda each: done[each])
        found = list(asked[name](folder, chance))
        done[name] += len(found) or 1  # the others have their turn also when this one has nothing to say
        yield from found
