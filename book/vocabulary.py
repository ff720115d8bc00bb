"""The glossary: its page in Sphinx's form, and where a text uses its words."""

import re

ENTRY = re.compile(r"^\| ([^|]+) \| (.+) \|$", re.MULTILINE)
NAMES = re.compile(r"(.*?)(（[^）]*）)?")  # of an entry; in another language, the English ones stand in brackets
KATAKANA, KANJI = "\u30a1-\u30ff", "\u4e00-\u9fff\u3005"
LETTERS = "A-Za-z0-9_-"
# Words with another meaning besides that of their entry. They are links only where an author has set them in *italics*.
AMBIGUOUS = set(
    "batch checkpoint chunk criterion lecture loss overlap partition profile queue residual resume scatter stage step"
    " unit waiting".split()
)


def glossary(text):
    """Return the page of the glossary with its table as a glossary of Sphinx, whose entries have links to each
    other."""
    head, _, _ = text.partition("\n| ")
    entries = _entries(text)
    known = {word.casefold(): word for own, _, _ in entries for word in own}
    lines = ["", "```{glossary}"]
    for own, english, meaning in entries:
        meaning = re.sub(r"[*]([^*]+)[*]", lambda found: _term(found[1], known), meaning)
        lines += [*own, f"  {english}{meaning}", ""]
    return "\n".join([head, *lines[:-1], "```", ""])


def _entries(text):
    """Return [(words, what stands in brackets behind them, meaning), ...] of the table."""
    found = []
    for names, meaning in ENTRY.findall(text)[1:]:
        if not set(names) <= set("-: "):
            own, english = NAMES.fullmatch(names).groups("")
            found.append((re.split(", |、", own), english, meaning))
    return found


def ambiguous(english, text):
    """Return the words of the glossary, in the language of its page `text`, that are AMBIGUOUS in English."""
    found = []
    for (names, _, _), (translated, _, _) in zip(_entries(english), _entries(text), strict=True):
        pairs = zip(names, translated) if len(names) == len(translated) else [(names[0], one) for one in translated]
        found += [word for name, word in pairs if name in AMBIGUOUS]
    return found


def _term(words, known):
    for form in (words, words.removesuffix("s"), words.removesuffix("es")):
        if entry := known.get(form.casefold()):
            return f"{{term}}`{words} <{entry}>`" if words != entry else f"{{term}}`{entry}`"
    return f"*{words}*"


def terms(page):
    """Return the words of the glossary's page in Sphinx's form."""
    inside_it = page.partition("```{glossary}\n")[2].partition("\n```")[0]
    return [line for line in inside_it.splitlines() if line and not line.startswith(" ")]


def first_uses(text, words, left):
    """Return [(begin, end, word), ...] of each of the `words` that stands in `text` for the first time. left: the words
    that were not used yet; those that are used now are removed. The longest word counts: "batch size" is no use of
    "batch". Capitals count, except at the start: "zeros" are no ZeRO."""
    if not left:
        return []
    longest = "|".join(map(_alone, sorted(words, key=len, reverse=True)))
    found = []
    for match in re.finditer(longest, text, re.IGNORECASE):
        if (word := word_of(match[0], words)) in left:
            left.remove(word)
            found.append((*match.span(), word))
    return found


def _alone(word):
    """Return a regular expression for a word, or its plural, that is no part of a longer one. Between Japanese words,
    only the kind of the letters changes."""
    before, after = (
        next((kind for kind in (KATAKANA, KANJI) if re.match(f"[{kind}]", letter)), LETTERS)
        for letter in (word[0], word[-1])
    )
    return f"(?<![{before}]){re.escape(word)}(?:s|es)?(?![{after}])"


def word_of(text, words):
    """Return the word of the glossary that stands here, perhaps in the plural or at the start of a sentence, or
    None."""
    forms = [text, text.removesuffix("s"), text.removesuffix("es")]
    return next((one for one in (*forms, *(form[:1].lower() + form[1:] for form in forms)) if one in words), None)
