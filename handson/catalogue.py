"""Translate the messages of the code with the catalogues locale/LANGUAGE/LC_MESSAGES/*.po (gettext's format).

The code composes its messages with f-strings, so a catalogue contains templates instead of messages, such as "{gap} is
{value}". A message is compared with the templates as text. The text at {gap} is copied into the translation, after its
own translation if the catalogue has one. If a message has the form of several templates, the translation with the
fewest English words is shown. Values may come from a student's code, so no regular expression is built from them, and
the number of comparisons is limited.
"""

import contextlib
import functools
import itertools
import json
import re

MESSAGES = ("check_*.po", "handson_*.po")  # the catalogues with the messages of programs
LONGEST = 5000  # characters; a longer text stays English
DEEPEST = 6  # depth of values that contain values
DISTINCT = 15  # a template with so many characters matches no other text by chance
MOST_AT_ONCE = 5  # an entry has at most so many sentences
MOST_COMPARED = 100_000  # templates that are compared with one text
PREFIX = 12  # templates are found by so many of their first characters
ENTRY = re.compile(r'^((?:#.*\n)*)msgid ((?:".*"\n)+)msgstr ((?:".*"(?:\n|\Z))+)', re.MULTILINE)
PLACEHOLDER = re.compile(r"\{[A-Za-z_]\w*\??\}")
QUOTES = "`'\"/"  # a placeholder next to one of these is code, and is not translated
SEVERAL = re.compile(r"[A-Za-z]{2,} | [A-Za-z]{2,}")  # a word, and more
WORD = re.compile(r"[A-Za-z]{2,}")
CODE, ENGLISH = re.compile(r"`[^`]*`|'[^']*'"), re.compile(r"(?<![\w./=-])[a-z]{2,}(?![\w/=(])")
NUMBER = re.compile(r"[^A-Za-z]*(?: [A-Za-z -]+)?")
APPENDED = re.compile(r"[;,:] | \(")
MOST_APPENDED = 20
SEPARATORS = {"; ": "；", ", and ": "、", ", ": "、", " and ": "、"}  # separator of a list -> in a wide script
PAIRS = ("()", "[]", "{}", "``", "''", '""')
COLUMNS = re.compile(r"( {2,})")
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
    """Return the text of an entry's strings. (gettext has the same escapes as JSON.)"""
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
        self.words = len(WORD.findall(" ".join(self.literals))) + english.count("`") // 2 + english.count("{number")
        self.code = {
            name
            for name, before, after in zip(self.names, self.literals, self.literals[1:])
            if before[-1:] in QUOTES and before or after[:1] in QUOTES and after
        }

    def values(self, text):
        """Yield {placeholder: its value in the text}, if the text has this form: first with the shortest values at the
        front, then with the shortest values at the end."""
        first, *between, last = self.literals
        at, end = len(first), len(text) - len(last)
        if end < at or not text.startswith(first) or not text.endswith(last):
            return
        before = None
        for found in (_split(text[at:end], between), _split_from_end(text[at:end], between)):
            if found and found != before and all(map(_fits, self.names, found)):
                yield dict(zip(self.names, found))
            before = found


def _fits(name, value):
    """Return whether a value can be one of this placeholder. An ending such as a plural s has at most one word;
    {number} is a number, or counts things, as in "2 days"."""
    if name.endswith("?}"):
        return " " not in value.strip()
    return not name.startswith("{number") or NUMBER.fullmatch(value)


def _split(text, literals):
    """Return the parts of a text between the first occurrences of some texts, or None."""
    found = []
    for literal in literals:
        part, there, text = text.partition(literal)
        if not there:
            return None
        found.append(part)
    return [*found, text]


def _split_from_end(text, literals):
    found = []
    for literal in reversed(literals):
        text, there, part = text.rpartition(literal)
        if not there:
            return None
        found.append(part)
    return [text, *reversed(found)]


