"""The book: its sources are those of the course, its runs belong to the code, and its pages need no network."""

import base64
import getpass
import html
import importlib
import io
import json
import re

import nbformat
import pytest
import typer
from PIL import Image

from book import drawings, execute, folding, lecturing, moving, offline, reference, slides, sources, vocabulary
from grader import gaps
from grader.exercises import ROOT, given_out, solution
from grader.gaps import TO_DO
from handson import rings
from handson.notebook import all_to_all, attention_and_experts, sharded_state
from handson.profiling import usage

NOTEBOOKS = execute.NOTEBOOKS


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book") / "source"
    sources.collect(folder, say=lambda text: None)
    return folder


def notebook_of(*cells):
    return nbformat.v4.new_notebook(cells=list(cells))


def code(source):
    return nbformat.v4.new_code_cell(source)


def text(source):
    return nbformat.v4.new_markdown_cell(source)


# --- Runs


def test_a_run_is_out_of_date_if_code_of_its_notebook_or_unit_changes_and_not_if_text_does(tmp_path):
    (tmp_path / "train.py").write_text('"""Train."""\nlr = 0.1  # small\n')
    before = execute.key_of(notebook_of(text("Read."), code("x = 1")), tmp_path)
    assert execute.key_of(notebook_of(text("Read this."), code("x = 1  # one")), tmp_path) == before
    assert execute.key_of(notebook_of(text("Read."), code("x = 2")), tmp_path) != before
    (tmp_path / "train.py").write_text('"""Train fast."""\nlr = 0.1\n')
    assert execute.key_of(notebook_of(text("Read."), code("x = 1")), tmp_path) == before
    (tmp_path / "train.py").write_text('"""Train."""\nlr = 0.2\n')
    assert execute.key_of(notebook_of(text("Read."), code("x = 1")), tmp_path) != before


@pytest.mark.parametrize(
    ("name", "picture", "solved"),
    [
        ("05_communication", "rings.picture(", "all ranks have the sum of all chunks"),
        ("06_model_parallel", "sharded_state.zero_by_hand(", "All entries are right"),
        ("09_attention_and_experts", "attention_and_experts.work_of_ranks(", "34, rank 1"),
        ("09_attention_and_experts", "all_to_all.by_hand(", "correct: each token arrives"),
    ],
)
def test_a_puzzle_is_solved_in_the_run_of_its_notebook(name, picture, solved):
    code = [cell.source for cell in execute.filled(name).cells if cell.cell_type == "code"]
    [cell] = [one for one in code if f"\n{picture}" in one]
    modules = (rings, sharded_state, all_to_all, attention_and_experts)
    names = {module.__name__.split(".")[-1]: module for module in modules}
    names["keys_seen"] = lambda places: sum(place + 1 for place in places)
    exec(cell.replace(picture, f"shown = {picture}"), names)
    assert solved in names["shown"].alt


def test_the_last_check_of_a_run_finds_only_the_track_of_its_notebook_filled(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "WORK", tmp_path)
    for file in execute.SCRIPTS:
        (tmp_path / execute.TOP / file).parent.mkdir(parents=True, exist_ok=True)
    execute._fill(set(), execute.OTHER_TRACK["pytorch"])
    scripts = [tmp_path / execute.TOP / f"exercises/02_multi_gpu/{track}" for track in ("pytorch", "chainer")]
    gaps_left = ["PUT YOUR CODE" in (folder / "train_cifar_multi_gpu.py").read_text() for folder in scripts]
    assert gaps_left == [False, True]


def test_a_kept_run_has_no_paths_of_this_machine():
    paths = f"{execute.WORK}/{execute.TOP}/exercises and {ROOT}/datasets, /opt/lib/python3.11/site-packages/torch"
    output = nbformat.v4.new_output("stream", text=paths)
    run = execute.tidy(notebook_of(nbformat.v4.new_code_cell("x", outputs=[output])), "key")
    assert run.cells[0].outputs[0].text == (
        "~/handson-course/exercises and ~/handson-course/datasets, ~/handson-course/.venv/lib/site-packages/torch"
    )


def test_a_cell_whose_code_has_changed_has_no_output(monkeypatch):
    name = "00_start"
    run = execute.run_of(name)
    assert any(cell.get("outputs") for cell in sources.with_outputs(name).cells)
    for cell in run.cells:
        cell.source += "\n1"
    monkeypatch.setattr(execute, "run_of", lambda name: run)
    assert not any(cell.get("outputs") for cell in sources.with_outputs(name).cells)


