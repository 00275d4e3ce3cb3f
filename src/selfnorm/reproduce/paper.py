"""What the paper reports, row by row; our rows stand beside these under the same labels."""

from collections.abc import Mapping
from typing import Any

Numbers = Mapping[str, Any]  # by the names of our own rows; `wer` by the paper's test sets

TITLES = {
    "table1": "Table 1: the corpora",
    "table2": "Table 2: perplexities of NCE and Mode1 to Mode3",
    "figure1": "Figure 1: the number of samples K",
    "table3": "Table 3: criteria on Switchboard, an LSTM with 30k words",
    "table4": "Table 4: criteria on LibriSpeech, a Transformer with 200k words",
    "table5": "Table 5: NCE and Mode3 on the in-house set EN, an LSTM with 250k words",
    "beyond": "Beyond the paper: samplers, noises, groups, other criteria, large batches",
}


def _errors(criterion: str, seconds: float, perplexity: float, kind: str, **wer: float) -> tuple[str, Numbers]:
    return criterion, {"seconds_per_batch": seconds, kind: perplexity, "wer": wer}


PAPER: Mapping[str, Mapping[str, Numbers]] = {
    "table1": {
        "Switchboard": {"vocabulary": 30_000, "words": 24_000_000},
        "LibriSpeech": {"vocabulary": 200_000, "words": 812_000_000},
        "EN": {"vocabulary": 250_000, "words": 7_473_000_000},
    },
    "table2": {
        "NCE, K = 100": {"perplexity": 54.4},
        "NCE, K = 8000": {"perplexity": 52.7},
        "Mode1, K = 100": {"perplexity": 87.2},
        "Mode1, K = 8000": {"perplexity": 53.0},
        "Mode2, K = 100": {"perplexity": 53.9},
        "Mode2, K = 8000": {"perplexity": 53.5},
        "Mode3, K = 100": {"perplexity": 54.0},
        "Mode3, K = 8000": {"perplexity": 53.0},
    },
    "figure1": {},  # the paper prints no numbers of its curve
    "table3": dict(
        (
            _errors("CE", 0.100, 49.9, "mixture_perplexity", All=10.1, SWB=6.8, CH=13.4),
            _errors("BCE", 0.107, 52.3, "mixture_perplexity", All=10.3, SWB=6.9, CH=13.7),
            _errors("IS", 0.079, 51.5, "mixture_perplexity", All=10.3, SWB=7.0, CH=13.7),
            _errors("NCE", 0.079, 51.4, "mixture_perplexity", All=10.2, SWB=6.9, CH=13.6),
            _errors("Mode3", 0.090, 51.7, "mixture_perplexity", All=10.2, SWB=6.9, CH=13.6),
        )
    ),
    "table4": dict(
        (
            _errors("CE", 0.302, 57.7, "perplexity", clean=2.5, other=5.4),
            _errors("BCE", 0.358, 58.5, "perplexity", clean=2.5, other=5.4),
            _errors("IS", 0.206, 58.4, "perplexity", clean=2.6, other=5.5),
            _errors("NCE", 0.206, 57.9, "perplexity", clean=2.5, other=5.4),
            _errors("Mode3", 0.216, 58.3, "perplexity", clean=2.5, other=5.4),
        )
    ),
    "table5": dict(
        (
            ("count LM", {"perplexity": 82.3, "wer": {"EN": 13.7}}),
            _errors("NCE, K = 100", 0.092, 65.9, "perplexity", EN=13.3),
            _errors("NCE, K = 8000", 0.098, 55.9, "perplexity", EN=13.1),
            _errors("Mode3, K = 100", 0.089, 68.0, "perplexity", EN=13.3),
            _errors("Mode3, K = 8000", 0.114, 55.8, "perplexity", EN=13.1),
        )
    ),
    "beyond": {},
}
