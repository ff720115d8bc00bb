"""The texts of unit 10_challenge: sentences in an invented language that depends on a seed.

Each seed has its own words, so parameters that were trained on one text do not help with another. A few words are
frequent, as in real languages. The texts are random, so they are free for any use.
"""

import random
from itertools import accumulate

CONSONANTS, VOWELS = "bcdfghjklmnprstvz", "aeiou"
SYLLABLES = 40  # drawn for a language; some are drawn twice
NOUNS, VERBS, ADJECTIVES = 60, 30, 20


def made_text(seed, size):
    """Return `size` bytes of ASCII text in language number `seed`."""
    chance = random.Random(seed)
    syllables = sorted({chance.choice(CONSONANTS) + chance.choice(VOWELS) for _ in range(SYLLABLES)})
    nouns, verbs, adjectives = (_words(chance, syllables, count) for count in (NOUNS, VERBS, ADJECTIVES))
    sentences, length = [], 0
    while length < size:
        sentences.append(_sentence(chance, nouns, verbs, adjectives))
        length += len(sentences[-1])
    return "".join(sentences)[:size].encode()


def _words(chance, syllables, count):
    """Return (words, cumulative weights): the n-th word is drawn 1/n times as often as the first one."""
    words = set()
    while len(words) < count:
        words.add("".join(chance.choices(syllables, k=chance.choice((2, 2, 3)))))
    return chance.sample(sorted(words), count), list(accumulate(1 / place for place in range(1, count + 1)))


def _sentence(chance, nouns, verbs, adjectives):
    def draw(words):
        return chance.choices(words[0], cum_weights=words[1])[0]

    def somebody():
        return [draw(adjectives), draw(nouns)] if chance.random() < 0.4 else [draw(nouns)]

    words = [*somebody(), draw(verbs)]
    words += somebody() if chance.random() < 0.8 else []
    return " ".join(words).capitalize() + (". " if chance.random() < 0.9 else ".\n")
