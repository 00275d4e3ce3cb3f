"""A lattice as a picture: its best paths from left to right by time, as an SVG that needs no other file.

The best path is a straight line. Every further path leaves it, or one that is drawn already, where it differs, on a
lane above or below; so no two words stand in one place.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from textwrap import wrap

import numpy as np

from selfnorm.lattices.lattice import SILENT, Lattice
from selfnorm.lattices.oracle import Oracle, oracle
from selfnorm.lattices.paths import Path, n_best, words_of
from selfnorm.vocabulary import END

LANE, RISE, GAP, MARGIN, CLOCK = 50, 22, 14, 26, 26  # pixels: between lanes, to reach one, between columns, around all
LETTER, DIGIT = 8.2, 5.4  # width of a letter of a word and of a digit of a score
MOST_STEPS = 5_000_000  # seconds of work, to mark a path
BEST, NEAREST, OTHER, INK, FAINT = "#1d63d8", "#f5b041", "#a3abb6", "#1b2330", "#67707d"
STYLE = f"""\
text {{ font-family: 'DejaVu Sans', Verdana, system-ui, sans-serif; font-size: 13px; fill: {INK}; }}
.word, .silent, .score, .time {{ text-anchor: middle; }}
.silent {{ font-size: 11px; font-style: italic; fill: {FAINT}; }}
.score {{ font-size: 9px; fill: {FAINT}; }}
.time, .small {{ font-size: 11px; fill: {FAINT}; }}
.title {{ font-size: 17px; font-weight: bold; }}
path {{ fill: none; stroke: {OTHER}; stroke-width: 1.4; }}
path.best {{ stroke: {BEST}; stroke-width: 2.6; }}
path.nearest {{ stroke: {NEAREST}; stroke-width: 10; stroke-opacity: 0.6; stroke-linecap: round; }}
circle {{ fill: white; stroke: {FAINT}; stroke-width: 1.4; }}
circle.best {{ stroke: {BEST}; stroke-width: 2; }}
line {{ stroke: {OTHER}; stroke-width: 0.7; stroke-dasharray: 1 4; }}
"""


@dataclass(frozen=True)
class Layout:
    """Where things are, in pixels; the best path is at height 0."""

    nodes: dict[int, tuple[float, float]]
    arcs: dict[int, float]  # the height of each arc's lane
    width: float
    top: float
    bottom: float


def svg(lattice: Lattice, reference: Sequence[str] | None = None, most: int = 8) -> str:
    """The `most` best paths of different words; with a reference also the path nearest to it, marked."""
    paths = n_best(lattice, most)
    chosen = [path.arcs for path in paths]
    nearest = None if reference is None else oracle(lattice, reference)
    marked = _best_of_words(lattice, nearest) if nearest else ()
    if marked and marked not in chosen:
        chosen.insert(1, marked)
    layout = _layout(lattice, chosen)
    width = max(layout.width + 2 * MARGIN, 700)
    head = list(_head(lattice, paths, nearest, " ".join(reference or ()), len(layout.arcs), width))
    top = MARGIN + 20 * len(head)
    height = top + layout.bottom - layout.top + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
            f"<title>{_escaped(lattice.utterance)}</title>",
            f"<style>\n{STYLE}</style>",
            '<rect width="100%" height="100%" fill="white"/>',
            *(
                f'<g transform="translate({MARGIN} {MARGIN + 20 * row + 8})">{line}</g>'
                for row, line in enumerate(head)
            ),
            f'<g transform="translate({MARGIN} {top - layout.top:.0f})">',
            *_clock(lattice, layout),
            *(_curve(lattice, layout, arc, "nearest") for arc in marked),
            *(_curve(lattice, layout, arc, "") for arc in layout.arcs if arc not in chosen[0]),
            *(_curve(lattice, layout, arc, "best") for arc in chosen[0]),
            *_circles(lattice, layout, chosen[0]),
            *(text for arc in layout.arcs for text in _texts(lattice, layout, arc)),
            "</g>",
            "</svg>\n",
        ]
    )


def _best_of_words(lattice: Lattice, nearest: Oracle) -> tuple[int, ...]:
    """Of the paths with these words the best: it leaves the best path of all only where the words do."""
    if lattice.arcs * (len(nearest.words) + 1) > MOST_STEPS:
        return nearest.arcs
    totals, silent = lattice.total().tolist(), {SILENT, END}
    scores: list[dict[int, tuple[float, int]]] = [{} for _ in range(lattice.nodes)]  # words said -> score, last arc
    scores[0][0] = (0.0, -1)
    for arc, (source, target) in enumerate(zip(lattice.sources.tolist(), lattice.targets.tolist())):
        word = lattice.words[arc]
        for said, (score, _) in scores[source].items():
            after = said + (word not in silent)
            if after == said or (said < len(nearest.words) and word == nearest.words[said]):
                new = (score + totals[arc], arc)
                scores[target][after] = max(scores[target].get(after, new), new)
    arcs: list[int] = []
    node, said = lattice.nodes - 1, len(nearest.words)
    while node:
        arcs.append(scores[node][said][1])
        said -= lattice.words[arcs[-1]] not in silent
        node = int(lattice.sources[arcs[-1]])
    return tuple(reversed(arcs))


def _layout(lattice: Lattice, chosen: Sequence[tuple[int, ...]]) -> Layout:
    """Each arc on the lane of the stretch that first needs it; the lanes are 0 for the best path, then 1, -1, 2, ..."""
    x = _across(lattice, sorted({arc for arcs in chosen for arc in arcs}))
    heights = {0: 0.0, lattice.nodes - 1: 0.0}
    arcs: dict[int, float] = {}
    taken: dict[int, list[tuple[float, float]]] = {}
    for number, path in enumerate(chosen):
        for stretch in _stretches(lattice, [arc for arc in path if arc not in arcs], set(heights)):
            first, last = x[int(lattice.sources[stretch[0]])], x[int(lattice.targets[stretch[-1]])]
            lane = _free_lane(taken, first, last) if number else 0
            taken.setdefault(lane, []).append((first, last))
            arcs.update(dict.fromkeys(stretch, LANE * lane))
            heights.update(dict.fromkeys((int(lattice.targets[arc]) for arc in stretch[:-1]), LANE * lane))
    nodes = {node: (x[node], height) for node, height in heights.items()}
    reach = [0.0, *arcs.values()]
    return Layout(nodes, arcs, max(x.values()), min(reach) - LANE, max(reach) + LANE / 2 + CLOCK)


def _across(lattice: Lattice, arcs: Sequence[int]) -> dict[int, float]:
    """Nodes from left to right: those of one time stand above each other, and every arc has room for its texts."""
    into: dict[int, list[int]] = {0: []}
    for arc in arcs:
        into.setdefault(int(lattice.targets[arc]), []).append(arc)
    times = (np.arange(lattice.nodes) if lattice.times is None else lattice.times).tolist()
    x: dict[int, float] = {}

    def room(node: int) -> list[float]:
        sources = [(arc, int(lattice.sources[arc])) for arc in into[node]]
        return [x[source] + _width(lattice, arc) for arc, source in sources if source in x]

    last = -float(GAP)
    for _, column in groupby(sorted(into, key=lambda node: (times[node], node)), key=lambda node: times[node]):
        nodes = list(column)
        least = max([last + GAP, *(place for node in nodes for place in room(node))])
        for node in nodes:  # an arc that takes no time makes the column lean
            x[node] = last = max([least, *room(node)])
        last = max(x.values())
    return x


def _width(lattice: Lattice, arc: int) -> float:
    label, scores = _label(lattice, arc), _scores(lattice, arc)
    return max(LETTER * len(label), DIGIT * len(scores)) + 2 * RISE + 10


def _label(lattice: Lattice, arc: int) -> str:
    return "silence" if lattice.words[arc] == SILENT else lattice.words[arc]


def _scores(lattice: Lattice, arc: int) -> str:
    return f"{lattice.acoustic[arc]:.1f} · {lattice.lm[arc]:.1f}".replace("-", "−")


def _stretches(lattice: Lattice, arcs: Sequence[int], drawn: Collection[int]) -> Iterator[list[int]]:
    """The arcs that a path adds, cut at the nodes that are there already."""
    stretch: list[int] = []
    for arc in arcs:
        stretch.append(arc)
        if int(lattice.targets[arc]) in drawn:
            yield stretch
            stretch = []


def _free_lane(taken: dict[int, list[tuple[float, float]]], first: float, last: float) -> int:
    lane = 1
    while any(first < end and begin < last for begin, end in taken.get(lane, [])):
        lane = -lane if lane > 0 else 1 - lane
    return lane


def _curve(lattice: Lattice, layout: Layout, arc: int, style: str) -> str:
    """Up or down to the lane, along it, and to the node behind."""
    (x, y), (to_x, to_y) = layout.nodes[int(lattice.sources[arc])], layout.nodes[int(lattice.targets[arc])]
    lane = layout.arcs[arc]
    line = f"M{x:.1f} {y:.1f}"
    if y != lane:
        line += f"C{x + RISE / 2:.1f} {y:.1f} {x + RISE / 2:.1f} {lane:.1f} {x + RISE:.1f} {lane:.1f}"
    if to_y != lane:
        line += f"H{to_x - RISE:.1f}"
        line += f"C{to_x - RISE / 2:.1f} {lane:.1f} {to_x - RISE / 2:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    else:
        line += f"H{to_x:.1f}"
    return f'<path class="{style}" d="{line}"/>' if style else f'<path d="{line}"/>'


def _circles(lattice: Lattice, layout: Layout, first: Sequence[int]) -> Iterator[str]:
    best = {0, *(int(lattice.targets[arc]) for arc in first)}
    for node, (x, y) in layout.nodes.items():
        style = ' class="best"' if node in best else ""
        if node in (0, lattice.nodes - 1):
            yield f'<circle{style} cx="{x:.1f}" cy="{y:.1f}" r="8"/>'
        yield f'<circle{style} cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'


def _texts(lattice: Lattice, layout: Layout, arc: int) -> Iterator[str]:
    ends = layout.nodes[int(lattice.sources[arc])], layout.nodes[int(lattice.targets[arc])]
    lane = layout.arcs[arc]
    x = (ends[0][0] + RISE * (ends[0][1] != lane) + ends[1][0] - RISE * (ends[1][1] != lane)) / 2
    style = "silent" if lattice.words[arc] in (SILENT, END) else "word"
    yield f'<text class="{style}" x="{x:.1f}" y="{lane - 8:.1f}">{_escaped(_label(lattice, arc))}</text>'
    yield f'<text class="score" x="{x:.1f}" y="{lane + 15:.1f}">{_scores(lattice, arc)}</text>'


def _clock(lattice: Lattice, layout: Layout) -> Iterator[str]:
    """The times of the nodes on the best path, where there is room."""
    if lattice.times is None:
        return
    last, before = -100.0, -1.0
    for node, (x, y) in sorted(layout.nodes.items(), key=lambda each: each[1]):
        if y == 0 and x - last > 50 and lattice.times[node] != before:
            last, before = x, lattice.times[node]
            yield f'<line x1="{x:.1f}" y1="{layout.top + LANE / 2:.1f}" x2="{x:.1f}" y2="{layout.bottom - CLOCK:.1f}"/>'
            yield f'<text class="time" x="{x:.1f}" y="{layout.bottom - 8:.1f}">{lattice.times[node]:.2f} s</text>'


def _head(
    lattice: Lattice, paths: Sequence[Path], nearest: Oracle | None, reference: str, drawn: int, width: float
) -> Iterator[str]:
    """Title, legend and the words of each marked path, a row each."""
    yield f'<text class="title">{_escaped(lattice.utterance)}</text>'
    shown = f"the {len(paths)} best paths of different words" if len(paths) > 1 else "the best path"
    shown += " and the one nearest to the reference" if nearest else ""
    shown += f": {drawn:,} of {lattice.arcs:,} arcs; below each word its acoustic and LM score, natural logs, unscaled"
    yield from (f'<text class="small">{line}</text>' for line in wrap(shown, int((width - 2 * MARGIN) / 6.6)))
    letters = int((width - 2 * MARGIN - 40) / 7.6)
    words = " ".join(words_of(lattice, paths[0].arcs))
    yield from _legend("best", f"best path, {paths[0].score:.1f}: {words}".replace(" -", " −"), letters)
    if nearest:
        errors = f"{nearest.errors.total} error{'s' * (nearest.errors.total != 1)}"
        yield from _legend("nearest", f"nearest path, {errors}: {' '.join(nearest.words)}", letters)
        yield from _legend(None, f"reference: {reference}", letters)


def _legend(style: str | None, text: str, letters: int) -> Iterator[str]:
    for row, line in enumerate(wrap(text, letters) or [""]):
        key = f'<path class="{style}" d="M4 -4H24"/>' if style and not row else ""
        yield f'{key}<text x="36">{_escaped(line)}</text>'


def _escaped(text: str) -> str:
    """Text for XML, which has no place for control characters at all."""
    return escape("".join(each if each.isprintable() else "�" for each in text), quote=True)
