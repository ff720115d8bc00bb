"""The glossary: its page in Sphinx's form, and where a text uses its words."""

import re

ENTRY = re.compile(r"^\| ([^|]+) \| (.+) \|$", re.MULTILINE)
NAMES = re.compile(r", (?![^（]*）)")  # between the names of an entry; a translation has the English ones in brackets
# Words with another meaning besides that of their entry. They are links only where an author has set them in *italics*.
AMBIGUOUS = set(
    "batch checkpoint chunk criterion lecture loss overlap partition profile queue residual resume scatter stage step"
    " unit waiting".split()
)


def glossary(text):
    """The page of the glossary with its table as a glossary of Sphinx, whose entries have links to each other."""
    head, _, _ = text.partition("\n| ")
    entries = _entries(text)
    known = {word.casefold(): word for names, _ in entries for word in names}
    lines = ["", "```{glossary}"]
    for names, meaning in entries:
        lines += [*names, f"  {re.sub(r'[*]([^*]+)[*]', lambda found: _term(found[1], known), meaning)}", ""]
    return "\n".join([head, *lines[:-1], "```", ""])


def _entries(text):
    """[(names, meaning), ...] of the table."""
    found = ENTRY.findall(text)[1:]
    return [(NAMES.split(names), meaning) for names, meaning in found if not set(names) <= set("-: ")]


def ambiguous(english, text):
    """The words of the glossary, in the language of its page `text`, that are AMBIGUOUS in English."""
    found = []
    for (names, _), (translated, _) in zip(_entries(english), _entries(text), strict=True):
        pairs = zip(names, translated) if len(names) == len(translated) else [(names[0], one) for one in translated]
        found += [word for name, word in pairs if name in AMBIGUOUS]
    return found


def _term(words, known):
    for form in (words, words.removesuffix("s"), words.removesuffix("es")):
        if entry := known.get(form.casefold()):
            return f"{{term}}`{words} <{entry}>`" if words != entry else f"{{term}}`{entry}`"
    return f"*{words}*"


def terms(page):
    """The words of the glossary's page in Sphinx's form."""
    inside_it = page.partition("```{glossary}\n")[2].partition("\n```")[0]
    return [line for line in inside_it.splitlines() if line and not line.startswith(" ")]


def first_uses(text, words, left):
    """[(begin, end, word), ...] of each of the `words` that stands in `text` for the first time. left: the words that
    were not used yet; those that are used now are removed. The longest word counts: "batch size" is no use of "batch".
    Capitals count, except at the start: "zeros" are no ZeRO."""
    if not left:
        return []
    longest = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    found = []
    for match in re.finditer(rf"(?<![A-Za-z0-9_-])(?:{longest})(?:s|es)?(?![A-Za-z0-9_-])", text, re.IGNORECASE):
        if (word := word_of(match[0], words)) in left:
            left.remove(word)
            found.append((*match.span(), word))
    return found


def word_of(text, words):
    """The word of the glossary that stands here, perhaps in the plural or at the start of a sentence; or None."""
    forms = [text, text.removesuffix("s"), text.removesuffix("es")]
    return next((one for one in (*forms, *(form[:1].lower() + form[1:] for form in forms)) if one in words), None)
