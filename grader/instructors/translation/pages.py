"""The pages that students read, in another language."""

import os
import re
from pathlib import Path

from grader.instructors.translation import catalogues
from grader.instructors.translation.markdown_text import translate_markdown
from handson.files import COURSE, written_aside

ANCHOR = re.compile(r"\]\([^)#\s]*#([\w-]+)\)")


def translated_pages(language, folder):
    """Yields (path in what students receive, text) of each page below `folder`, whose pages may be links."""
    linked = {anchor for page in catalogues.pages() for anchor in ANCHOR.findall((COURSE / page).read_text())}
    domains = {(COURSE / page).resolve(): domain for page, domain in catalogues.pages().items()}
    for place, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(place, name)
            if domain := domains.get(path.resolve()):
                translate = catalogues.translator(language, domain)
                yield path.relative_to(folder), translate_markdown(path.read_text(), translate, linked)


def write_pages(language, course):
    """Write the pages into the course's folder, next to the notebooks, which link to them."""
    for path, text in translated_pages(language, COURSE / "for_students"):
        with written_aside(course / path, durable=False) as file:
            file.write(text.encode())
