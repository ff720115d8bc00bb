"""Makes a deck of slides for each unit from its notebook: `make slides`.

    python -m book.slides FOLDER [--language ja]

A deck is one HTML file without anything beside it, for 45 minutes. It has the points, questions, tables, gaps, results
and figures of the notebook's run, and what docs/lecturing.md chooses for the unit (book/lecturing.py). The remaining
text is the speaker's notes: the key n shows them, and a printed slide has them below.
"""

import argparse
import base64
import html
import io
import os
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt
from PIL import Image

from book import execute, sources
from book.lecturing import FIGURE, FOLDERS, GAP, LINK, TALL, chapter, function, of_unit, shorter, without_stars
from book.lecturing import PAGE as LECTURING
from grader.gaps import TO_DO

PAGE = (Path(__file__).parent / "slides.html").read_text()
SENTENCE = re.compile(r"(?<=[.?!)])\s+(?=[A-Z(`*])|(?<=[。？！])(?!$)")
ASKS = ("?", "？", "か。")
# A question on the student's own run
LOOKS_BACK = re.compile(r"\btable\b|^(?:Was|Is|Are) (?:your|the)\b|[Pp]rediction in|予想")
OF_MACHINE = re.compile(r"~/handson-course/(?:\.venv/lib/site-packages/)?")  # paths in a result
ASIDE = re.compile(r"(?:(?<=[.?!:] )|^)\((?:[^()]|\([^()]*\))+[.?!]\)|（[^（）]+[。？]）")  # sentences in brackets
# A sentence on how to use the notebook: not for a slide.
INSTRUCTION = re.compile(
    r"\bcells?\b|\bgaps?\b|[Ff]igure|\btable\b|terminal|[Nn]otebook|glossary|[Pp]redict|\b[Bb]elow\b|[Ss]ections?\b|minutes"
    r"|^(?:First|Fill|Open|Read|Write|Start|Compare|Try|Continue|Guess)\b|セル|図|表|ノートブック|用語集|端末|穴埋め|予想"
)
FORMULA = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
# Cells that print a log
RUNS = re.compile(r"\b(?:follow|submit|run|check|rehearse|of_job|of_script|watch)\(|" + TO_DO)
CURVES = re.compile(r"^runs\.show\(", re.MULTILINE)  # loss and accuracy of a run: no result of a lecture
NOISE = re.compile(r"^(?:Other programs|\(?The times|Warning|job |\.\./).*\n", re.MULTILINE)
POINTS, LONGEST = 4, 190  # points of a slide, and characters of a point
# Heights in percent of a slide, as slides.html has them
FULL, LINE, ROW, BETWEEN = 75, 5.9, 2.4, 2
WIDTH = 71  # characters of a line
CODE = {"": (80, 4.35), "small": (99, 3.52)}  # characters of a line of code, and its height
FLAT = 0.85  # height of a figure for its width, above which its letters are too small for a slide
markdown = MarkdownIt("commonmark").enable("table")


@dataclass
class Slide:
    """A heading, what stands below it (HTML), and what the speaker says (Markdown)."""

    heading: str
    body: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    kind: str = ""
    height: float = 0
    points: int = 0
    asked: bool = False


def deck(name, language="en"):
    """The slides of a notebook, as an HTML page."""
    translate = sources.translations(language)
    items = of_unit(LECTURING.read_text(), name, translate["page"])
    wanted = {words for item in items.values() for words, _ in item.links("notebooks/", ".ipynb")}
    notebook = sources.with_outputs(name)
    notebook.cells = without_stars(notebook.cells, wanted)
    english = [cell.source for cell in notebook.cells]
    made = slides(translate["document"](notebook).cells, items, english, translate)
    parts = "\n".join(_section(slide, number, len(made)) for number, slide in enumerate(made, 1))
    parts = FORMULA.sub(_formula, parts)
    title = html.escape(f"{name}: {made[0].heading}")
    return PAGE.replace("[LANGUAGE]", language).replace("[TITLE]", title).replace("[SLIDES]", parts)


def _formula(found):
    from latex2mathml.converter import convert  # only the environment of the book has it

    return convert(html.unescape(found[1]), display="block")


# --- The slides


def slides(cells, items=None, english=None, translate=None):
    """The slides of a notebook's cells. english: their sources without translation."""
    items, made = items or {}, []
    codes = [(item, link) for item in items.values() for link in item.links(FOLDERS, ".py")]
    for cell, source in zip(cells, english or [cell.source for cell in cells]):
        if cell.cell_type == "markdown":
            _add_text(made, cell.source)
        else:
            _add_cell(made, cell)
        for item, (words, path) in [one for one in codes if _names(source, one[1][1])]:
            codes.remove((item, (words, path)))
            made.append(Slide(made[-1].heading, notes=[item.text]))
            _add_code(made, function(path, words.strip("`")))
    last = made.index(next((one for one in reversed(made) if one.heading != made[-1].heading), made[0])) + 1
    made[last:last] = [_of_item(items[kind], kind) for kind in ("True or false?", "Afterwards") if kind in items]
    made[2:2] = _opening(items, translate)
    return _without_empty(made)


