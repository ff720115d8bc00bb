"""The glossary: its page in Sphinx's form, and where a text uses its words."""

import re

ENTRY = re.compile(r"^\| ([^|]+) \| (.+) \|$", re.MULTILINE)


def glossary(text):
    """Return the page of the glossary with its table as a glossary of Sphinx, whose entries have links to each
    other."""
    head, _, _ = text.partition("\n| ")
    entries = ENTRY.findall(text)[1:]
    entries = [entry for entry in entries if not set(entry[0]) <= set("-: ")]
    known = {word.casefold(): word for names, _ in entries for word in names.split(", ")}
    lines = ["", "```{glossary}"]
    for names, meaning in entries:
        lines += [
            *names.split(", "),
            f"  {re.sub(r'[*]([^*]+)[*]', lambda found: _term(found[1], known), meaning)}",
            "",
        ]
    return "\n".join([head, *lines[:-1], "```", ""])


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
    word -> term, of the words that were not used yet; those that are used now are removed."""
    if not left:
        return []
    words = "|".join(map(re.escape, sorted(left, key=len, reverse=True)))
    found = []
    for match in re.finditer(rf"(?<![A-Za-z0-9_-])(?:{words})(?:s|es)?(?![A-Za-z0-9_-])", text, re.IGNORECASE):
        whole = match[0].casefold()
        word = next((one for one in (whole, whole[:-1], whole[:-2]) if one in left), None)
        if word:
            found.append((*match.span(), left.pop(word)))
    return found
