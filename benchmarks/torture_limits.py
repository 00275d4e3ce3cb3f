"""R9: files that ask for time or memory without end; each is read within 5 s and 500 MB, or refused by its name.

Every file is read in a forked process whose address space may grow by little more than that.
"""

import gzip
import hashlib
import json
import os
import random
import resource
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from torture_trial import Trial, Trials, memory, of_tests

from selfnorm import lattices, manifest, recipe
from selfnorm.corpus import store
from selfnorm.corpus.prepare import prepare
from selfnorm.corpus.text import read_sentences
from selfnorm.lattices import transcripts
from selfnorm.lattices.symbols import Symbols
from selfnorm.ngrams import cache
from selfnorm.ngrams.build import build
from selfnorm.tensorfile import read_tensors
from selfnorm.vocabulary import Vocabulary

SECONDS, MEGABYTES = 5, 500
WITHIN = 20  # seconds for 10^6 arcs, which are no more than a lattice may have: they are read, not refused
SPACE = 1 << 30  # bytes by which the address space may grow; libraries reserve more than they use
HUGE = 10**12
DEEP = 100_000
LONG = b"x" * 10_000_000

Write = Callable[[Path], object]


def _all(found: Iterable[object]) -> None:
    for each in found:
        if isinstance(each, lattices.Broken):
            raise ValueError(each.sentence)


def _lattice(path: Path) -> None:
    _all(lattices.read([path]))


def _bomb(piece: bytes, before: bytes = b"", times: int = 60) -> Write:
    """A packed file of a megabyte or so that unpacks to a thousand times as much."""
    packed = gzip.compress(piece * ((16 << 20) // len(piece)))
    return lambda path: path.write_bytes(gzip.compress(before) + packed * times)


def _store(path: Path) -> None:
    about = store.About(HUGE, HUGE, 0, "<u2", 5, 0, "0" * 64, sha256="0" * 64)
    path.write_bytes(store._header(about) + bytes(64))


def _tensors(length: int, **fields: object) -> Write:
    body = json.dumps({"weight": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE], **fields}}).encode()
    return lambda path: path.write_bytes(struct.pack("<Q", length or len(body)) + body + bytes(64))