def _without_empty(made):
    """The slides without those that have nothing or one point; the next slide of the section takes their notes."""
    for slide, following in zip(made, made[1:]):
        if slide.kind != "title" and len(slide.body) == slide.points and slide.points < 2:
            slide.body.clear()
            if following.heading == slide.heading:
                following.notes[:0] = slide.notes
    return [slide for slide in made if slide.body]


def _names(source, path):
    """Whether a cell names a script, or the module of a function of handson."""
    return re.search(rf"\b{Path(path).stem}" + r"\.py" * path.startswith("exercises/"), source)


def _opening(items, translate):
    made = [_of_item(items[kind], kind) for kind in ("First question",) if kind in items]
    for item in items.values():
        for number, (_, path) in enumerate(item.links("book/pages/concepts/", ".md")):
            _add_text(made, chapter(path, translate))
        if item is items.get("On the board") and made:
            made[-1 if len(made) == 1 else 1].notes.insert(0, item.text)
    return made


def _of_item(item, kind):
    """A slide with the question or the statement of an item; the notes have the rest."""
    sentences = SENTENCE.split(_plain(item.text))
    slide = Slide(item.lead, notes=[item.text])
    if kind == "Afterwards":
        _add_list([slide], [f"- {one}" for one in sentences])
    elif kind == "True or false?":
        quoted = re.match(r"[\"“「].+?[\"”」]", _plain(item.text))
        _ask([slide], quoted[0] if quoted else sentences[0])
    else:
        asked = max((place for place, one in enumerate(sentences) if one.endswith(ASKS)), default=0)
        _add_question([slide], sentences, asked)
    return slide


def _add_text(made, text):
    """Add Markdown: a slide has its points, lists, tables, figures and questions; the notes have its paragraphs."""
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("#"):
            heading, _, block = block.partition("\n")
            made.append(Slide(heading.lstrip("# "), kind="" if made else "title"))
        elif heading := re.fullmatch(r"\*\*([^*]+)\*\*", block.strip()):
            made.append(Slide(heading[1]))
            continue
        if figure := FIGURE.match(block):
            _add_figure(made, figure["path"], figure["alt"])
        elif block.startswith("|"):
            _add_table(made, block)
        elif re.match(r"- |\d+\. ", block):
            _add_list(made, re.split(r"\n(?=- |\d+\. )", block))
        elif block.startswith("    "):
            _add_code(made, re.sub("^    ", "", block, flags=re.MULTILINE))
        elif block.startswith("$$"):
            _place(made, f"<p>{block}</p>", 3 * LINE)
        elif block:
            _add_paragraph(made, block)


def _add_paragraph(made, block):
    sentences = SENTENCE.split(ASIDE.sub("", " ".join(block.split())).strip())
    asked = [one for one in sentences if one.endswith(ASKS) and not LOOKS_BACK.search(one)]
    explains = made[-1].kind in ("figure", "code") and not asked and not block.startswith("**")
    if made[-1].kind == "figure" and not explains:
        made.append(Slide(made[-1].heading))
    made[-1].notes.append(block)
    if not explains:
        _add_question(made, sentences, sentences.index(asked[-1]) if asked else len(sentences))
        made[-1].asked = bool(asked)


def _add_question(made, sentences, last):
    """Add the question with this number and those just before it, after the points."""
    first = last
    while first and sentences[first - 1].endswith(ASKS):
        first -= 1
    _add_points(made, sentences[:first])
    if question := sentences[first : last + 1]:
        _ask(made, " ".join(question))


def _add_points(made, sentences):
    fit = [one for one in sentences if one and len(one) <= LONGEST and not one.endswith((":", "：") + ASKS)]
    fit = [one for one in fit if not INSTRUCTION.search(_plain(one))]
    fit = fit[: POINTS - made[-1].points]
    if made[-1].height + sum(map(_height, fit)) <= FULL and fit:
        made[-1].points += len(fit)
        _place(made, f"<ul>{''.join(f'<li>{_inline(one)}</li>' for one in fit)}</ul>", sum(map(_height, fit)))


def _ask(made, question):
    _place(made, f'<p class="question">{_inline(question)}</p>', 1.3 * _height(question) + 6)


def _add_list(made, items):
    tag = "ul" if items[0].startswith("-") else "ol"
    texts = [_without_instructions(" ".join(re.sub(r"^(?:- |\d+\. )", "", item).split())) for item in items]
    if sum(map(_height, texts)) > FULL:  # the first sentences of its items, and all of them in the notes
        made[-1].notes.append("\n".join(items))
        texts = [SENTENCE.split(text)[0] for text in texts]
    height = sum(map(_height, texts))
    _place(made, f"<{tag}>{''.join(f'<li>{_inline(text)}</li>' for text in texts)}</{tag}>", height)


