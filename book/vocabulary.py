"""The glossary: its page in Sphinx's form, and where a text uses its words."""

import re

ENTRY = re.compile(r"^\| ([^|]+) \| (.+) \|$", re.MULTILINE)
NAMES = re.compile(r"(.*?)(（[^）]*）)?")  # of an entry; in another language, the English ones stand in brackets
KATAKANA, KANJI = "\u30a1-\u30ff", "\u4e00-\u9fff\u3005"
LETTERS = "A-Za-z0-9_-"


def glossary(text):
    """Return the page of the glossary with its table as a glossary of Sphinx, whose entries have links to each
    other."""
    head, _, _ = text.partition("\n| ")
    entries = ENTRY.findall(text)[1:]
    entries = [entry for entry in entries if not set(entry[0]) <= set("-: ")]
    known = {word.casefold(): word for names, _ in entries for word in _names(names)[0]}
    lines = ["", "```{glossary}"]
    for names, meaning in entries:
        own, english = _names(names)
        meaning = re.sub(r"[*]([^*]+)[*]", lambda found: _term(found[1], known), meaning)
        lines += [*own, f"  {english}{meaning}", ""]
    return "\n".join([head, *lines[:-1], "```", ""])


def _names(names):
    """The words of an entry, and what stands in brackets behind them."""
    own, english = NAMES.fullmatch(names).groups("")
    return re.split(", |、", own), english


def _term(words, known):
    for form in (words, words.removesuffix("s"), words.removesuffix("es")):
        if entry := known.get(form.casefold()):
            return f"{{term}}`{words} <{entry}>`" if words != entry else f"{{term}}`{entry}`"
    return f"*{words}*"


def terms(page):
    """Return the words of the glossary's page in Sphinx's form."""
    inside_it = page.partition("```{glossary}\n")[2].partition("\n```")[0]
    return [line for line in inside_it.splitlines() if line and not line.startswith(" ")]


def first_uses(text, left):
    """Return [(begin, end, term), ...] of each term whose word stands in `text` for the first time. left: casefolded
    word -> term, for the words that were not used yet. Words that are used now are removed."""
    if not left:
        return []
    words = "|".join(map(_alone, sorted(left, key=len, reverse=True)))
    found = []
    for match in re.finditer(words, text, re.IGNORECASE):
        whole = match[0].casefold()
        word = next((one for one in (whole, whole[:-1], whole[:-2]) if one in left), None)
        if word:
            found.append((*match.span(), left.pop(word)))
    return found


def _alone(word):
    """A regular expression for a word, or its plural, that is no part of a longer one. Between Japanese words, only the
    kind of the letters changes."""
    before, after = (
        next((kind for kind in (KATAKANA, KANJI) if re.match(f"[{kind}]", letter)), LETTERS)
        for letter in (word[0], word[-1])
    )
    return f"(?<![{before}]){re.escape(word)}(?:s|es)?(?![{after}])"
