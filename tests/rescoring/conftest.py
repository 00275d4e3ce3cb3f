import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "ngrams")]  # slow_ngram
