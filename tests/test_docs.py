"""The pages: links lead somewhere, and lines fit a window. The words of pages, code and lessons are those of the field."""

import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).resolve().parent.parent
OF_ALL = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
OF_STUDENTS = [*ROOT.glob("for_students/*.md"), *ROOT.glob("for_students/docs/*.md")]
# words that slow a reader down: archaic, or an everyday word where the field has its own
NOT_OURS = re.compile(
    r"\bwhat [\w' ]+ is that\b|\banew\b|\bfor ever\b|\blikewise\b|(?-i:\bOf) \w|\bwhoever\b"
    r"|(?<!there )\bis no (?!longer\b|more\b|less\b)[a-z]+\b|\bmend(?:s|ed|ing)?\b|\binside of\b"
    r"|\btells? (?:which|what|how|whether|where|who)\b",
    re.IGNORECASE,
)
# docstrings, comments, messages, help texts, pages of the grader, gap texts, and the sources of exercises and notebooks
READ = ("handson", "grader", "solutions", "jobs", "containers", "for_students", "docs", "*.md", "Makefile", "*.sh")


def name(path):
    return str(path.relative_to(ROOT))


def prose(text):
    """The lines that are neither code nor a row of a table."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line for line in text.splitlines() if not re.match(r" {4,}|\|", line)]


def anchors(path):
    """The targets that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", OF_ALL + OF_STUDENTS, ids=name)
def test_the_links_of_a_page_lead_to_files_and_headings_that_are_there(path):
    broken = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text()):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if not target.exists() or anchor and anchor not in anchors(target):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("path", OF_ALL + [ROOT / "for_students/README.md"], ids=name)
def test_lines_of_prose_fit_a_window(path):
    assert [line for line in prose(path.read_text()) if len(line) > 120] == []


@pytest.mark.parametrize("path", [path for path in ROOT.glob("docs/*.md") if path.name != "glossary.md"], ids=name)
def test_a_page_opens_with_its_readers_and_a_long_one_has_contents(path):
    text = path.read_text()
    opening = text.split("\n\n")[1]
    assert re.search(r"\b(?:is|are) for\b", opening) and "fter " in opening
    assert len(text.splitlines()) < 100 or "\n- [" in text.partition("\n## ")[0]


def test_the_readme_is_read_in_a_minute():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@pytest.mark.parametrize("place", READ)
def test_pages_code_and_lessons_use_the_words_of_the_field(place):
    listed = subprocess.run(["git", "ls-files", *place.split()], cwd=ROOT, capture_output=True, text=True, check=True)
    found = {}
    for path in filter(Path.is_file, map(ROOT.joinpath, listed.stdout.split())):
        text = re.sub(r'["\']\s*\n\s*[frb]*["\']', "", path.read_text(errors="replace"))  # a literal in several lines
        text = re.sub(r"\s*\n\s*(?:(?:#+|//) )?", " ", text)
        if words := NOT_OURS.findall(text):
            found[name(path)] = words
    assert found == {}


@pytest.mark.parametrize("package", ["handson", "grader"])
def test_the_commands_that_pages_name_have_these_options(package):
    program = typer.main.get_command(import_module(f"{package}.__main__").app)
    unknown = []
    for path in OF_ALL + OF_STUDENTS:
        text = path.read_text().replace("\\\n", " ")
        for words in re.findall(rf"python -m {package} ((?:(?! -- |#|[`|;&>)]|\|)[^\n])*)", text):
            command, names = program, words.split()
            while names and names[0] in getattr(command, "commands", ()):
                command = command.commands[names.pop(0)]
            options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
            unknown += [(name(path), words) for word in names if re.match("-[-a-z]", word) and word not in options]
            if getattr(command, "commands", None) and names and names[0][0].isalpha():
                unknown.append((name(path), words))
    assert unknown == []


def test_the_readme_gives_the_minutes_of_each_notebook_and_the_hours_of_all():
    right = {
        source.stem: int(re.search(r"In about (\d+) minutes", source.read_text())[1])
        for source in ROOT.glob("solutions/*/[01][0-9]*.py")
    }
    readme = (ROOT / "README.md").read_text()
    assert re.findall(r"^\| \[`(\d\db?_\w+)`\]\(.*\| (\d+) \|$", readme, re.MULTILINE) == [
        (name, str(minutes)) for name, minutes in sorted(right.items())
    ]
    assert f"about {round(sum(right.values()) / 60)} hours" in readme