class Messages:
    """The translations of messages. entries: {English text or template: translation}."""

    def __init__(self, entries):
        self.exact, self.by_prefix, self.templates = {}, {}, {}
        for english, other in entries.items():
            english = _small(english)
            self.exact[english] = other
            if found := PLACEHOLDER.search(english):
                self.by_prefix.setdefault(english[: min(found.start(), PREFIX)], []).append(english)
        self.wide = any(map(_ends_wide, entries.values()))
        self.columns = [one for one in self.exact if "  " in one and PLACEHOLDER.search(one)]
        self.lengths = sorted({len(prefix) for prefix in self.by_prefix})

    def translate(self, text):
        """Return the translation of a text. If the whole text has none, each line is translated, and otherwise each
        sentence."""
        self.left, self.found = MOST_COMPARED, {}
        return text if len(text) > LONGEST else self._translate(text, DEEPEST)

    def _translate(self, text, deepest):
        inner = text.strip()
        if not inner or not WORD.search(inner):
            return text
        if "  " in inner and "\n" not in inner and not self._has_columns(_small(inner)):
            return "".join(self._translate(one, deepest) for one in COLUMNS.split(text))
        found = _best(
            lambda: self.exact.get(_small(inner)),
            lambda: self._with_reason(inner, deepest),
            lambda: self._listed(inner, deepest, self._sentence),
            lambda: self._and_end(inner, deepest),
            lambda: self._whole(inner, deepest),
            lambda: self._about_code(inner, deepest),
            lambda: self._listed(inner, deepest, self._known),
            lambda: "\n".join(self._translate(line, deepest) for line in inner.split("\n")) if "\n" in inner else None,
            lambda: self._sentences(SENTENCES.split(inner), deepest),
        )
        begin = text.index(inner)
        after = text[begin + len(inner) :]
        return text[:begin] + found + (after.lstrip(" ") if found[-1:] in "、。：" else after)

    def _has_columns(self, text):
        """Whether a text with columns is an entry as a whole, rather than each of its columns."""
        return text in self.exact or any(any(self._template(one).values(text)) for one in self.columns)

    def _sentences(self, parts, deepest):
        """Translate sentences, as many at once as an entry contains."""
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
                return (SEPARATORS[separator] if all(map(_ends_wide, done)) else separator).join(done)
        for separator, wide in ((", ", "、"), (": ", "：")):
            where, there, rest = text.partition(separator)
            if there and (found := self._whole(where, deepest)) is not None:  # such as "on rank 1, ..."
                there = "" if found.endswith(wide) else wide if _ends_wide(found) else separator
                return f"{found}{there}{self._translate(rest, deepest - 1)}"
        return text

    def _listed(self, text, deepest, known):
        """Translate a list, such as "a rank, gloo and MPI", whose items are all known."""
        for separator, wide in SEPARATORS.items():
            parts = text.split(separator)
            if separator == " and " and known == self._sentence:
                continue  # which joins names, as in "ranks 0 and 1 on node1"
            if len(parts) > 1 and deepest > 0 and all(map(_balanced, parts)):
                done = [known(part, deepest - 1) for part in parts]
                if None not in done:
                    return (wide if self.wide else separator).join(done)
        return None

    def _sentence(self, text, deepest):
        return self._whole(text, deepest) if " " in text else None

    def _known(self, text, deepest):
        """Return the translation of a text in the catalogue, or of a list of such texts. A name is not translated."""
        if (found := self._whole(text, deepest)) is None:
            found = self._listed(text, deepest, self._known)
        return text if found is None and not SEVERAL.search(text) else found

    def _about_code(self, text, deepest):
        """Translate "`code` does something" if the catalogue has an entry for "does something"."""
        code, there, what = text[1:].partition("` ")
        found = self._whole(what, deepest) if there and text.startswith("`") and "`" not in code else None
        return found and _spaced(f"`{code}` ", found)

    def _with_reason(self, text, deepest):
        """Translate "sentence: reason" if both are entries. Otherwise, the reason would count as a part of the
        sentence's last value."""

        def split(at):
            first, found = self._whole(text[:at], deepest), self._whole(text[at + 2 :], deepest, 3)
            # in Japanese, a verb ends with a letter of hiragana
            colon = "。" if "\u3041" <= (first or " ")[-1] <= "\u309f" else "：" if _ends_wide(first or " ") else ": "
            return first and found and first + colon + found

        if _small(text) in self.exact:
            return None
        places = [found.start() for found in itertools.islice(re.finditer(": ", text), MOST_APPENDED)]
        return _best(*(functools.partial(split, at) for at in places))

    def _and_end(self, text, deepest):
        """Translate a sentence and its end, such as "; it has 3", if both are entries."""
        for place in reversed(list(itertools.islice(APPENDED.finditer(text), MOST_APPENDED))):
            at = place.start()
            if (end := self._end(text[at:].strip(), deepest)) is not None:
                before = self._and_end(text[:at], deepest)
                before = self._whole(text[:at], deepest) if before is None else before
                return before and _spaced(before, end)
        return None

    def _end(self, text, deepest):
        """Return the translation of the end of a message, such as "; it has 3", ": a reason" or "(line 3, with 4
        ranks)"."""
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
        """Return the translation of a text that has the form of an entry with at least `least` words, or None."""
        asked = text, deepest, least
        if asked not in self.found:
            self.found[asked] = self._match(*asked)
        return self.found[asked]

    def _match(self, text, deepest, least):
        small = _small(text)
        if (found := self.exact.get(small)) is not None:
            return found
        if deepest <= 0 or self.left <= 0:
            return None
        candidates = [one for length in self.lengths for one in self.by_prefix.get(small[:length], ())]
        return _best(
            *(
                functools.partial(self._as, template, values, deepest - 1)
                for template in sorted(map(self._template, candidates), key=lambda one: -one.weight)
                if template.words >= least
                for values in self._compared(template, small if template.literals[0] else text)
            )
        )

    def _compared(self, template, text):
        self.left -= 1
        return template.values(text)

    def _as(self, template, values, deepest):
        """Return the translation of a text with the form of a template, or None if it has this form only by chance."""
        if self.left <= 0 or self._doubtful(template, values, deepest):
            return None
        return self._filled(template, values, deepest)

    def _doubtful(self, template, values, deepest):
        """Return whether a text has the form of a template only by chance: they share only one or two words, such as
        "of", and the remaining words of the text are not a known value."""
        if template.words > 2 or template.weight >= DISTINCT:
            return False
        return any(
            SEVERAL.search(value)
            and self._whole(value.strip(), deepest, template.words) is None
            and self._listed(value.strip(), deepest, self._known) is None
            for value in values.values()
        )

    def _template(self, english):
        """Return the Template of a text. It is created when a message may have this form, because most are never
        needed."""
        if english not in self.templates:
            self.templates[english] = Template(english, self.exact[english])
        return self.templates[english]

    def _filled(self, template, values, deepest):
        literals, names = PLACEHOLDER.split(template.other), PLACEHOLDER.findall(template.other)
        done = literals[0]
        for name, literal in zip(names, literals[1:]):
            text = values.get(name, name)
            if name not in template.code and deepest > 0:
                text = self._translate(text, deepest)
            done = _spaced(_spaced(done, text), literal)
        return done


