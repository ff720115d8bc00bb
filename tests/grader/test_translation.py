"""The course in other languages: which texts are translated, that the code stays the same, and that catalogues of what
students read are complete."""

import ast
import io
import json
import re
import tokenize
import zipfile
from pathlib import Path

import nbformat
import pytest

from grader import exercises, gaps
from grader.instructors.bundle import bundle
from grader.instructors.release import build
from grader.instructors.translation import book_text, catalogues
from grader.instructors.translation.markdown_text import translate_markdown
from grader.instructors.translation.message_templates import templates
from grader.instructors.translation.pages import ANCHOR
from grader.instructors.translation.translated_files import translated_file
from handson import language
from handson.catalogue import PLACEHOLDER, WORD, Messages

ROOT = Path(__file__).resolve().parents[2]
FIRST = ("00_start", "single_gpu", "tf_multi", "restarts", "05b_")  # in a few names; the other files are like these
SOURCES = [
    pytest.param(path, marks=() if any(part in path.name for part in FIRST) else pytest.mark.thorough)
    for path in sorted((ROOT / "solutions").rglob("*.[ps][yh]"))
    if "results" not in path.parts
]
COMPLETE = catalogues.complete()
LANGUAGES = sorted(language.available())


def pseudo(english):
    return f"日本語で、{english}。"


def texts_of(text, translate):
    found = {}
    translate(text, lambda english: found.setdefault(english, english))
    return list(found)


def without_spaces(texts):
    return [re.sub(r"\s", "", text) for text in texts]


def name(path):
    return str(path.relative_to(ROOT))


def code_of(text, suffix):
    """The code without comments and docstrings."""
    if suffix == ".sh":
        return [line.partition(" # ")[0].rstrip() for line in text.split("\n") if line[:1] != "#" or line[:2] == "#P"]
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    docstrings = {node.value.lineno for node in ast.walk(ast.parse(text)) if _is_docstring(node)}
    kept = (token for token in tokens if token.start[0] not in docstrings or token.type != tokenize.STRING)
    left_out = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    return [token.string for token in kept if token.type not in left_out]


def _is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_translated_source_has_the_same_code_and_all_its_texts_in_the_other_language(path):
    english, suffix = path.read_text(), path.suffix
    assert translated_file(english, suffix, lambda text: text) == english
    other = translated_file(english, suffix, pseudo)
    assert code_of(other, suffix) == code_of(english, suffix)
    ours, theirs = (
        texts_of(text, lambda *given: translated_file(given[0], suffix, given[1])) for text in (english, other)
    )
    assert without_spaces(theirs) == without_spaces(map(pseudo, ours))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_the_gaps_of_a_translated_exercise_are_found_by_the_english_one(path):
    english = path.read_text()
    given = gaps.exercise(english, path.suffix)
    other = gaps.exercise(translated_file(english, path.suffix, pseudo), path.suffix)
    handed_in = gaps.fill(other, gaps.answers(english))
    if not exercises.folder_of_notebook(path.stem) == path.parent.name:  # a notebook's are found in its cells
        for gap in given.gaps:
            assert (
                gaps.find(given, gap.name, handed_in).code.strip()
                == gaps.find(given, gap.name, gaps.fill(given, gaps.answers(english))).code.strip()
            )


@pytest.mark.parametrize("page", catalogues.pages())
def test_a_translated_page_has_the_same_code_and_links(page):
    english = (ROOT / page).read_text()
    assert translate_markdown(english, lambda text: text) == english
    other = translate_markdown(english, pseudo, set(ANCHOR.findall(english)))
    assert without_spaces(texts_of(translate_markdown(english, pseudo), translate_markdown)) == without_spaces(
        map(pseudo, texts_of(english, translate_markdown))
    )
    for form in (r"^ {4,}\S.*$", r"\]\([^)]+\)"):
        assert re.findall(form, other, re.MULTILINE) == re.findall(form, english, re.MULTILINE)


def test_wrapping_a_paragraph_otherwise_changes_no_text():
    one = "A paragraph of `code` and\nwords.\n\n- an item\n  of two lines\n\n| one | two |\n|---|---|\n| ring | `x` |\n"
    assert texts_of(one, translate_markdown) == [
        "A paragraph of `code` and words.",
        "an item of two lines",
        "one",
        "two",
        "ring",
    ]