def _without_instructions(text):
    first, *rest = SENTENCE.split(text)
    return " ".join([first, *(one for one in rest if not INSTRUCTION.search(_plain(one)))])


def _add_table(made, block):
    rows = [[_width(_plain(cell).strip()) for cell in row.strip("| ").split(" | ")] for row in block.split("\n")]
    columns = [max(12, *widths) for widths in zip(*rows)]  # which the browser makes about as wide as their texts
    room = [1.1 * WIDTH * min(1, column / sum(columns)) - 2 for column in columns]
    lines = [max(-(-width // place) for width, place in zip(row, room)) for row in rows[:1] + rows[2:]]
    height = 1.35 * sum(max(1, line) * LINE * 0.8 + ROW for line in lines)
    _place(made, markdown.render(_plain(block)), height)


def _add_cell(made, cell):
    """Add what a cell shows: a function with a gap, a question in its comment, its result, its figure."""
    if not made:
        return
    code, text = cell.source, "".join(one.text for one in cell.outputs if one.output_type == "stream")
    if code.startswith("def ") and TO_DO in code:
        _add_code(made, shorter(code))
    elif code.startswith("%%px"):
        _add_code(made, code.removeprefix("%%px\n"))
    elif (question := re.match(r"# (.+[?？].*)\n", code)) and not made[-1].asked:
        _ask(made, SENTENCE.split(question[1])[0])
    text = OF_MACHINE.sub("", NOISE.sub("", text.replace("\r", ""))).strip("\n")
    logs = RUNS.search(code) and not code.startswith("!mpiexec") or "_read(" in code
    if text and not logs and text.count("\n") >= (0 if code.startswith("%%px") else 2):
        if _code_height(text)[1] <= FULL:
            made += [Slide(made[-1].heading)] * ("question" in "".join(made[-1].body))
            _add_code(made, text, "output")
    for output in cell.outputs:
        if (png := output.get("data", {}).get("image/png")) and _is_flat(png) and not CURVES.search(code):
            _add_figure(made, f"data:image/png;base64,{png}", output.metadata["image/png"]["alt"])


def _add_code(made, code, kind="code"):
    size, height = _code_height(code)
    shown = html.escape(code, quote=False) + "\n"
    shown = GAP.sub(lambda found: f"<mark>{found[0].rstrip()}</mark>\n", shown)
    if made[-1].kind == "figure":
        made.append(Slide(made[-1].heading))
    _place(made, f'<pre class="{kind} {size}">{shown.rstrip()}</pre>', height)
    made[-1].kind = made[-1].kind or "code"


def _is_flat(png):
    width, height = Image.open(io.BytesIO(base64.b64decode(png))).size
    return height <= FLAT * width


def _add_figure(made, source, words):
    picture = f'<img src="{source}" alt="{html.escape(words)}">'
    made.append(Slide(made[-1].heading, [picture], kind="figure", height=FULL))


def _place(made, part, height):
    """Put a part on the last slide, or on a new one if it has no room."""
    height += BETWEEN
    room = FULL - 7.7 * (_width(made[-1].heading) > 40)  # a heading of two lines
    if made[-1].kind == "figure" or made[-1].body and made[-1].height + height > room:
        made.append(Slide(made[-1].heading))
    made[-1].body.append(part)
    made[-1].height += height


def _width(text):
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)


def _height(text):
    return -(-_width(_plain(text)) // WIDTH) * LINE + 1.2


def _code_height(code):
    """The size of letters of some code, and its height."""
    lines = [_width(line) for line in code.split("\n")]
    size = "small" if max(lines) > CODE[""][0] or len(lines) > TALL - 2 else ""
    width, height = CODE[size]
    return size, sum(max(1, -(-line // width)) for line in lines) * height + 3


def _inline(text):
    return markdown.renderInline(_plain(text))


def _plain(text):
    """A text without links: a slide has only their words."""
    return LINK.sub(r"\1", text)


def _section(slide, number, count):
    notes = "".join(markdown.render(_plain(note)) for note in slide.notes)
    aside = f'<aside class="notes">{notes}</aside>' if notes else ""
    level = "h1" if slide.kind == "title" else "h2"
    heading = f"<{level}>{_inline(slide.heading)}</{level}>"
    body = f'<div class="body">{"".join(slide.body)}</div>'
    foot = f'<p class="number">{number} / {count}</p>'
    return f'<section class="{slide.kind}"><div class="slide">{heading}\n{body}{foot}</div>{aside}</section>'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--language", default="en", help="code of the language. Default: en")
    options = parser.parse_args()
    os.environ["HANDSON_LANGUAGE"] = options.language  # of the drawings
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in execute.NOTEBOOKS:
        (folder / f"{name}.html").write_text(deck(name, options.language))
    print(f"The slides are in {folder}: open one of the files in a browser.")


if __name__ == "__main__":
    main()
