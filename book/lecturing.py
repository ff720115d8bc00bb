"""What docs/lecturing.md chooses for the slides of a unit (book/slides.py): a first question, a statement to judge,
chapters of the book, sections with a star, and functions of the exercises as students get them."""

import base64
import functools
import re
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from book import drawings, sources
from grader.exercises import ROOT, given_out
from grader.gaps import TO_DO

PAGE = ROOT / "docs/lecturing.md"
FOLDERS = ("exercises/", "handson/")  # with the functions to which the page links
STAR = "\\*"  # in the heading of a section that may be left out
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
FIGURE = re.compile(
    r"!\[(?P<alt>[^\]]*)\]\((?P<path>\S+)\)|```\{figure\} (?P<file>\S+)\n(?:.*\n)*?:alt: (?P<words>.*)\n"
)
GAP = re.compile(rf"^( *)# {TO_DO}.*\n(?: *# .*\n)*", re.MULTILINE)  # the hint of a gap
TALL, PROSE_WIDTH = 18, 78  # lines of a function on a slide, and characters of a line of its comments


@dataclass
class Item:
    """A part of docs/lecturing.md on a unit: its first words, and its text; english: without translation."""

    lead: str
    text: str
    english: str

    def links(self, folder, ending):
        """[(words, path below the course's folder)] of the links to files of a folder."""
        found = [(words, target.removeprefix("../")) for words, target in LINK.findall(self.english)]
        return [(words, path) for words, path in found if path.startswith(folder) and path.endswith(ending)]


def of_unit(page, name, translate=sources.unchanged):
    """{kind: Item} of what docs/lecturing.md says of a notebook; the kind is the item's first words, in English."""
    english, other = (_items(text, name) for text in (page, translate(page)))
    return {lead: Item(*shown, text) for (lead, text), shown in zip(english, other)}


def _items(page, name):
    section = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    items = re.findall(r"^- \*\*(.+?)\*\* *(.*(?:\n  .*)*)", section[1] if section else "", re.MULTILINE)
    return [(lead.rstrip("."), " ".join(text.split())) for lead, text in items]


def without_stars(cells, wanted=()):
    """The cells of a notebook without its sections with a star, except those whose headings are in `wanted`."""
    kept, starred = [], False
    for cell in cells:
        if cell.cell_type == "markdown":
            parts = []
            for part in re.split(r"\n(?=#+ )", cell.source):
                if part.startswith("#"):
                    heading = part.split("\n")[0]
                    starred = STAR in heading and heading.replace(STAR, "").strip("# ") not in wanted
                parts += [] if starred else [part.replace(f" {STAR}", "", 1).replace(f"{STAR} ", "", 1)]
            cell.source = "\n".join(parts)
        kept += [] if starred and cell.cell_type == "code" or not cell.source else [cell]
    return kept


def chapter(path, translate):
    """A chapter of the book in Markdown, with the paths of its figures replaced by their data."""
    first, *rest = translate["page"]((ROOT / path).read_text()).split("\n\n")
    text = "\n\n".join([f"#{first}", *rest[1:]])  # without the paragraph that says for whom it is
    return FIGURE.sub(lambda found: _inside(found, translate["phrase"]), text)


def _inside(found, phrase):
    file = Path(found["path"] or found["file"]).name
    if run := sources.OF_A_RUN.fullmatch(f"figures/{file}"):
        data, kind = sources.picture(*run.groups()), "png"
    else:
        data, kind = _drawings(phrase)[file], {".svg": "svg+xml", ".png": "png"}[Path(file).suffix]
    return f"![{found['alt'] or found['words']}](data:image/{kind};base64,{base64.b64encode(data).decode()})\n\n"


@functools.cache
def _drawings(phrase):
    with tempfile.TemporaryDirectory() as folder:
        drawings.write(folder, phrase)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def function(path, name):
    """The code of a function, method or class of an exercise as students get it, or of handson. Raises LookupError."""
    text = given_out(path).text if path.startswith("exercises/") else (ROOT / path).read_text()
    found = re.search(rf"^( *)(?:def|class) {name}\b.*\n(?:\1 +.*\n|\n)*", text, re.MULTILINE)
    if not found:
        raise LookupError(f"{path} has no function {name}: correct the link in {PAGE.name}")
    code = shorter(textwrap.dedent(found[0]))
    lines = code.split("\n")
    if len(lines) > TALL:  # the part around its first gap
        begin = max(1, next((place for place, line in enumerate(lines) if TO_DO in line), 0) - TALL // 2)
        lines = [lines[0], *["    ..."] * (begin > 1), *lines[begin : begin + TALL - 2]]
    return "\n".join(lines)


def shorter(code):
    """A function for a slide: the first paragraph of its docstring, and the hints of its gaps, in lines that fit."""

    def wrapped(indent, text, begin):
        text = " ".join(text.split())
        return textwrap.fill(
            text, PROSE_WIDTH, initial_indent=indent + begin, subsequent_indent=indent + "# " * (begin[0] == "#")
        )

    code = re.sub(r"^ *raise NotImplementedError\(.*\n?", "", code, flags=re.MULTILINE)
    code = GAP.sub(lambda gap: wrapped(gap[1], re.sub(r"^ *# ", "", gap[0], flags=re.MULTILINE), "# ") + "\n", code)
    docstring = re.compile(r'^( *)"""(.*?)(?:\n *\n.*?)?"""\n', re.MULTILINE | re.DOTALL)
    return docstring.sub(lambda found: wrapped(found[1], f'{found[2]}"""', '"""') + "\n", code).rstrip()
