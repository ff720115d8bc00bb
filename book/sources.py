"""Collects the sources of the book in a folder, for Sphinx: `make book`.

    python -m book.sources FOLDER [--solutions]

Notebooks and pages keep their places below the course's folder, so that their links stay right. Each notebook has the
text that students get, and the outputs of its run (book/execute.py).
"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

import nbformat

from book import execute, reference
from grader.exercises import ROOT, given_out
from grader.instructors.release import notebook

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
MINUTES = re.compile(r"In about (\d+) minutes")
REAL_RUN = """```{{note}}
The outputs below are those of a real run on a machine with {cores} cores. Your times and accuracies will differ.
The gaps are yours to fill: `make lab` opens this notebook, `notebooks/{name}.ipynb`.
```"""


def unchanged(text):
    """The translation into English."""
    return text


def collect(folder, solutions=False, page=unchanged, document=unchanged, say=print):
    """Write all sources into `folder`, which is made from nothing. solutions: show the answers of the gaps, for
    instructors. page: translates a text in Markdown; document: translates a notebook."""
    shutil.rmtree(folder, ignore_errors=True)
    texts = _pages() | {
        "syllabus.md": syllabus(),
        "reference/commands.md": reference.commands(),
        "reference/functions.md": reference.functions(),
    }
    known = {*texts, *(f"notebooks/{name}.ipynb" for name in execute.NOTEBOOKS), "docs/course.toml"}
    for path, text in texts.items():
        text = inside(page(text), path, known)
        _write(folder / path, glossary(text) if path == "docs/glossary.md" else text)
    (folder / "terms.json").write_text(json.dumps(terms((folder / "docs/glossary.md").read_text()), ensure_ascii=False))
    for path in (path for pattern in OF_THE_COURSE for path in ROOT.glob(pattern) if path.suffix != ".md"):
        _copy(path, folder / path.relative_to(ROOT))
    for path in PAGES.rglob("*"):
        if path.is_file() and path.suffix != ".md":
            _copy(path, folder / path.relative_to(PAGES))
    for name in execute.NOTEBOOKS:
        if problem := execute.why_old(name):
            say(f"Note: {problem}")
        shown = document(with_outputs(name, solutions))
        for cell in shown.cells:
            if cell.cell_type == "markdown":
                cell.source = inside(cell.source, f"notebooks/{name}.ipynb", known)
        _write(folder / f"notebooks/{name}.ipynb", nbformat.writes(shown))


def _pages():
    found = {str(path.relative_to(PAGES)): path.read_text() for path in PAGES.rglob("*.md")}
    for pattern in OF_THE_COURSE:
        found |= {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob(pattern) if path.suffix == ".md"}
    return found


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def inside(text, path, known):
    """A page without its links to files that the book does not have: their words stay."""
    here = Path(path).parent

    def link(found):
        target = Path("/", here, found[2]).resolve().relative_to("/")
        return found[0] if str(target) in known else found[1]

    return LINK.sub(link, text)


# --- Notebooks


def with_outputs(name, solutions=False):
    """A notebook as students get it, or with its solutions, and with the outputs of its run. A cell whose code is not
    that of the run has no output."""
    filled, run = execute.filled(name), execute.run_of(name)
    outputs = {cell.source: cell.outputs for cell in run.cells if cell.cell_type == "code"} if run else {}
    text = given_out(f"notebooks/{name}.ipynb").text
    shown = filled if solutions else nbformat.reads(notebook(text), as_version=4)
    for ran, cell in zip(filled.cells, shown.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs = [_for_a_page(output) for output in outputs.get(ran.source, ())]
            cell.metadata |= _alternative_text(cell.outputs)
            cell.execution_count = None
    if run:
        words = REAL_RUN.format(name=name, cores=run.metadata.get("cores", 2))
        shown.cells.insert(1, nbformat.v4.new_markdown_cell(words, id="real-run"))
    shown.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    return shown


def _for_a_page(output):
    """Of what a cell shows in several forms, the picture or page without its plain text."""
    return output


def _alternative_text(outputs):
    """The metadata of a cell for MyST-NB: what its picture shows, in words, and its width."""
    for output in outputs:
        if options := output.get("metadata", {}).get("image/png"):
            return {"mystnb": {"image": {"alt": options["alt"], "width": f"{options['width']}px"}}}
    return {}


# --- Syllabus


def syllabus():
    """The page on what each notebook needs and gives, from the notebooks themselves."""
    rows, units = [], []
    for name in execute.NOTEBOOKS:
        first = execute.filled(name).cells[0].source
        title = re.search(r"^# (.*)$", first, re.MULTILINE)[1]
        minutes = MINUTES.search(first)[1]
        before = needs(name)
        objectives = re.search(r"will\*\*\n\n((?:- .*\n(?:  .*\n)*)+)", first + "\n")[1]
        after = ", ".join(f"[{other}](#{other.replace('_', '-')})" for other in before) or "-"
        rows.append(f"| [{name}](notebooks/{name}.ipynb) | {title} | {minutes} | {after} |")
        units.append(
            f"({name.replace('_', '-')})=\n### {title}\n\n[{name}](notebooks/{name}.ipynb), about {minutes} minutes."
            f" You will\n\n{objectives.replace('](../', '](')}"
        )
    total = sum(int(row.split("|")[3]) for row in rows)
    table = "| notebook | topic | minutes | builds on |\n|---|---|---|---|\n" + "\n".join(rows)
    return (PAGES / "syllabus.md").read_text().format(table=table, units="\n".join(units), hours=round(total / 60))


def needs(name):
    """The notebooks whose exercises or results a notebook uses."""
    source = execute.solution(f"notebooks/{name}.ipynb").read_text()
    code = "\n".join(line for line in source.splitlines() if not line.startswith("# ") or line.startswith("# !"))
    folders = set(re.findall(r"exercises/(\d\d_\w+)", code) + re.findall(r"EXERCISES}/(\d\d_\w+)", code))
    own = execute.folder_of_notebook(name)
    first = [own] if own != name else []
    return first + sorted(folders - {own})


# --- Glossary

ENTRY = re.compile(r"^\| ([^|]+) \| (.+) \|$", re.MULTILINE)


def glossary(text):
    """The page of the glossary with its table as a glossary of Sphinx, whose entries have links to each other."""
    head, _, _ = text.partition("\n| ")
    entries = ENTRY.findall(text)[1:]
    entries = [entry for entry in entries if not set(entry[0]) <= set("-: ")]
    known = {word.casefold(): word for names, _ in entries for word in names.split(", ")}
    lines = ["", "```{glossary}"]
    for names, meaning in entries:
        lines += [
            *names.split(", "),
            f"  {re.sub(r'[*]([^*]+)[*]', lambda found: _term(found[1], known), meaning)}",
            "",
        ]
    return "\n".join([head, *lines[:-1], "```", ""])


def _term(words, known):
    for form in (words, words.removesuffix("s"), words.removesuffix("es")):
        if entry := known.get(form.casefold()):
            return f"{{term}}`{words} <{entry}>`" if words != entry else f"{{term}}`{entry}`"
    return f"*{words}*"


def terms(page):
    """The words of the glossary's page in Sphinx's form."""
    inside_it = page.partition("```{glossary}\n")[2].partition("\n```")[0]
    return [line for line in inside_it.splitlines() if line and not line.startswith(" ")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--solutions", action="store_true", help="show the answers of the gaps, for instructors")
    options = parser.parse_args()
    collect(options.folder, options.solutions, say=lambda text: print(text, file=sys.stderr))


if __name__ == "__main__":
    main()
