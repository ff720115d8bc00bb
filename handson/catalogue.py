"""Translations of what the code says, read from locale/LANGUAGE/LC_MESSAGES/*.po (gettext's format).

The code composes its messages with f-strings, so a message that it shows is not in a catalogue as it is. The catalogue
has a template: "{gap} is {value}". A message is compared with the templates as text: what is in the place of {gap} is
taken over into the translation, and is itself translated if the catalogue has it. The values may come from a student's
code, so nothing here is a regular expression made of them, and the time is linear in the length of the message.
"""

import contextlib
import functools
import itertools
import json
import re

MESSAGES = ("check_*.po", "handson_*.po")  # the domains of what programs say
LONGEST = 5000  # characters; a longer text stays English
DEEPEST = 4  # values in values
DISTINCT = 15  # characters of a template that no other text has by chance
MOST_AT_ONCE = 5  # sentences that are one entry
MOST_COMPARED = 100_000  # templates, for one text
PREFIX = 12  # characters of a template by which it is found
ENTRY = re.compile(r'^((?:#.*\n)*)msgid ((?:".*"\n)+)msgstr ((?:".*"(?:\n|\Z))+)', re.MULTILINE)
PLACEHOLDER = re.compile(r"\{[A-Za-z_]\w*\??\}")
QUOTES = "`'\"/"  # a placeholder beside one of these is code, and stays as it is
PROSE, SEVERAL = re.compile(r"[a-z]{2,} [a-z]{2,}"), re.compile(r"[A-Za-z]{2,} | [A-Za-z]{2,}")
WORD = re.compile(r"[A-Za-z]{2,}")
APPENDED = re.compile(r"[;,:] | \(")
MOST_APPENDED = 20
BETWEEN_WIDE = re.compile(
    r"(?<=[\u3001-\u30ff\u4e00-\u9fff\uff00-\uffef]) (?=[\u3001-\u30ff\u4e00-\u9fff\uff00-\uffef])"
)
SENTENCES = re.compile(r"(?<=[.!?]) +")


def read(path):
    """Return {English text: translation} of a .po file, without what is not translated or marked as fuzzy."""
    entries = {}
    for comments, english, other in ENTRY.findall(path.read_text("utf-8", errors="replace")):
        if not other.startswith('""\n') or other.count("\n") > 1:
            if "#, fuzzy" not in comments and (key := _joined(english)) and (value := _joined(other)):
                entries[key] = value
    return entries


def _joined(strings):
    """gettext's escapes are those of JSON."""
    if "\\" in strings or strings.count("\n") > 1:
        return "".join(map(json.loads, strings.splitlines()))
    return strings.strip()[1:-1]


@functools.cache
def messages(folder):
    """Return the Messages of the catalogues in a folder."""
    entries = {}
    for pattern in MESSAGES:
        for path in sorted(folder.glob(pattern)):
            with contextlib.suppress(OSError, ValueError):  # a damaged file leaves its messages English
                entries |= read(path)
    return Messages(entries)


class Template:
    """An English text with placeholders, and its translation."""

    def __init__(self, english, other):
        self.literals = PLACEHOLDER.split(english)
        self.names = PLACEHOLDER.findall(english)
        self.other = other
        self.weight = sum(map(len, self.literals))
        self.words = len(WORD.findall(" ".join(self.literals))) + english.count("`") // 2
        self.code = {
            name
            for name, before, after in zip(self.names, self.literals, self.literals[1:])
            if before[-1:] in QUOTES and before or after[:1] in QUOTES and after
        }

    def values(self, text):
        """Return {placeholder: what the text has in its place}, or None if the text does not have this form."""
        first, *between, last = self.literals
        at, end = len(first), len(text) - len(last)
        if end < at or not text.startswith(first) or not text.endswith(last):
            return None
        found = []
        for literal in between:
            if (place := text.find(literal, at, end)) < 0:
                return None
            found.append(text[at:place])
            at = place + len(literal)
        found.append(text[at:end])
        if any(name.endswith("?}") and " " in value.strip() for name, value in zip(self.names, found)):
            return None  # grammar, such as an s, is a word at most
        return dict(zip(self.names, found))