def test_messages_are_found_with_their_placeholders():
    source = '''
def judge(case, found):
    """No message."""
    if case["key of a table"] == "a word or two":
        raise Error(f"`{case.name}` is {len(found)}, but there {'is' if found else 'are'} only {found[0]:.2f}{', or so it seems' if case else ''}")
    return "the ranks have " f"{counted(2, 'node')} each"
'''
    assert templates(source) == [
        "`{name}` is {found}, but there {is?} only {found2}",
        ", or so it seems",
        "the ranks have {counted} each",
        "{number} node",
        "{number} nodes",
    ]


def test_sentences_that_are_keys_are_messages():
    source = """
wrong = {"x": 1, f"the sum over {ranks} ranks is not divided": total}
values[f"`{name}` is rounded: keep its type"] = rounded
CONDITIONS = marked({"script": lambda run: f"{run.size} pixels each"})
parser.error(f"-g names {kinds}, but {there(1, 'rank')}: name one for each; it is {a_kind(one)}")
f"A ring of {ranks} ranks. {words}"
"""
    assert templates(source) == [
        "the sum over {ranks} ranks is not divided",
        "`{name}` is rounded: keep its type",
        "script",
        "{size} pixels each",
        "-g names {kinds}, but {there}: name one for each; it is {a_kind}",
        "there is {number} rank",
        "there are {number} ranks",
        "a {kind}",
        "an {kind}",
        "A ring of {ranks} ranks.",
    ]


@pytest.mark.parametrize("code", LANGUAGES)
@pytest.mark.parametrize("domain", COMPLETE)
def test_a_complete_catalogue_has_a_translation_of_each_text(code, domain):
    assert list(catalogues.to_do(code, domain)) == []


@pytest.mark.parametrize("code", LANGUAGES)
def test_translations_keep_placeholders_code_numbers_and_links(code):
    wrong = {
        (path.stem, english): found
        for path in (language.LOCALE / code / "LC_MESSAGES").glob("*.po")
        for english, other in catalogues.translations(code, path.stem).items()
        if (found := catalogues.problems(english, other, path.stem))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("english", "other", "wrong"),
    [
        ("two ranks", "2 つのランク", ""),
        ("two ranks", "3 つのランク", "numbers"),
        ("{a} of {b} node{s?}", "{b} 中 {a} ノード", ""),
        ("{a} of {b}", "{b} 中", "placeholders"),
        ("call `wait()` first", "先に `wait` を呼ぶ", "code"),
        ("see [this](a.md)", "[これ](b.md)を見る", "Markdown"),
        ("a **rank** waits", "**ランク。**が待つ", "Markdown"),  # which is not bold in Markdown
    ],
)
def test_a_translation_that_lost_something_is_refused(english, other, wrong):
    found = catalogues.problems(english, other, "docs_x")
    assert [wrong in sentence for sentence in found] == [True] * bool(wrong)


@pytest.fixture
def own_catalogues(tmp_path, monkeypatch):
    (tmp_path / "ja").mkdir()
    monkeypatch.setattr(language, "LOCALE", tmp_path)
    catalogues.translations.cache_clear()
    monkeypatch.setattr(catalogues, "domains", lambda: ("docs_x",))
    yield lambda texts: monkeypatch.setattr(catalogues, "texts", lambda domain: texts)
    catalogues.translations.cache_clear()


def test_a_domain_goes_to_a_translator_and_back(own_catalogues):
    own_catalogues({"two `ranks`": ("a.md",), 'say "no"\nor not': ("a.md",)})
    given = json.loads(json.dumps(catalogues.to_do("ja", "docs_x")))
    assert given == {"two `ranks`": "", 'say "no"\nor not': ""}
    assert (
        catalogues.put("ja", "docs_x", {english: english.upper().replace("RANKS", "ranks") for english in given}) == []
    )
    assert catalogues.to_do("ja", "docs_x") == {}
    assert catalogues.translations("ja", "docs_x") == {
        "two `ranks`": "TWO `ranks`",
        'say "no"\nor not': 'SAY "NO"\nOR NOT',
    }