def _best(*ways):
    """Call each function of `ways`, which translate the same text. Return the translation with the fewest English
    words, or None if all return None."""
    best, least = None, None
    for way in ways:
        if (found := way()) is not None and (best is None or _english(found) < least):
            best, least = found, _english(found)
        if least == 0:
            break
    return best


def _english(text):
    """The number of words of a text that look English."""
    return len(ENGLISH.findall(CODE.sub(" ", text)))


def _balanced(text):
    """Whether a text has all of its brackets and quotes: otherwise it is a part of code."""
    text = text.replace("'s", "")
    return all(
        text.count(begin) == text.count(end) and (begin != end or text.count(end) % 2 == 0) for begin, end in PAIRS
    )


def _ends_wide(text):
    """Return whether a text ends with a letter of Chinese, Japanese or Korean."""
    return text[-1:] >= "\u2e80"


def _spaced(text, more):
    """Join two texts: with a space between a letter of a wide script and one of another, but not between wide ones."""
    before, after = text.rstrip(" "), more.lstrip(" ")
    if not before or not after or "\n" in before[-1] + after[0]:
        return text + more
    wide = [letter >= "\u2e80" for letter in (before[-1], after[0])]
    if all(wide):
        return before + after
    if any(wide) and (before[-1] if wide[0] else after[0]).isalnum():
        return f"{before} {after}"
    return text + more


def _small(text):
    """Return a text with a small first letter, because a message begins with a capital letter only in some places."""
    return text[:1].lower() + text[1:]
