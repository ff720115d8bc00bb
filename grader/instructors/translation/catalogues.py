"""The catalogues of a language, locale/LANGUAGE/LC_MESSAGES/DOMAIN.po: which texts they contain, and how they are read,
updated and checked. docs/translating.md describes the work of a translator."""

import difflib
import functools
import io
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from grader import exercises
from grader.course import UNITS
from grader.display import HEADINGS
from grader.gaps import text_lines
from grader.instructors.notebook_answers import recorded
from grader.instructors.translation.markdown_text import marks, translate_markdown
from grader.instructors.translation.message_templates import templates
from grader.instructors.translation.translated_files import translated_file
from grader.verdict import STATUSES
from handson import language as languages
from handson.catalogue import PLACEHOLDER
from handson.errors import OneSentence
from handson.files import COURSE, written_aside

# subfolders of handson/ and the domain of their messages; handson_course has those of all others
PARTS = {
    "cluster": "handson_cluster",
    "pbs": "handson_pbs",
    "notebook": "handson_notebook",
    "profiling": "handson_profiling",
    "scaling": "handson_profiling",
} | dict.fromkeys(("chainer", "cntk", "jax", "lightning", "accelerate", "pytorch", "tensorflow"), "handson_frameworks")
PAGES = {"README.md": "readme", "for_students/README.md": "for_students", "datasets/README.md": "datasets"}
REPORTS = "grader/instructors/reports"  # whose pages students receive
TOLD = re.compile(r'"([^"]+)" \| told\(')
OLD = "OUTDATED: "  # begins an old translation in what a translator gets
ALIKE = 0.6  # how much of a text that has changed is as before, so that its translation is kept as fuzzy
DATES = re.compile(
    rb'^"(?:POT-Creation-Date|PO-Revision-Date|Generated-By|Last-Translator|Language-Team)', re.MULTILINE
)
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
CODE = re.compile(r"`[^`]+`")
NUMBER_WORDS = {
    "0": "no none zero",
    "0.5": "half",
    "1": "a an one once single first each any every own only same whole it the january",
    "2": "two twice both second pair half double february",
    "3": "three third thirds thrice march",
    "4": "four fourth quarter quarters april",
    "5": "five fifth may",
    "6": "six sixth june",
    "7": "seven seventh july",
    "8": "eight eighth august",
    "9": "nine ninth september",
    "10": "ten tenth tenths october",
    "11": "eleven november",
    "12": "twelve dozen december",
    "20": "twenty",
    "30": "thirty half",
    "40": "forty",
    "100": "percent hundred million",
}


class CatalogueError(OneSentence, ValueError):
    """A problem with a catalogue or with a translator's file, in a sentence."""


@dataclass(frozen=True)
class Count:
    """The progress of a domain: its texts, its translated texts, and the words of its English texts."""

    done: int
    missing: int
    outdated: int
    words: int


@functools.cache
def domains():
    """Return the names of all domains: notebooks, then messages, then pages."""
    notebooks = dict.fromkeys(domain_of_source(path) for path in _sources())
    return (*notebooks, *_messages(), *pages().values(), *["book_words"] * (COURSE / "book").is_dir())


@functools.cache
def texts(domain):
    """Return {English text: (the files that have it)} of a domain, in the order of the files. A message is in one
    domain only, because programs read all of them together."""
    found = {}
    for path, extracted in _extracted(domain):
        for text in extracted:
            found[text] = (*found.get(text, ()), path)
    if domain in (messages := [*_messages()]):
        before = messages[: messages.index(domain)]
        found = {text: files for text, files in found.items() if not any(text in texts(other) for other in before)}
    return found


def _extracted(domain):
    """Yields (path, texts) of each file of a domain."""

    def collect(english):
        return collected.setdefault(english, english)

    for path in _sources() if domain.startswith("notebook_") else ():
        if domain_of_source(path) == domain:
            collected = {}
            translated_file((COURSE / "solutions" / path).read_text(), path.suffix, collect)
            yield path.as_posix(), collected
    for page, of_page in pages().items():
        if of_page == domain:
            collected = {}
            translate_markdown((COURSE / page).read_text(), collect)
            yield page, collected
    for path in sorted((COURSE / "book").glob("*.py")) if domain == "book_words" else ():
        yield path.relative_to(COURSE).as_posix(), templates(path.read_text())
    for path in _messages().get(domain, ()):
        yield path.as_posix(), templates((COURSE / path).read_text())
    if domain == "check_all":
        yield "grader/display.py", [*STATUSES, *HEADINGS, "not graded", "{minutes} minutes", "{first} and {second}"]
        for path in sorted((COURSE / REPORTS).glob("templates/*.html")):
            yield path.relative_to(COURSE).as_posix(), TOLD.findall(path.read_text())
        yield f"{REPORTS}/in_words.py", templates((COURSE / REPORTS / "in_words.py").read_text())
    unit = domain.removeprefix("check_")
    if unit in UNITS:
        yield f"grader/units/{unit}/recorded.json", _sentences(json.loads(recorded(unit)))


