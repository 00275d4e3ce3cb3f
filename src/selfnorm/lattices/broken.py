"""An utterance that could not be read: reported, counted, and the rest of the batch is done."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Broken:
    utterance: str  # as far as it is known: else the name of the file
    sentence: str  # what is wrong, where (file, line or byte), what to do