def test_a_text_that_has_changed_keeps_its_translation_as_outdated(own_catalogues):
    own_catalogues({"each rank waits for all": ("a.md",)})
    catalogues.put("ja", "docs_x", {"each rank waits for all": "待つ"})
    own_catalogues({"each rank waits for all others": ("a.md",), "quite new": ("a.md",)})
    catalogues.update("ja")
    given = catalogues.to_do("ja", "docs_x")
    assert given == {"each rank waits for all others": "OUTDATED: 待つ", "quite new": ""}
    catalogues.put("ja", "docs_x", given)
    assert catalogues.to_do("ja", "docs_x") == given


@pytest.mark.thorough
def test_each_message_finds_its_translation_whatever_its_values_are():
    texts = [
        text
        for domain in catalogues.domains()
        if domain.startswith(("check_", "handson_"))
        for text in catalogues.texts(domain)
    ]
    messages = Messages({text: f"訳{''.join(PLACEHOLDER.findall(text))}" for text in texts})
    shown = [PLACEHOLDER.sub(lambda found: "s" if found[0].endswith("?}") else "7", text) for text in texts]
    assert [text for text in shown if WORD.search(text) and not messages.translate(text).startswith("訳")] == []


def test_a_directive_has_its_alternative_text_and_its_caption_translated():
    text = "```{figure} a.svg\n:name: ring\n:alt: four ranks\n\nA caption of\ntwo lines.\n```\n\n```bash\nleft as it is\n```\n"
    other = "```{figure} a.svg\n:name: ring\n:alt: FOUR RANKS\n\nA CAPTION OF TWO LINES.\n```\n\n```bash\nleft as it is\n```\n"
    assert translate_markdown(text, str.upper) == other
    assert translate_markdown(text, lambda english: english) == text


def test_the_book_has_pages_and_notebooks_in_a_language_and_links_to_their_headings(monkeypatch):
    known = {"Hand in": "提出", "Read [this](a.md#hand-in).": "[これ](a.md#hand-in)を読む。", "a comment": "注釈"}
    monkeypatch.setattr(catalogues, "everywhere", lambda language: lambda english: known.get(english, english))
    monkeypatch.setattr(book_text, "_headings", lambda: {"hand-in": ("Hand in", "docs_a")})
    monkeypatch.setattr(catalogues, "translations", lambda language, domain: {})
    assert book_text.page("xx", "# Hand in\n\nRead\n[this](a.md#hand-in).") == "# 提出\n\n[これ](a.md#提出)を読む。"
    cells = [nbformat.v4.new_markdown_cell("# Hand in"), nbformat.v4.new_code_cell("%%px\n# a comment\nx = 1")]
    shown = book_text.document("xx", nbformat.v4.new_notebook(cells=cells))
    assert [cell.source for cell in shown.cells] == ["# 提出", "%%px\n# 注釈\nx = 1"]


def test_comments_in_a_solution_are_no_texts():
    source = "# above the gap\n### BEGIN SOLUTION gap: a hint\n# the answer in words\nx = 1  # the answer again\n### END SOLUTION\n"
    assert texts_of(source, lambda text, translate: translated_file(text, ".py", translate)) == [
        "a hint",
        "above the gap",
    ]


def test_a_language_without_a_folder_is_refused():
    with pytest.raises(catalogues.CatalogueError, match="no language 'xx'"):
        build(ROOT / "solutions", language="xx")


@pytest.mark.thorough
def test_what_students_receive_in_a_language_speaks_it(tmp_path):
    bundle(build(ROOT / "solutions", language="ja"), tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        found = {
            name.partition("/")[2]: archive.read(name).decode() for name in archive.namelist() if name[-4:] != ".npz"
        }
    assert found["locale/CHOSEN"] == "ja\n" and "locale/ja/LC_MESSAGES/check_all.po" in found
    assert "最初のノートブック" in found["notebooks/00_start.ipynb"] and "はじめに" in found["README.md"]
    assert "matplotlib-fontja" in found["requirements.txt"] and not [name for name in found if "docs_" in name]
