"""Collects the sources of the book in a folder, for Sphinx: `make book`.

    python -m book.sources FOLDER [--solutions] [--language ja]

Notebooks and pages keep their places below the course's folder, so that their links stay right. Each notebook has the
text that students get, and the outputs of its run (book/execute.py).
"""

import argparse
import base64
import copy
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat

from book import drawings, execute, moving, reference, vocabulary
from grader.exercises import ROOT, given_out
from grader.instructors.release import notebook
from handson.labels import font_of
from handson.language import ENGLISH, available, chosen, marked

TITLE = "Hands-on distributed deep learning"
PAGES = ROOT / "book/pages"
OF_THE_COURSE = (
    "docs/*.md",
    "docs/course.toml",
    "docs/figures/*.png",
    "datasets/README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
OF_A_RUN = re.compile(r"figures/(\w+)\.(\w+)\.png")  # a picture of a notebook's run: by what function it was drawn
MINUTES = re.compile(r"In about (\d+) minutes")
OF_A_UNIT = "[{name}](notebooks/{name}.ipynb), about {minutes} minutes. You will"
REAL_RUN = (
    "The outputs below are those of a real run on a machine with {cores} cores, in which the gaps were filled and the"
    " puzzles solved; so some figures show the answer. Your times and accuracies will differ. The gaps are yours to"
    " fill: `make lab` opens this notebook, {{download}}`{name}.ipynb <../files/{name}.ipynb>`."
)
DISTURBED = (
    "While the notebook ran, other programs took up to {percent} % of the cores, so some of its times are unreliable."
)
FOLDED = "{lines} more lines of output"
OF_THEME = marked(("Next", "Previous", "Home", "On this page", "Back to top"))  # Sphinx has no translation of these

# A browser takes each letter from the first font of the list that has it, and loads a file only if it must. Behind a
# font of the system that lacks a letter, Chromium can show a box for it.
LETTERS = """@font-face { font-family: Letters; font-display: block; unicode-range: U+2E80-FFEF; src: url("[FILE]"); }
@font-face { font-family: "Letters of code"; font-display: block; unicode-range: U+2E80-FFEF;
  src: local("Noto Sans CJK JP"), local("Noto Sans JP"), local("Hiragino Sans"), local("Yu Gothic"), url("[FILE]"); }
body { --font-stack: "Noto Sans CJK JP", "Noto Sans JP", "Hiragino Sans", "Yu Gothic", Letters, system-ui, sans-serif;
  --font-stack--monospace: "Letters of code", ui-monospace, "DejaVu Sans Mono", Consolas, monospace; }
"""


def unchanged(text):
    """Return the translation into English."""
    return text


def translations(language):
    """Return the functions that translate a page, a notebook and a phrase, by these names. Raises LookupError."""
    if language == ENGLISH:
        return dict.fromkeys(("page", "document", "phrase"), unchanged)
    if language not in available():
        raise LookupError(f"there is no language {language!r}: name one of {', '.join(sorted(available()))} or en")
    from grader.instructors.translation import book_text

    return {name: functools.partial(getattr(book_text, name), language) for name in ("page", "document", "phrase")}


def collect(folder, solutions=False, page=unchanged, document=unchanged, phrase=unchanged, say=print):
    """Write all sources into `folder`, which is made from nothing. solutions: show the answers of the gaps, for
    instructors. page: translates a text in Markdown; document: a notebook; phrase: a sentence."""
    shutil.rmtree(folder, ignore_errors=True)
    texts = _pages() | {"reference/commands.md": reference.commands(), "reference/functions.md": reference.functions()}
    known = {*texts, *(f"notebooks/{name}.ipynb" for name in execute.NOTEBOOKS), "docs/course.toml"}
    said = syllabus(phrase)
    for name in ("index.md", "syllabus.md"):
        for word in ("UNITS", "TABLE", "CONTENTS"):
            texts[name] = texts[name].replace(f"[{word}]", said[word])
    drawings.write(folder / "figures", phrase)
    _write(folder / "static/moving_data.js", moving.script(phrase))
    if (language := chosen()) != ENGLISH:
        letters(language, folder / "static")
    for path, text in texts.items():
        for name, function in OF_A_RUN.findall(text):
            (folder / f"figures/{name}.{function}.png").write_bytes(picture(name, function))
        text = page(text)
        if path == "syllabus.md":  # what notebooks say has their links
            text = text.replace("](../", "](")
        for word in ("HOURS", "NOTEBOOKS"):  # in sentences, which are translated with them
            text = text.replace(f"[{word}]", said[word])
        text = inside(text, path, known)
        _write(folder / path, vocabulary.glossary(text) if path == "docs/glossary.md" else text)
    index = folder / "index.md"
    index.write_text(index.read_text().replace("[VERSION]", version()))
    facts = {"title": phrase(TITLE), "folded": phrase(FOLDED), "theme": {word: phrase(word) for word in OF_THEME}}
    facts |= {"terms": vocabulary.terms((folder / "docs/glossary.md").read_text())}
    facts |= {"marked": vocabulary.ambiguous(texts["docs/glossary.md"], page(texts["docs/glossary.md"]))}
    _write(folder / "book.json", json.dumps(facts, ensure_ascii=False))
    for path in (path for pattern in OF_THE_COURSE for path in ROOT.glob(pattern) if path.suffix != ".md"):
        _copy(path, folder / path.relative_to(ROOT))
    for path in PAGES.rglob("*"):
        if path.is_file() and path.suffix != ".md":
            _copy(path, folder / path.relative_to(PAGES))
    for name in execute.NOTEBOOKS:
        if problem := execute.why_old(name):
            say(f"Note: {problem}")
            for cell in lacking(name):
                say(f"    A cell has no output: {cell.source.rstrip().splitlines()[-1].strip()}")
        shown = document(with_outputs(name, solutions, phrase))
        for cell in shown.cells:
            if cell.cell_type == "markdown":
                cell.source = inside(cell.source, f"notebooks/{name}.ipynb", known)
        _write(folder / f"notebooks/{name}.ipynb", nbformat.writes(shown))
        given = nbformat.reads(notebook(given_out(f"notebooks/{name}.ipynb").text), as_version=4)
        _write(folder / f"files/{name}.ipynb", nbformat.writes(document(given)))


def letters(language, folder):
    """Write a font with the letters of a language into `folder`, for readers who have none, and its style."""
    from matplotlib import font_manager

    if name := font_of(language):
        path = Path(font_manager.findfont(name))
        _copy(path, folder / f"letters{path.suffix}")
        _write(folder / "letters.css", LETTERS.replace("[FILE]", f"letters{path.suffix}"))


def _pages():
    found = {str(path.relative_to(PAGES)): path.read_text() for path in PAGES.rglob("*.md")}
    for pattern in OF_THE_COURSE:
        found |= {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob(pattern) if path.suffix == ".md"}
    return found


def version():
    """Return the number of the version, with the day and the name of the last commit where git knows them."""
    number = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    command = ["git", "log", "-1", "--format= (%cs, %h)"]
    return number + subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.rstrip()


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def inside(text, path, known):
    """Return a page in which links to files outside the book are replaced by their words."""
    here = Path(path).parent

    def link(found):
        target = Path("/", here, found[2]).resolve().relative_to("/")
        return found[0] if str(target) in known else found[1]

    return LINK.sub(link, text)


# --- Notebooks


def with_outputs(name, solutions=False, note=None):
    """Return a notebook as students get it, or with its solutions, and with the outputs of its run. A cell whose code
    is not that of the run has no output. note: translates what a note below the title says about the
    run, or None for no note."""
    filled, run = execute.filled(name), execute.run_of(name)
    text = given_out(f"notebooks/{name}.ipynb").text
    shown = filled if solutions else nbformat.reads(notebook(text), as_version=4)
    for outputs, cell in zip(_outputs(filled, run), shown.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs = _undisturbed(outputs or [])
            cell.metadata |= _alternative_text(cell.outputs)
            cell.execution_count = None
    for cell in shown.cells[1:]:
        if cell.cell_type == "markdown":  # a page has one title
            cell.source = re.sub(r"^# ", "## ", cell.source, flags=re.MULTILINE)
    if run and note:
        shown.cells.insert(1, nbformat.v4.new_markdown_cell(_note(name, run, note), id="real-run"))
    shown.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    return shown


def _outputs(filled, run):
    """Yield the outputs of each cell of a notebook in its run, or None for a cell whose code is not that of the run."""
    outputs = {}  # code -> the outputs of its cells, in their order
    for cell in run.cells if run else ():
        if cell.cell_type == "code":
            outputs.setdefault(execute.meaning(cell.source), []).append(cell.outputs)
    for cell in filled.cells:
        kept = outputs.get(execute.meaning(cell.source)) if cell.cell_type == "code" else None
        yield kept.pop(0) if kept else None


def lacking(name):
    """Return the cells that print or draw and have no output, because their code is not that of the run."""
    filled = execute.filled(name)
    cells = zip(_outputs(filled, execute.run_of(name)), filled.cells, strict=True)
    return [cell for found, cell in cells if cell.cell_type == "code" and found is None and execute.shows(cell.source)]


def _note(name, run, phrase):
    """Return the note that the outputs are those of a run, and that other programs disturbed it, if they did."""
    said, shares = phrase(REAL_RUN).format(name=name, cores=run.metadata["cores"]), execute.disturbed(run)
    if shares:
        said += f"\n\n{phrase(DISTURBED).format(percent=max(shares))}"
    return f"```{{note}}\n{said}\n```"


def _undisturbed(outputs):
    """Return the outputs of a cell without the lines that say that other programs disturbed it."""
    shown = copy.deepcopy(outputs)
    for output in shown:
        if "text" in output:
            output.text = execute.DISTURBED.sub("", output.text)
    return [output for output in shown if output.get("text", "some")]


def picture(name, function):
    """Return the picture (bytes of a PNG) in the run of a notebook that the last line of its cell draws by this
    function."""
    for cell in execute.run_of(name).cells:
        last = cell.source.rstrip().rpartition("\n")[2]
        if cell.cell_type == "code" and re.match(rf"(?:\w+\.)?{function}\(", last):
            for output in cell.outputs:
                if png := output.get("data", {}).get("image/png"):
                    return base64.b64decode(png)
    raise LookupError(f"no cell of {name} ends with a picture by {function}: name another one in book/pages")


def _alternative_text(outputs):
    """Return the metadata of a cell for MyST-NB: what its picture shows, in words, and its width."""
    for output in outputs:
        if options := output.get("metadata", {}).get("image/png"):
            return {"mystnb": {"image": {"alt": options["alt"], "width": f"{options['width']}px"}}}
    return {}


# --- Syllabus


def syllabus(phrase=unchanged):
    """Return what pages say of all notebooks, from the notebooks themselves: a section for each, a table, lines for the
    table of contents, their number, and all hours. phrase: translates their titles."""
    rows, units, contents, total = [], [], [], 0
    for name in execute.NOTEBOOKS:
        first = execute.filled(name).cells[0].source
        title = phrase(re.search(r"^# (.*)$", first, re.MULTILINE)[1])
        minutes = MINUTES.search(first)[1]
        before = needs(name)
        objectives = re.search(r"will\*\*\n\n((?:- .*\n(?:  .*\n)*)+)", first + "\n")[1]
        after = ", ".join(f"[{other}](#{other.replace('_', '-')})" for other in before) or "-"
        rows.append(f"| [{name}](notebooks/{name}.ipynb) | {title} | {minutes} | {after} |")
        units.append(
            f"({name.replace('_', '-')})=\n### {title}\n\n"
            f"{phrase(OF_A_UNIT).format(name=name, minutes=minutes)}\n\n{objectives}"
        )
        contents.append(f"{name.split('_')[0]} {title} <notebooks/{name}>")
        total += int(minutes)
    table = phrase("| notebook | topic | minutes | builds on |\n|---|---|---|---|") + "\n" + "\n".join(rows)
    found = {"UNITS": "\n".join(units), "TABLE": table, "CONTENTS": "\n".join(contents)}
    return found | {"HOURS": str(round(total / 60)), "NOTEBOOKS": str(len(contents))}


def needs(name):
    """Return the notebooks whose exercises or results a notebook uses."""
    source = execute.solution(f"notebooks/{name}.ipynb").read_text()
    code = "\n".join(line for line in source.splitlines() if not line.startswith("# ") or line.startswith("# !"))
    folders = set(re.findall(r"(?:exercises|EXERCISES}|\.\.)/(\d\d_\w+)", code))
    own = execute.folder_of_notebook(name)
    first = [own] if own != name else []
    return first + sorted(folders - {own})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--solutions", action="store_true", help="show the answers of the gaps, for instructors")
    parser.add_argument("--language", default=ENGLISH, help="code of the language. Default: en")
    options = parser.parse_args()
    translate = translations(options.language)
    os.environ["HANDSON_LANGUAGE"] = options.language  # the language of messages and figures
    collect(options.folder, options.solutions, **translate, say=lambda text: print(text, file=sys.stderr))


if __name__ == "__main__":
    main()