def _index(path: Path) -> None:
    """An n-gram index that claims as many n-grams, beside a good ARPA file."""
    arpa = path.with_suffix("")
    arpa.write_text("\\data\\\nngram 1=3\n\\1-grams:\n-1 <s>\n-1 </s>\n-2 <unk>\n\\end\\\n")
    status, digest = arpa.stat(), hashlib.sha256(arpa.read_bytes()).hexdigest()
    about = {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": digest, "counts": [HUGE], "text": HUGE}
    path.write_bytes(cache.header(about | {"parts": "0" * 64, "format": cache.FORMAT}))


def _indexed(path: Path) -> object:
    return cache.load(path.with_suffix(""))


def _plain(content: bytes) -> Write:
    return lambda path: path.write_bytes(content)


def _htk(arc: str, count: int) -> Write:
    head = f"VERSION=1.0\nN=2 L={count}\nI=0\nI=1\n"
    return lambda path: path.write_text(head + "".join(f"J={n} {arc}\n" for n in range(count)))


def _prepare(path: Path) -> object:
    return prepare([path], path.with_name("data"), processes=1)


def _sentences(path: Path) -> None:
    _all(read_sentences(path))


def _entries(path: Path) -> object:
    return manifest.read(path.parent)


KALDI = b"u \n" + b"0 1 a 1,2,\n" * 1_000_000 + b"1 0,0,\n\n"
ARPA = b"\\data\\\nngram 1=1000000000000\n\\1-grams:\n-1 <s>\n-1 </s>\n-2 <unk>\n\\end\\\n"
NBEST = b'{"utt": "u", "hyps": [{"text": "a", "am": '
CASES: dict[str, tuple[str, Write, Callable[[Path], object], bool | None]] = {  # file, writing, reading, refused
    "HTK: 10^6 duplicate arcs": ("d.slf", _htk("S=0 E=1 W=a a=-1", 1_000_000), _lattice, False),
    "Kaldi: 10^6 duplicate arcs": ("lat.txt", _plain(KALDI), _lattice, False),
    "ARPA: 10^12 n-grams declared": ("lm.arpa", _plain(ARPA), build, True),
    "ARPA: 10 MB line": ("lm.arpa", _plain(ARPA.replace(b"<unk>", LONG)), build, True),
    "ARPA: gzip bomb of blanks": ("lm.arpa.gz", _bomb(b" "), build, True),
    "ARPA: gzip bomb of n-grams": ("lm.arpa.gz", _bomb(b"-1 a\n", ARPA[:60]), build, True),
    "ARPA index: 10^12 n-grams declared": ("lm.arpa.index", _index, _indexed, False),
    "text: a word of 10 MB": ("t.txt", _plain(LONG), _prepare, True),
    "text: a line of 10 MB": ("t.txt", _plain(b"word " * 2_000_000), _prepare, False),
    "text: gzip bomb of zeros": ("t.txt.gz", _bomb(bytes(1)), _prepare, True),
    "text: gzip bomb of a word": ("t.txt.gz", _bomb(b"x"), _prepare, True),
    "text, by sentences: a line of 10 MB": ("t.txt", _plain(b"word " * 2_000_000), _sentences, False),
    "text, by sentences: gzip bomb of a word": ("t.txt.gz", _bomb(b"x"), _sentences, True),
    "text, by sentences: gzip bomb of blanks": ("t.txt.gz", _bomb(b" "), _sentences, True),
    "vocabulary: a word of 10 MB": ("vocab.txt", _plain(LONG + b"\n"), Vocabulary.load, None),
    "vocabulary: gzip bomb": ("vocab.txt.gz", _bomb(b"x"), Vocabulary.load, True),
    "vocabulary: a count of 10^6 digits": ("vocab.txt", _plain(b"a " + b"9" * 10**6), Vocabulary.load, True),
    "words.txt: an id of 10^12": ("words.txt", _plain(b"<eps> 0\na 1000000000000\n"), Symbols.load, None),
    "words.txt: a line of 10 MB": ("words.txt", _plain(b"<eps> 0\n" + LONG + b" 1\n"), Symbols.load, True),
    "trn: a line of 10 MB": ("h.trn", _plain(LONG + b" (u)\n"), transcripts.read, True),
    "trn: gzip bomb": ("h.trn.gz", _bomb(b"word "), transcripts.read, True),
    "transcript: JSON depth 10^5": ("h.jsonl", _plain(b'{"utt": "u", "ref": ' + b"[" * DEEP), transcripts.read, True),
    "n-best: JSON depth 10^5": ("n.jsonl", _plain(NBEST + b"[" * DEEP + b"\n"), _lattice, True),
    "n-best: objects of depth 10^5": ("n.jsonl", _plain(NBEST + b'{"a":' * DEEP + b"\n"), _lattice, True),
    "n-best: a number of 10^6 digits": ("n.jsonl", _plain(NBEST + b"9" * 10**6 + b"}]}\n"), _lattice, True),
    "n-best: gzip bomb": ("n.jsonl.gz", _bomb(b"[", NBEST), _lattice, True),
    "recipe: TOML depth 10^5": ("r.toml", _plain(b'data = "d"\nmodel = ' + b"[" * DEEP), recipe.load, True),
    "recipe: dotted key of 10^5 parts": ("r.toml", _plain(b"a." * DEEP + b"a = 1\n"), recipe.load, True),
    "recipe: a number of 10^6 digits": ("r.toml", _plain(b"data = " + b"9" * 10**6 + b"\n"), recipe.load, True),
    "manifest: JSON depth 10^5": ("manifest.json", _plain(b"[" * DEEP), _entries, True),
    "manifest: 10 MB": ("manifest.json", _plain(b'{"files": {"' + LONG + b'": 1}}'), _entries, True),
    "token store: 10^12 words declared": ("train.ids", _store, store.TokenStore.open, True),
    "tensors: a header of 10^12 bytes": ("m.safetensors", _tensors(HUGE), read_tensors, True),
    "tensors: a shape of 10^12": ("m.safetensors", _tensors(0), read_tensors, True),
    "tensors: offsets that overlap": ("m.safetensors", _tensors(0, shape=[4], data_offsets=[0, 9]), read_tensors, True),
}  # fmt: skip


def faults_of(folder: Path, case: str) -> list[str]:
    """Write the file, read it in a child that is limited, and say what it did beyond its limits."""
    name, write, read, wanted = CASES[case]
    folder.mkdir(parents=True)
    path, report = folder / name, folder / "said"
    write(path)
    child = os.fork()
    if not child:
        try:
            _read(path, read, report)
        finally:
            os._exit(0)
    _, status, usage = os.wait4(child, 0)
    found = json.loads(report.read_text()) if report.exists() else {"error": f"the reader ended with {status}"}
    for each in folder.iterdir():
        if each.is_file():
            each.unlink()  # some are large
    faults = [found["error"]] if "error" in found else []
    seconds = found.get("seconds", usage.ru_utime + usage.ru_stime)
    faults += [f"took {seconds:.1f} s"] if seconds > (WITHIN if "10^6" in case and not wanted else SECONDS) else []
    faults += [f"took {found['megabytes']} MB"] if found.get("megabytes", 0) > MEGABYTES else []
    said = found.get("said")
    if wanted is not None and (said is not None) != wanted:
        faults.append("was not refused" if wanted else f"was refused: {said}")
    if said is not None and (str(path) not in said or "\n" in said or len(said) > 600 + len(str(path))):
        faults.append(f"no sentence about the file: {said[:300]}")
    return faults


def _read(path: Path, read: Callable[[Path], object], report: Path) -> None:
    limit = memory("VmSize") + SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    before, begin = memory("VmRSS"), time.process_time()
    found: dict[str, object] = {}
    try:
        read(path)
    except (ValueError, OSError) as error:
        found["said"] = str(error)
    except BaseException as error:
        found["error"] = f"{type(error).__name__}: {str(error)[:300]}"
    found |= {"seconds": time.process_time() - begin, "megabytes": (memory("VmHWM") - before) >> 20}
    report.write_text(json.dumps(found))


def limits(folder: Path, chance: random.Random) -> Trials:
    """R9: those above, then those of the tests of lattices."""
    for number, case in enumerate(CASES):
        yield Trial("files", faults_of(folder / f"{number}", case), case)
    yield from of_tests("lattices", "lattices/test_limits.py")