def printed(*texts):
    return nbformat.v4.new_code_cell("x", outputs=[nbformat.v4.new_output("stream", text=text) for text in texts])


def disturbance(share, runs=1):
    return f"Warning: {usage.Disturbance(share, 'the cores of node1').words(runs)}.\n"


def test_a_run_names_how_many_of_its_cells_other_programs_disturbed(monkeypatch):
    said = []
    monkeypatch.setattr(usage, "disturbance", lambda *_: usage.Disturbance(0.3, "the cores"))
    with usage.watched(1, said.append):
        pass
    run = notebook_of(printed(disturbance(0.2), disturbance(0.6)), printed("quick\n"), printed(*said))
    assert execute.disturbed(run) == [60, 30]


def test_a_page_says_once_that_other_programs_disturbed_its_run(monkeypatch):
    name = "00_start"
    run = execute.run_of(name)
    cells = [cell for cell in run.cells if cell.cell_type == "code"]
    cells[0].outputs = printed(f"1 s\n{disturbance(0.2)}2 s\n", disturbance(0.4, runs=2)).outputs
    monkeypatch.setattr(execute, "run_of", lambda name: run)
    shown = sources.with_outputs(name, note=sources.unchanged).cells
    first = next(cell for cell in shown if cell.cell_type == "code")
    assert [output.text for output in first.outputs] == ["1 s\n2 s\n"]
    assert ["40 %" in cell.source for cell in shown[:3]] == [False, True, False]


def test_cells_that_print_and_have_no_output_are_named(monkeypatch):
    name = "00_start"
    assert sources.lacking(name) == []
    run = execute.run_of(name)
    for cell in run.cells:
        cell.source = cell.source.replace("ranks.stop()", "ranks.stop(1)")
    monkeypatch.setattr(execute, "run_of", lambda name: run)
    assert [cell.source for cell in sources.lacking(name)] == ["ranks.stop()"]
    assert not execute.shows("import os\n\n\ndef f():\n    print(1)\n\n\nLIMIT = 3")
    assert execute.shows("for name in names:\n    print(name)") and execute.shows("!ls")


def test_jobs_of_a_kept_run_belong_to_a_student():
    line = f"1.vm              first_job        {getpass.getuser():<16} 00:00:01 F lecture\n"
    run = execute.tidy(notebook_of(printed(line)), "key")
    assert run.cells[0].outputs[0].text == "1.vm              first_job        student          00:00:01 F lecture\n"


# --- Sources


def test_every_notebook_page_and_chapter_is_collected(collected):
    for name in NOTEBOOKS:
        assert nbformat.read(collected / f"notebooks/{name}.ipynb", as_version=4).cells
    for path in [*ROOT.glob("docs/*.md"), ROOT / "CHANGELOG.md"]:
        assert (collected / path.relative_to(ROOT)).exists()
    contents = (collected / "index.md").read_text()
    for page in collected.rglob("*.md"):
        name = str(page.relative_to(collected).with_suffix(""))
        assert name == "index" or f"\n{name}\n" in contents


def test_the_front_page_names_the_version_of_the_course(collected):
    assert re.search(r"Version [\d.]+\d( \(\d{4}-\d\d-\d\d, \w{7,}\))?\.\n", (collected / "index.md").read_text())


def lines(some):
    """The lines of answers that are telling: long, and of code."""
    return {line.strip() for answer in some.values() for line in answer.splitlines() if len(line.strip()) > 30}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_students_see_gaps_and_instructors_answers(name):
    source = solution(f"notebooks/{name}.ipynb").read_text()
    answers = gaps.answers(source)
    shown = {
        which: "\n".join(cell.source for cell in sources.with_outputs(name, which).cells) for which in (False, True)
    }
    told = {line for line in lines(answers) if line in given_out(f"notebooks/{name}.ipynb").text}
    assert not [line for line in lines(answers) - told if line in shown[False]]
    assert shown[False].count(f"# {TO_DO}: ") >= len(answers)
    assert all(line in shown[True] for line in lines(answers))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_output_shows_an_answer_of_a_script(name):
    folder = execute.folder_of_notebook(name)
    answers = set()
    for file in (file for file in execute.SCRIPTS if f"/{folder}/" in file):
        given = given_out(file).text
        answers |= {line for line in lines(gaps.answers(solution(file).read_text())) if line not in given}
    printed = [
        output.get("text", "")
        for cell in sources.with_outputs(name).cells
        for output in cell.get("outputs", ())
        if "!" in cell.source
    ]
    assert [line for line in answers if any(line in text for text in printed)] == []


