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
    everywhere = catalogues.everywhere(language)
    own = catalogues.translations(language, domain) if (domain := _domain(text)) else {}
    return _with_anchors(language, translate_markdown(text, lambda english: own.get(english) or everywhere(english)))


def _with_anchors(language, text):
    """Return a translated text in which links to headings of pages have the names of the translated headings."""

    def anchor(found):
        if found[2] not in _headings():
            return found[0]
        heading, domain = _headings()[found[2]]
        own = catalogues.translations(language, domain)
        return found[1] + slug(own.get(heading) or catalogues.everywhere(language)(heading))

    return ANCHOR.sub(anchor, text)


def _domain(text):
    """The catalogue of a page whose text is as in the course."""
    return next((domain for path, domain in catalogues.pages().items() if (COURSE / path).read_text() == text), None)


@functools.cache
def _headings():
    """Return {name of a heading in links: (the heading, the catalogue of its page)}, of all pages."""
    return {
        slug(text): (text, domain)
        for page, domain in catalogues.pages().items()
        for text in HEADING.findall((COURSE / page).read_text())
    }


def document(language, notebook):
    """Return a notebook, as nbformat has it, with its texts and the comments of its code translated; its outputs
    stay."""
    translate, translated = catalogues.everywhere(language), copy.deepcopy(notebook)
    for cell in translated.cells:
        if cell.cell_type == "markdown":
            cell.source = _with_anchors(language, translate_markdown(cell.source, translate))
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
