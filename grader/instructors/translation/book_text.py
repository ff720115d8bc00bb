"""The book and the slides in another language: functions that translate a page, a notebook and a phrase."""

import copy
import functools
import re

from grader.gaps import TO_DO
from grader.instructors.translation import catalogues
from grader.instructors.translation.markdown_text import slug, translate_markdown
from grader.instructors.translation.translated_files import translated_code
from handson.files import COURSE

HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
HYPHEN = re.compile(r"(?<=\w)- (?=\w)")
ANCHOR = re.compile(r"(\]\([^)#\s]*#)([\w-]+)(?=\))")


def page(language, text):
    """Return the translation of a page in Markdown. Links to headings lead to the translated headings."""
    everywhere, headings = catalogues.everywhere(language), _headings()
    own = catalogues.translations(language, domain) if (domain := _domain(text)) else {}

    def translate(english):
        return own.get(english) or everywhere(english)

    def anchor(found):
        return found[1] + (slug(translate(headings[found[2]])) if found[2] in headings else found[2])

    return ANCHOR.sub(anchor, translate_markdown(text, translate))


def _domain(text):
    """The catalogue of a page whose text is as in the course."""
    return next((domain for path, domain in catalogues.pages().items() if (COURSE / path).read_text() == text), None)


@functools.cache
def _headings():
    """Return {name of a heading in links: the heading}, of all pages."""
    return {slug(text): text for page in catalogues.pages() for text in HEADING.findall((COURSE / page).read_text())}


def document(language, notebook):
    """Return a notebook, as nbformat has it, with its texts and the comments of its code translated; its outputs
    stay."""
    translate, translated = catalogues.everywhere(language), copy.deepcopy(notebook)
    for cell in translated.cells:
        if cell.cell_type == "markdown":
            cell.source = translate_markdown(cell.source, translate)
        elif cell.cell_type == "code":
            cell.source = translated_code(cell.source, ".py", _with_mark(translate))
    return translated


def _with_mark(translate):
    """Return a function that translates a hint with the mark that precedes it in the students' files."""
    mark = f"{TO_DO}: "

    def of_comment(english):
        if not english.startswith(mark):
            return translate(english)
        hint = HYPHEN.sub("-", english[len(mark) :])  # a line may end in a word with a hyphen
        return f"{mark}{translate(hint)}"

    return of_comment


def phrase(language, text):
    """Return the translation of a figure's text."""
    return catalogues.everywhere(language)(text)
