"""n-gram models as dicts: n-gram -> (log10 probability, log10 back-off or None); slow and obviously right."""

import random

START, END, UNKNOWN = "<s>", "</s>", "<unk>"


def random_model(chance: random.Random, order: int, names: int, density: float) -> list[dict]:
    """Any n-gram may be missing, but its history never is; suffixes may be."""
    words = [START, UNKNOWN, END, *(f"w{number}" for number in range(names))]
    chance.shuffle(words)
    levels = [{(word,): None for word in words}]
    for _ in range(1, order):
        longer = [(*gram, word) for gram in levels[-1] if gram[-1] != END for word in words if word != START]
        levels.append(dict.fromkeys(gram for gram in longer if chance.random() < density))
    for number, level in enumerate(levels, start=1):
        for gram in level:
            backoff = chance.choice([None, 0.0, -0.5, round(chance.uniform(-2, 0.5), 5)]) if number < order else None
            level[gram] = (round(chance.uniform(-4, 0), 5), backoff)
    return levels


def render(levels: list[dict], between: str = "\t", newline: str = "\n") -> str:
    lines = ["\\data\\", *(f"ngram {number}={len(level)}" for number, level in enumerate(levels, start=1))]
    for number, level in enumerate(levels, start=1):
        lines += ["", f"\\{number}-grams:"]
        for gram, (log_prob, backoff) in level.items():
            fields = [f"{log_prob}", " ".join(gram), *([] if backoff is None else [f"{backoff}"])]
            lines.append(between.join(fields))
    return newline.join([*lines, "", "\\end\\", ""])


def score(levels: list[dict], history: tuple, word: str) -> float:
    """log10 of a word after a history: its own n-gram's, or that of a shorter history behind a back-off."""
    history = history[-(len(levels) - 1) :] if len(levels) > 1 else ()
    if (*history, word) in levels[len(history)]:
        return levels[len(history)][*history, word][0]
    backoff = levels[len(history) - 1].get(history, (0, None))[1] or 0.0
    return backoff + score(levels[: len(history)], history[1:], word)


def sentence(levels: list[dict], words: list[str]) -> list[float]:
    known = [word if (word,) in levels[0] else UNKNOWN for word in words]
    whole = [START, *known, END]
    return [score(levels, tuple(whole[:place]), whole[place]) for place in range(1, len(whole))]
