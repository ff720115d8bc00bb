"""Makes a deck of slides for each unit from its notebook: `make slides`.

    python -m book.slides FOLDER [--language ja]

A deck is one HTML file without anything beside it. It has the notebook's questions, tables and lists, and the figures
of its run, for 45 minutes; the sections with a star are left out. The text of the notebook and what docs/teaching.md
says of the unit are the speaker's notes: the key n shows them, and a printed slide has them below.
"""

import argparse
import html
import re
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

from book import execute, sources
from grader.exercises import ROOT

PAGE = (Path(__file__).parent / "slides.html").read_text()
SENTENCE = re.compile(r"(?<=[.?!)])\s+(?=[A-Z(`*])")
STAR = "\\*"  # the heading of an optional section contains it
LINK = re.compile(r"\[([^\]]+)\]\([^)\s]+\)")
FORMULA = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
LONGEST = 260  # characters of the text that stands on a slide above its question
FULL = 500  # characters of a slide
markdown = MarkdownIt("commonmark").enable("table")


@dataclass
class Slide:
    """A heading, what stands below it (HTML), and what the speaker says (Markdown)."""

    heading: str
    body: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    kind: str = ""


def deck(name, language="en"):
    """Return the slides of a notebook, as an HTML page."""
    translate = sources.translations(language)
    shown = translate["document"](sources.with_outputs(name))
    said = of_teaching(translate["page"]((ROOT / "docs/teaching.md").read_text()), name)
    made = slides(shown.cells, said)
    parts = "\n".join(_section(slide, number, len(made)) for number, slide in enumerate(made, 1))
    parts = FORMULA.sub(_formula, parts)
    title = html.escape(f"{name}: {made[0].heading}")
    return PAGE.replace("[LANGUAGE]", language).replace("[TITLE]", title).replace("[SLIDES]", parts)


def _formula(found):
    from latex2mathml.converter import convert  # only the environment of the book has it

    return convert(found[1], display="block")


def of_teaching(page, name):
    """Return the section of docs/teaching.md on what to say in class about a notebook, or "" if there is none."""
    found = re.search(rf"^- \*\*{name[:2]}\.\*\* (.*(?:\n  .*)*)", page, re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def slides(cells, said=""):
    """Return the slides of a notebook's cells. `said` begins the notes of the first slide."""
    made, starred = [], False
    for cell in cells:
        if cell.cell_type == "markdown":
            for heading, blocks in _sections(cell.source):
                if heading is not None:
                    starred = STAR in heading
                    if not starred:
                        made.append(Slide(heading, kind="" if made else "title"))
                if not starred:
                    _add(made, blocks)
        elif not starred and made:
            for output in cell.outputs:
                if png := output.get("data", {}).get("image/png"):
                    _add_figure(made, png, output.metadata["image/png"]["alt"])
    made = [slide for slide in made if slide.body]
    if said:
        made[0].notes.insert(0, said)
    return made


def _sections(source):
    """Return [(heading or None, blocks of Markdown)] of a cell."""
    found = [(None, [])]
    for block in re.split(r"\n\s*\n", source.strip()):
        lines = block.split("\n")
        if re.match("#+ ", lines[0]):
            found.append((lines[0].lstrip("# "), []))
            lines = lines[1:]
        if lines:
            found[-1][1].append("\n".join(lines))
    return found


def _add(made, blocks):
    """Add blocks of text to the last slide: tables, lists and questions are shown, all other text is said."""
    for block in blocks:
        slide = made[-1]
        if block.startswith(("|", "- ", "1. ", "    ", "$$")):
            if slide.kind in ("full", "figure") or _length(slide) + len(block) > FULL:
                made.append(slide := Slide(slide.heading))
            slide.body.append(_html(block))
            slide.kind = slide.kind or "full"
            continue
        sentences = SENTENCE.split(" ".join(block.split()))
        asked = [place for place, one in enumerate(sentences) if one.endswith("?") and not one.startswith("(")]
        if asked and (slide.kind == "figure" or _length(slide) + len(block) > FULL):
            made.append(slide := Slide(slide.heading))
        slide.notes.append(block)
        lead = 0
        if not slide.body:
            lead = _as_lead(sentences, asked)
            slide.body += [_html(" ".join(sentences[:lead]))] * bool(lead)
        if asked:
            question = " ".join(sentences[max(asked[-1] - 1, min(lead, asked[-1])) : asked[-1] + 1])
            slide.body.append(f'<p class="question">{markdown.renderInline(_plain(question))}</p>')


def _as_lead(sentences, asked):
    """Return how many of a block's sentences its slide shows: those before its last question, up to a length."""
    count = 0
    for one in sentences[: asked[-1] if asked else None]:
        if len(" ".join(sentences[: count + 1])) > LONGEST or one.endswith(":"):
            break
        count += 1
    return count


def _length(slide):
    """Return the number of characters on a slide."""
    return sum(len(re.sub("<[^>]*>", "", part)) for part in slide.body)


def _add_figure(made, png, words):
    last = made[-1]
    picture = f'<img src="data:image/png;base64,{png}" alt="{html.escape(words)}">'
    made.append(Slide(last.heading, [picture], kind="figure"))


def _html(block):
    if FORMULA.fullmatch(block.strip()):
        return f"<p>{block}</p>"
    return markdown.render(_plain(block))


def _plain(block):
    """Return a text with each link replaced by its words."""
    return LINK.sub(r"\1", block)


def _section(slide, number, count):
    notes = "".join(_html(note) for note in slide.notes)
    aside = f'<aside class="notes">{notes}</aside>' if notes else ""
    body = "\n".join(slide.body)
    level = "h1" if slide.kind == "title" else "h2"
    heading = f"<{level}>{markdown.renderInline(_plain(slide.heading))}</{level}>"
    foot = f'<p class="number">{number} / {count}</p>'
    return f'<section class="{slide.kind}"><div class="slide">{heading}\n{body}{foot}</div>{aside}</section>'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--language", default="en", help="code of the language. Default: en")
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in execute.NOTEBOOKS:
        (folder / f"{name}.html").write_text(deck(name, options.language))
    print(f"The slides are in {folder}: open one of the files in a browser.")


if __name__ == "__main__":
    main()