@functools.cache
def _sources():
    """Return the sources of notebooks, scripts and job scripts, as paths in solutions/."""
    inside = (path.relative_to(COURSE / "solutions") for path in sorted((COURSE / "solutions").rglob("*.[ps][yh]")))
    return [path for path in inside if not {"results", "__pycache__"} & set(path.parts)]


def domain_of_source(path):
    """Return the domain of a file of solutions/: that of its notebook, or of its unit's first notebook."""
    is_notebook = exercises.folder_of_notebook(path.stem) == path.parts[0]
    return f"notebook_{path.stem if is_notebook else path.parts[0]}"


@functools.cache
def _messages():
    """Return {domain: the modules whose messages it has}, as students receive them."""
    found = {"check_all": [], **{domain: [] for domain in ("handson_course", *PARTS.values())}}
    found |= {f"check_{unit}": [] for unit in UNITS}
    for path in sorted([*(COURSE / "grader").rglob("*.py"), *(COURSE / "handson").rglob("*.py")]):
        inside = path.relative_to(COURSE)
        if "instructors" in inside.parts:
            continue
        if inside.parts[0] == "handson":
            found[PARTS.get(inside.parts[1], "handson_course")].append(inside)
        elif inside.parts[1] != "units":
            found["check_all"].append(inside)
        elif inside.parts[2] in UNITS:
            found[f"check_{inside.parts[2]}"].append(inside)
    return found


def _sentences(value):
    """Return the texts of several words in what a check of a notebook has recorded."""
    if isinstance(value, dict):
        return [text for one in value.values() for text in _sentences(one)]
    if isinstance(value, list):
        return [text for one in value for text in _sentences(one)]
    return [value.replace("{}", "{value1}")] if isinstance(value, str) and value.count(" ") > 1 else []


def pages():
    """Return {path of a page: its domain}"""
    found = {f"docs/{path.name}": f"docs_{path.stem}" for path in sorted((COURSE / "docs").glob("*.md"))}
    of_book = sorted((COURSE / "book/pages").rglob("*.md"))
    return PAGES | found | {path.relative_to(COURSE).as_posix(): f"book_{path.stem}" for path in of_book}


def place(language, domain):
    """Return the path of a catalogue. Raises CatalogueError if the language has no folder."""
    folder = languages.LOCALE / language
    if not folder.is_dir():
        raise CatalogueError(f"there is no language {language!r:.20}: make the folder locale/{language:.20} first")
    return folder / "LC_MESSAGES" / f"{domain}.po"


def load(language, domain):
    """Return the Catalog of a domain, empty if nobody has begun it."""
    path = place(language, domain)
    if not path.exists():
        return Catalog(locale=language, domain=domain, project="handson", charset="utf-8")
    with open(path, "rb") as file:
        return read_po(file, locale=language, domain=domain)


def save(catalogue, language, domain):
    """Write a Catalog, always the same for the same texts."""
    buffer = io.BytesIO()
    write_po(buffer, catalogue, width=0, ignore_obsolete=True, include_lineno=False)
    lines = [line for line in buffer.getvalue().splitlines(keepends=True) if not DATES.match(line)]
    with written_aside(place(language, domain), durable=False) as file:
        file.writelines(lines)


def update(language, only=None):
    """Bring the catalogues of a language up to date with the texts. A changed text keeps its translation, marked as
    fuzzy. A new text takes its translation from another catalogue, if there is one."""
    memory = _memory(language)
    for domain in only or domains():
        found = texts(domain)
        old, new = load(language, domain), Catalog(locale=language, domain=domain, project="handson", charset="utf-8")
        new.header_comment = f"# {domain}: see docs/translating.md"
        new.fuzzy = False
        gone = [one.id for one in old if one.id and one.string and one.id not in found]
        for text, files in found.items():
            there = old.get(text)
            other, flags = (there.string, there.flags) if there and there.string else (memory.get(text, ""), ())
            if not other and (close := difflib.get_close_matches(text, gone, 1, ALIKE)):
                other, flags = old.get(close[0]).string, ("fuzzy",)
            new.add(text, other, locations=[(file, 1) for file in files], flags=flags)
        if place(language, domain).exists():  # a translator's first `put` makes it
            save(new, language, domain)
    for path in place(language, "*").parent.glob("*.po"):
        if path.stem not in domains():
            path.unlink()