class Messages:
    """Translates messages. entries: {English text or template: translation}."""

    def __init__(self, entries):
        self.exact, self.by_prefix, self.templates = {}, {}, {}
        for english, other in entries.items():
            english = _small(english)
            self.exact[english] = other
            if found := PLACEHOLDER.search(english):
                self.by_prefix.setdefault(english[: min(found.start(), PREFIX)], []).append(english)
        self.lengths = sorted({len(prefix) for prefix in self.by_prefix})

    def translate(self, text):
        """Return the translation of a text: of the whole, else of each line, else of each sentence."""
        self.left = MOST_COMPARED
        return text if len(text) > LONGEST else self._translate(text, DEEPEST)

    def _translate(self, text, deepest):
        inner = text.strip()
        if not inner or not WORD.search(inner):
            return text
        found = self._with_reason(inner, deepest)
        if found is None:
            found = self._whole(inner, deepest)
        if found is None and "\n" in inner:
            found = "\n".join(self._translate(line, deepest) for line in inner.split("\n"))
        if found is None:
            found = self._sentences(SENTENCES.split(inner), deepest)
        begin = text.index(inner)
        after = text[begin + len(inner) :]
        return text[:begin] + found + (after.lstrip(" ") if found[-1:] in "、。：" else after)

    def _sentences(self, parts, deepest):
        """Translate as many sentences at once as a message has."""
        done = ""
        while parts:
            for several in range(min(len(parts), MOST_AT_ONCE), 0, -1):
                english = " ".join(parts[:several])
                if (found := self._with_reason(english, deepest)) is not None:
                    break
                if (found := self._whole(english, deepest)) is not None:
                    break
            # a full stop of a wide script has its space in itself
            if found is None:
                found = self._with_appended(english, deepest) if deepest > 0 else english
            done += " " * bool(done and not _ends_wide(done)) + found
            parts = parts[several:]
        return done

    def _with_appended(self, text, deepest):
        """Translate what a message lists, or has at its end, such as "; its output is in FILE"."""
        for place in itertools.islice(APPENDED.finditer(text), MOST_APPENDED):
            if (found := self._end(text[place.start() :].strip(), deepest)) is not None:
                return self._translate(text[: place.start()], deepest - 1) + found
        for separator in ("; ", ", and "):
            parts = text.split(separator)
            if len(parts) > 1 and any(self._whole(part, deepest - 1) for part in parts):
                done = [self._translate(part, deepest - 1) for part in parts]
                return ("、" if separator != "; " and all(map(_ends_wide, done)) else separator).join(done)
        if (listed := self._listed(text, deepest)) is not None:
            return listed
        where, comma, rest = text.partition(", ")
        if comma and (found := self._whole(where, deepest)) is not None:  # such as "on rank 1, ..."
            return f"{found}{'、' if _ends_wide(found) else ', '}{self._translate(rest, deepest - 1)}"
        return text

    def _with_reason(self, text, deepest):
        """Translate "sentence: reason" if both are entries: the sentence's last value would be taken to be longer."""
        sentence, colon, reason = text.rpartition(": ")
        if not colon or _small(text) in self.exact or (found := self._whole(reason, deepest, 3)) is None:
            return None
        first = self._whole(sentence, deepest)
        return first and f"{first}{'：' if _ends_wide(first) else ': '}{found}"

    def _listed(self, text, deepest):
        """The translation of a list of conditions or names, such as "batch 32, learning rate 0.1, p3", or None."""
        parts = text.split(", ")
        done = [self._whole(part, deepest - 1) for part in parts]
        if len(parts) < 2 or not any(done):
            return None
        if any(PROSE.search(part) for part, other in zip(parts, done) if other is None):
            return None
        done = [other or part for part, other in zip(parts, done)]
        return "".join(one + ("、" if _ends_wide(one) else ", ") for one in done[:-1]) + done[-1]

    def _end(self, text, deepest):
        """The translation of the end of a message, such as "; it has 3", ": a reason" or "(line 3, with 4 ranks)"."""
        found = self._whole(text, deepest)
        if found is None and text.startswith(": ") and (found := self._whole(text[2:], deepest)) is not None:
            found = f"{'：' if _ends_wide(found) else ': '}{found}"
        if found is None and text.startswith("(") and text.endswith(")"):
            parts = text[1:-1].split(", ")
            done = [self._whole(part, deepest) for part in parts]
            if None not in done:
                found = f"（{'、'.join(done)}）" if all(map(_ends_wide, done)) else f" ({', '.join(done)})"
        return found

    def _whole(self, text, deepest, least=0):
        found = self._matched(text, deepest, least)
        if found is None and text.endswith(".") and (found := self._matched(text[:-1], deepest, least)):
            found += "。" if _ends_wide(found) else "."
        return found

    def _matched(self, text, deepest, least):
        """The translation of a text that has the form of an entry with at least so many words, or None."""
        small = _small(text)
        if (found := self.exact.get(small)) is not None:
            return found
        if deepest <= 0 or self.left <= 0:
            return None
        candidates = [one for length in self.lengths for one in self.by_prefix.get(small[:length], ())]
        for template in sorted(map(self._template, candidates), key=lambda one: -one.weight):
            self.left -= 1
            if template.words >= least:
                values = template.values(small if template.literals[0] else text)
                if values is not None and not self._doubtful(template, values, deepest - 1):
                    return self._filled(template, values, deepest - 1)
        return None

    def _doubtful(self, template, values, deepest):
        """Whether a text has the form of a template by chance: only one word or two, such as "of", are the same, and
        what else it says is not a value that is known."""
        if template.words > 2 or template.weight >= DISTINCT:
            return False
        form = PROSE if template.words == 2 else SEVERAL
        return any(
            "; " in value or form.search(value) and self._whole(value.strip(), deepest, template.words) is None
            for value in values.values()
        )

    def _template(self, english):
        """The Template of a text: made when a message may have this form, since most are never needed."""
        if english not in self.templates:
            self.templates[english] = Template(english, self.exact[english])
        return self.templates[english]

    def _filled(self, template, values, deepest):
        stop = ""

        def value(found):
            nonlocal stop
            name, text = found[0], values.get(found[0], found[0])
            if name in template.code or deepest <= 0:
                return text
            other = self._translate(text, deepest)
            if other.endswith("。") and text.endswith(".") and not template.other.endswith(name):
                other, stop = other[:-1], "。"  # of the sentence: the value stands at its end only in English
            return other

        filled = BETWEEN_WIDE.sub("", PLACEHOLDER.sub(value, template.other))
        return filled if filled.endswith("。") else filled + stop


def _ends_wide(text):
    """Whether a text ends with a letter of Chinese, Japanese or Korean."""
    return text[-1:] >= "\u2e80"


def _small(text):
    """A message begins with a capital letter in some places, and in others not."""
    return text[:1].lower() + text[1:]
