"""How an English word sounds, roughly: a string with a letter for each sound, made from the spelling by a few rules.

Words that are said alike mostly get the same string ("sea" and "see", "knight" and "night"), words that rhyme the same
end. Small letters sound as they are written. Of the large ones, C, J, S and T are the consonants of "church", "judge",
"shall" and "thou"; A, E, I, O and U the vowels of "day", "see", "night", "though" and "moon".
"""

import re
from functools import cache

CONSONANT = "[^aeiouAEIOU]"
RULES = tuple(
    (re.compile(pattern.replace("X", CONSONANT)), sound)
    for pattern, sound in (
        (r"'", ""),
        (r"^[kg]n", "n"),
        (r"^wr", "r"),
        (r"wh", "w"),
        (r"mb$", "m"),
        (r"eight", "At"),
        (r"igh|eigh", "I"),
        (r"[ao]ugh(?=t)", "o"),
        (r"ough$", "O"),
        (r"gh", ""),
        (r"ph", "f"),
        (r"tch|ch", "C"),
        (r"(?:ss|t|s|c)i(?=on|an|ous|al)", "S"),
        (r"sch|sh", "S"),
        (r"th", "T"),
        (r"dge|dg|j|g(?=[eiy])", "J"),
        (r"sc(?=[eiy])|c(?=[eiy])|z", "s"),
        (r"qu", "kw"),
        (r"ck|c|q", "k"),
        (r"x", "ks"),
        (r"(X)\1", r"\1"),
        (r"(?<=[aeiou]X)(?<![dt])ed$", "d"),
        (r"eye|^(X+)(?:y|ie)$", r"\1I"),
        (r"(?<=[sCJS])es$", "is"),
        *((rf"{vowel}(X)e(?=s?$)", rf"{vowel.upper()}\1") for vowel in "aiou"),
        (r"(?<=[aeiou]X)e(?=s?$)", ""),
        (r"ai|ay|ei|ey", "A"),
        (r"(?<=X)(?:ie|y)$|ea|ee", "E"),
        (r"ie|y(?=X|$)", "I"),
        (r"oo|ou|ew|ue", "U"),
        (r"oa|ow|o$", "O"),
        (r"au|aw", "o"),
        (r"(.)\1", r"\1"),
    )
)


@cache
def sounds(word: str) -> str:
    """The sounds of a word, or of a piece of one; never empty."""
    said = word
    for pattern, sound in RULES:
        said = pattern.sub(sound, said)
    return said or word