def _memory(language):
    found = {}
    for domain in domains():
        found |= {one.id: one.string for one in load(language, domain) if one.id and one.string and not one.fuzzy}
    return found


@functools.cache
def translations(language, domain):
    """Return {English text: translation} of a domain, without what is missing or outdated."""
    return {one.id: one.string for one in load(language, domain) if one.id and one.string and not one.fuzzy}


def translator(language, domain):
    """Return a function that returns the translation of a text of a domain, or the text itself."""
    found = translations(language, domain)
    return lambda english: found.get(english, english)


@functools.cache
def everywhere(language):
    """Return a function as `translator`, for a text of any domain."""
    found = {}
    for domain in sorted(domains(), key="docs_glossary".__eq__):  # the glossary adds the English word
        found = translations(language, domain) | found
    return lambda english: found.get(english, english)


def count(language, domain):
    """Return the Count of a domain."""
    catalogue, found = load(language, domain), texts(domain)
    outdated = sum(bool(one.fuzzy and one.string) for one in catalogue if one.id in found)
    done = sum(bool(one.string and not one.fuzzy) for one in catalogue if one.id in found)
    return Count(done, len(found) - done - outdated, outdated, sum(len(text.split()) for text in found))


def to_do(language, domain):
    """Return {English text: ""} of what is missing, and {English text: OLD and the old translation} of what is
    outdated."""
    there = {one.id: one for one in load(language, domain) if one.id}
    return {
        text: f"{OLD}{there[text].string}" if text in there and there[text].string else ""
        for text in texts(domain)
        if text not in there or not there[text].string or there[text].fuzzy
    }


def put(language, domain, given):
    """Put translations into a catalogue. given: {English text: translation}. A translation that is empty or still
    marked as OLD is left out. Return a sentence for each refused translation."""
    catalogue, refused, found = load(language, domain), [], texts(domain)
    if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
        raise CatalogueError("the translations are not a JSON object of texts: give {English text: translation}")
    for english, other in given.items():
        other = "" if other.startswith(OLD) else other
        wrong = [f"{domain} has no such text: run `python -m grader catalogues`"] if english not in found else []
        if wrong := wrong or other and problems(english, other, domain):
            refused.append(f"{english!r:.80}: {'; '.join(wrong)}")
        elif other:
            message = catalogue.get(english) or catalogue.add(english)
            message.string = other
            message.flags.discard("fuzzy")
    save(catalogue, language, domain)
    update(language, [domain])  # sorts the entries in the order of the texts
    translations.cache_clear()
    return refused


def problems(english, other, domain):
    """Return sentences on the placeholders, code, numbers, links and marks of Markdown that a translation lacks or
    adds."""
    found = []
    optional = {one for one in PLACEHOLDER.findall(english) if one.endswith("?}")}
    ours, theirs = set(PLACEHOLDER.findall(english)), set(PLACEHOLDER.findall(other))
    if differ := (ours - optional - theirs) | (theirs - ours):
        found.append(f"placeholders differ: {', '.join(sorted(differ))}")
    if differ := _difference(CODE.findall(english), CODE.findall(other)):
        found.append(f"code differs: {differ}")
    if differ := _numbers(english, other):
        found.append(f"numbers differ: {differ}")
    if english[:1].isspace() != other[:1].isspace() or english[-1:].isspace() != other[-1:].isspace():
        found.append("spaces at the beginning or the end differ")
    if not domain.startswith(("check_", "handson_")) and not found and marks(english) != marks(other):
        found.append(f"Markdown differs: {_difference(marks(english).items(), marks(other).items())}")
    return found


def _difference(ours, theirs):
    ours, theirs = Counter(ours), Counter(theirs)
    return ", ".join(str(one) for one in [*(ours - theirs), *(theirs - ours)])


def _numbers(english, other):
    """Return the numbers that only one of two texts contains; "two GPUs" contains "2"."""

    def numbers(text):
        return set(NUMBER.findall(CODE.sub(" ", PLACEHOLDER.sub(" ", text))))

    words = set(re.findall(r"[a-z]+", english.lower()))
    ours, theirs = numbers(english), numbers(other)
    added = {one for one in theirs - ours if not words & set(NUMBER_WORDS.get(one, "").split())}
    return ", ".join(sorted((ours - theirs) | added))


def complete():
    """Return the domains whose complete translation a test requires."""
    return text_lines((languages.LOCALE / "complete.txt").read_text())


def path_of(page):
    return Path(COURSE, page)
