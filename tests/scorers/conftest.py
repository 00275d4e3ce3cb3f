import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("ngrams", "rescoring")]  # slow_ngram, small