def test_pictures_of_pages_have_words(collected):
    pages = {path: path.read_text() for path in collected.rglob("*.md")}
    pictures = [(path.name, words) for path, page in pages.items() for words in re.findall(r"!\[(.*?)\]\(", page)]
    assert len(pictures) > 8
    assert not [name for name, words in pictures if len(words) < 20]
    for name in NOTEBOOKS:
        for cell in nbformat.read(collected / f"notebooks/{name}.ipynb", as_version=4).cells:
            if any("image/png" in output.get("data", {}) for output in cell.get("outputs", ())):
                assert cell.metadata["mystnb"]["image"]["alt"]


def test_each_notebook_page_leads_to_the_notebook_that_students_get(collected):
    for name in NOTEBOOKS:
        note = nbformat.read(collected / f"notebooks/{name}.ipynb", as_version=4).cells[1].source
        [path] = re.findall(r"\{download\}`.*? <(.*?)>`", note)
        given = nbformat.read(collected / "notebooks" / path, as_version=4)
        assert [cell.source for cell in given.cells] == [
            cell.source for cell in nbformat.read(ROOT / f"notebooks/{name}.ipynb", as_version=4).cells
        ]


def test_a_long_log_is_folded_up_to_the_last_line_of_its_last_run():
    log = "Start a training script using <2> GPUs.\n" + "epoch 1\n" * folding.LONG + "Throughput: 1\n"
    first, last = folding.parts(f"{log}{log}predicted 2\n\n")
    assert last == "Throughput: 1\npredicted 2"
    assert f"{first}\n{last}\n" == f"{log}{log}predicted 2\n"
    shown = folding.folded(first, "{lines} lines")
    assert f"<summary>{2 * folding.LONG + 3} lines</summary>" in shown and "&lt;2&gt;" in shown


def test_a_short_log_and_a_script_that_a_cell_shows_are_not_folded():
    assert folding.parts("Start a training script using 2 GPUs.\nThroughput: 1\n") is None
    assert folding.parts("import torch\n" * 50) is None


def test_links_to_files_that_the_book_lacks_are_words():
    known = {"docs/a.md"}
    page = "[a](a.md#part), [b](../jobs/b), [c](https://example.org), [d](#d)"
    assert sources.inside(page, "docs/page.md", known) == "[a](a.md#part), b, [c](https://example.org), [d](#d)"


def test_a_translation_passes_every_page_notebook_and_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "NOTEBOOKS", NOTEBOOKS[:1])
    monkeypatch.setattr(drawings, "write", lambda folder, phrase: folder.mkdir(parents=True))

    def document(notebook):
        notebook.cells[0].source += "\n\nNOTEBOOK"
        return notebook

    def phrase(text):
        return text if "{" in text else text.upper()

    sources.collect(tmp_path, page=lambda text: text + "\nPAGE\n", document=document, phrase=phrase, say=str)
    assert "\nPAGE" in (tmp_path / "docs/running.md").read_text()
    assert "NOTEBOOK" in (tmp_path / f"notebooks/{NOTEBOOKS[0]}.ipynb").read_text()
    assert '"NEXT STEP"' in (tmp_path / "static/moving_data.js").read_text()


def test_the_book_in_another_language_has_the_same_pages_and_code(collected, tmp_path, monkeypatch):
    monkeypatch.setattr(drawings, "write", lambda folder, phrase: folder.mkdir(parents=True))
    sources.collect(tmp_path, **sources.translations("ja"), say=str)
    for path in [*collected.rglob("*.md"), *collected.rglob("*.ipynb")]:
        assert (tmp_path / path.relative_to(collected)).exists()
    for name in NOTEBOOKS[:2]:
        english, other = (
            nbformat.read(folder / f"notebooks/{name}.ipynb", 4).cells for folder in (collected, tmp_path)
        )
        codes = [
            [execute.meaning(cell.source) for cell in cells if cell.cell_type == "code"] for cells in (english, other)
        ]
        assert codes[0] == codes[1]
        assert [cell.get("outputs") for cell in english] == [cell.get("outputs") for cell in other]
    with pytest.raises(LookupError, match="'xx'"):
        sources.translations("xx")


