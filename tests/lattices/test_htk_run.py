"""Lines that are read many at once come out as they do one by one, and so do their faults."""

from pathlib import Path

import pytest
from comparing import differences
from hypothesis import given, settings
from hypothesis import strategies as st

from selfnorm.lattices import htk, htk_draft, htk_run
from selfnorm.lattices.packed import Lines

NODES, ARCS = 12, 20
ODD = [
    ("W=", "W='"),
    ("W=", "'em"),
    ("W=x", "W='x y'"),
    ("W=x1 v=1", "W='x1 v=1'"),
    ("W=x", 'W="x'),
    ("v=", "v='a' "),
    ("v=", ""),
    ("v=1", "v=1 d='a b'"),
    ("v=1", "v=\\377"),
    (" ", "  \t"),
    ("a=-", "a=-."),
    ("a=-", "a=-1e"),
    ("a=-", "a=nan"),
    ("a=", "a=1_0"),
    ("a=-1", "a=-12345678901234567890.5"),
    ("a=", "acoustic="),
    ("l=", "r="),
    ("l=", "a="),
    ("S=", "S=-"),
    ("S=1", "S=99"),
    ("E=", "E=1."),
    ("J=1", "J=2"),
    ("J=1", "J=0001"),
    ("J=1", "J=12345678901234567"),
    ("J=", "# J="),
    ("J=1", "J="),
    ("J=", "\nJ="),
    ("I=1", "I=0"),
    ("I=", "I=7 I="),
    ("t=", "t=x"),
    ("t=0", "x=0"),
    ("\n", "\r\n"),
    ("x", "\u00e9"),
    ("x", "\udc80"),
]


def text(changes):
    """A lattice of ordinary lines, some of which are changed."""
    lines = [f"I={node} t={node / 10:.2f}\n" for node in range(NODES)]
    arcs = [(n % (NODES - 1), n % (NODES - 1) + 1) for n in range(ARCS)]
    lines += [f"J={n} S={a} E={b} W=x{n % 3} v=1 a=-{n}.25 l=-0.{n}\n" for n, (a, b) in enumerate(arcs)]
    for place, (old, new) in changes:
        lines[place] = lines[place].replace(old, new, 1)
    return f"VERSION=1.0\nN={NODES} L={ARCS}\n{''.join(lines)}"


def found(path):
    try:
        return htk.read(path)
    except ValueError as error:
        return str(error)


def compared(folder, changes, many):
    path = folder / "x.slf"
    path.write_bytes(text(changes).encode(errors="surrogateescape"))
    both = []
    for least in (many, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(htk_draft, "MANY", least)
            both.append(found(path))
    together, alone = both
    if isinstance(alone, str):
        assert together == alone
    else:
        assert differences(together, alone) == []
        assert together.notes == alone.notes


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_one_odd_line_among_many(tmp_path, odd):
    for place in (5, NODES + 10):
        compared(tmp_path, [(place, odd)], 2)


@pytest.mark.parametrize("kind", "IJ")
@pytest.mark.parametrize("many", [48, 49, 51, 60])
def test_too_many_fields_in_all_lines(tmp_path, kind, many):
    longer = ("\n", f" {' '.join(f'f{n}=1' for n in range(many))}\n")
    places = range(NODES) if kind == "I" else range(NODES, NODES + ARCS)
    compared(tmp_path, [(place, longer) for place in places], 2)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, NODES + ARCS - 1), st.sampled_from(ODD)), max_size=4), st.sampled_from([2, 3, 8])
)
def test_many_lines_at_once_are_the_same_as_one_by_one(tmp_path_factory, changes, many):
    compared(tmp_path_factory.mktemp("run"), changes, many)


def test_ordinary_lines_are_never_looked_at_alone(tmp_path, monkeypatch):
    path = tmp_path / "x.slf"
    path.write_text(text([]).replace("W=x1", "W='em"))
    monkeypatch.setattr(htk_draft, "MANY", 2)
    seen = []
    monkeypatch.setattr(htk_draft.Draft, "_add", _noting(htk_draft.Draft._add, seen))
    assert htk.read(path).arcs == ARCS
    assert len(seen) == 2  # the header


@pytest.mark.parametrize("mixed", [False, True])
def test_lines_whose_fields_differ_are_not_looked_at_alone(tmp_path, monkeypatch, mixed):
    """As we write them: a field without a value is left out. Nodes may stand between arcs."""
    path = tmp_path / "x.slf"
    header, lines = text([(NODES + n, ("v=1 ", "")) for n in range(0, ARCS, 3)]).split("I=0", 1)
    lines = f"I=0{lines}".splitlines()
    path.write_text(header + "\n".join(lines[::2] + lines[1::2] if mixed else lines) + "\n")
    wanted = htk.read(path)
    monkeypatch.setattr(htk_draft, "MANY", 2)
    seen = []
    monkeypatch.setattr(htk_draft.Draft, "_add", _noting(htk_draft.Draft._add, seen))
    monkeypatch.setattr(htk_run, "FEW", 8)
    assert differences(htk.read(path), wanted) == []
    assert len(seen) == 2  # the header


def _noting(add, seen):
    def noted(draft, line):
        seen.append(line)
        add(draft, line)

    return noted


@given(st.lists(st.text("ab\n", max_size=8).map(str.encode), max_size=6))
def test_lines_are_cut_in_halves_until_they_are_alone(pieces):
    lines = Lines(Path("x"), 5, 100, b"".join(pieces) + b"a\nb")

    def cut(some):
        return [some] if some.count < 2 else [each for half in some.halves() for each in cut(half)]

    whole = cut(lines)
    assert b"".join(each.text for each in whole) == lines.text
    assert [each.number for each in whole] == list(range(5, 5 + lines.count))
    assert all(lines.text[each.offset - 100 :].startswith(each.text) for each in whole)