def test_a_book_in_another_language_brings_a_font_with_its_letters(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "font_of", lambda language: "DejaVu Sans")
    sources.letters("ja", tmp_path)
    assert (tmp_path / "letters.ttf").read_bytes()[:4] == b"\0\1\0\0"
    assert 'url("letters.ttf")' in (tmp_path / "letters.css").read_text()


# --- Reference and glossary


def commands(group, words):
    for name, command in group.commands.items():
        if not command.hidden:
            yield from commands(command, f"{words} {name}") if hasattr(command, "commands") else [f"{words} {name}"]


@pytest.mark.parametrize("program", reference.PROGRAMS)
def test_the_reference_has_every_command(program, collected):
    page = (collected / "reference/commands.md").read_text()
    app = typer.main.get_command(importlib.import_module(f"{program}.__main__").app)
    assert [one for one in commands(app, f"python -m {program}") if f"### {one}\n" not in page] == []


def test_the_reference_has_the_functions_that_exercises_use(collected):
    page = (collected / "reference/functions.md").read_text()
    assert "{py:function} handson.pipelines.simulate(schedule, forward=1.0" in page
    assert "{py:class} handson.training.epoch_table.EpochTable(" in page
    assert "_check" not in page  # what no exercise uses


def test_the_words_of_the_glossary_are_found_once_a_page(collected):
    assert {"all-reduce", "batch size", "MFU"} <= set(json.loads((collected / "book.json").read_text())["terms"])
    words = {"rank", "all-reduce", "loss"}
    left = set(words)
    found = vocabulary.first_uses("Ranks call an all-reduce; a rank gets the lossy mean.", words, left)
    assert [term for _, _, term in found] == ["rank", "all-reduce"]
    assert left == {"loss"}
    words = {"勾配", "ランク"}  # a language without spaces
    assert vocabulary.first_uses("各ランクの勾配です", words, set(words)) == [(1, 4, "ランク"), (5, 7, "勾配")]


def test_a_word_of_the_glossary_is_not_found_in_a_longer_one_or_in_other_capitals():
    words = {"batch", "batch size", "ZeRO", "virtual GPU"}
    for text in ("The batch size.", "Batch sizes"):
        assert vocabulary.first_uses(text, words, {"batch", "ZeRO"}) == []
    assert vocabulary.first_uses("Virtual GPUs", words, set(words)) == [(0, 12, "virtual GPU")]
    assert vocabulary.first_uses("Replace the zeros.", words, set(words)) == []


def test_a_word_with_several_meanings_is_ambiguous_in_a_translation_as_well():
    english = "| word | meaning |\n|---|---|\n| batch, batch size | images |\n| rank | a number |\n"
    assert vocabulary.ambiguous(english, english) == ["batch"]
    translated = english.replace("batch, batch size", "バッチ（batch, batch size）").replace("rank", "ランク（rank）")
    assert vocabulary.ambiguous(english, translated) == ["バッチ"]


# --- Slides


@pytest.fixture(scope="module", params=NOTEBOOKS)
def lecture(request):
    """A notebook's name, what docs/lecturing.md has on it, and its slides."""
    name = request.param
    items = lecturing.of_unit(lecturing.PAGE.read_text(), name)
    wanted = {words for item in items.values() for words, _ in item.links("notebooks/", ".ipynb")}
    cells = lecturing.without_stars(sources.with_outputs(name).cells, wanted)
    return name, items, slides.slides(cells, items, translate=sources.translations("en"))


def test_a_deck_has_what_the_lecture_of_its_unit_needs(lecture):
    _, items, made = lecture
    assert list(items) == ["First question", "On the board", "In the code", "True or false?", "Afterwards"]
    headings = [slide.heading for slide in made]
    assert made[0].kind == "title" and 20 <= len(made) <= 40
    assert headings[2] == "First question" and headings[-3:] == ["True or false?", "Afterwards", "What you can do now"]
    assert {slide.kind for slide in made} >= {"figure", "code"}
    shown = "".join(part for slide in made for part in slide.body)
    for item in items.values():  # each function to which the page links
        for words, path in item.links(lecturing.FOLDERS, ".py"):
            assert html.escape(lecturing.function(path, words.strip("`")).split("\n")[0], quote=False) in shown


def test_a_deck_has_no_answer_of_a_gap(lecture):
    name, _, made = lecture
    shown = html.unescape("".join(part for slide in made for part in slide.body if part.startswith("<pre")))
    known = (ROOT / "handson/pytorch/plain_training.py").read_text()  # which 10_challenge gives out
    answers = []
    for path in sorted((ROOT / "solutions" / execute.folder_of_notebook(name)).rglob("*.py")):
        place = f"notebooks/{path.stem}.ipynb" if path.stem in NOTEBOOKS else path.relative_to(ROOT / "solutions")
        known += given_out(place if path.stem in NOTEBOOKS else f"exercises/{place}").text
        answers += gaps.answers(path.read_text()).values()
    lines = {line.strip() for answer in answers for line in answer.splitlines() if len(line) > 30}
    assert [line for line in lines if line not in known and line in shown] == []


def test_sections_with_a_star_are_left_out_unless_they_are_wanted():
    def cells():
        return [text("# A title\n\nText."), text("## \\* One\n\nA."), text("B.\n## \\* Two\n\nC.\n## Three")]

    kept = [cell.source for cell in lecturing.without_stars(cells(), {"Two"})]
    assert kept == ["# A title\n\nText.", "## Two\n\nC.\n## Three"]
    assert [cell.source for cell in lecturing.without_stars(cells())] == ["# A title\n\nText.", "## Three"]


def test_a_question_stands_on_a_slide_of_its_own_before_its_figure():
    file = io.BytesIO()
    Image.new("RGB", (40, 20)).save(file, "PNG")
    data = {"image/png": base64.b64encode(file.getvalue()).decode()}
    picture = nbformat.v4.new_output("display_data", data, metadata={"image/png": {"alt": "A bar"}})
    drawn = nbformat.v4.new_code_cell("draw()", outputs=[picture])
    made = slides.slides([text("# A title\n\nText.\n\nHow fast is it? Guess."), drawn, text("It is fast. But why?")])
    assert [slide.kind for slide in made] == ["title", "figure", ""]
    assert "How fast is it?" in made[0].body[-1] and "A bar" in made[1].body[0]
    assert "It is fast. But why?" in made[2].notes


def test_what_has_no_room_on_a_slide_is_on_the_next_one():
    points = "\n".join(f"- Point {number} takes a line." for number in range(8))
    made = slides.slides([text(f"# A title\n\n{points}\n\n{points}")])
    assert [len(slide.body) for slide in made] == [1, 1]
    assert all(slide.height <= slides.FULL for slide in made)


def test_a_function_on_a_slide_has_its_hint_and_short_lines():
    code = lecturing.function("exercises/05_communication/pytorch/all_reduce.py", "ring")
    assert "# PUT YOUR CODE: expect chunk" in code and "raise NotImplementedError" not in code
    assert max(len(line) for line in code.split("\n") if "#" in line[:10]) <= 80
    with pytest.raises(LookupError, match="no function nothing"):
        lecturing.function("exercises/05_communication/pytorch/all_reduce.py", "nothing")


# --- Figures that move


@pytest.mark.parametrize("ranks", moving.RANKS)
def test_the_moving_ring_ends_with_the_whole_sum_on_all_ranks(ranks):
    moments = moving.ring(ranks)
    assert len(moments) == 1 + 2 * (ranks - 1)
    whole = list(range(ranks))
    half = moments[ranks - 1]["parts"]
    assert [of_rank.count(whole) for of_rank in half] == [1] * ranks
    assert all(part == whole for of_rank in moments[-1]["parts"] for part in of_rank)


def test_the_moving_pipelines_have_the_bubble_of_the_formula_and_hold_what_they_should():
    found = moving.pipelines()
    for stages in moving.STAGES:
        for count in moving.MICRO_BATCHES:
            for name in ("gpipe", "one_forward_one_backward"):
                assert found[name][stages][count]["bubble"] == round(100 * (stages - 1) / (count + stages - 1))
            assert found["gpipe"][stages][count]["held"] == [count] * stages
            held = found["one_forward_one_backward"][stages][count]["held"]
            assert held == [min(count, stages - stage) for stage in range(stages)]


# --- Pages


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<script src="https://cdn.example.org/a.js"></script>', "another host"),
        ('<link rel="stylesheet" href="//fonts.example.org/a.css">', "another host"),
        ('<img src="a.png">', "no alternative text"),
        ('<a href="https://example.org">a link</a><img src="a.png" alt="a bar"><link href="a.css">', None),
    ],
)
def test_a_page_that_needs_another_host_or_lacks_words_is_reported(page, problem, tmp_path):
    (tmp_path / "page.html").write_text(page)
    found = offline.problems(tmp_path)
    assert [problem in one for one in found] == ([True] if problem else [])
