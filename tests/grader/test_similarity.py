"""Similarity: who copied what nobody else wrote is found, however it is renamed; what everybody has to write is not."""

import random
import subprocess
import sys
import time
from html import unescape
from pathlib import Path

import pytest

from grader import exercises
from grader.course import UNITS
from grader.exercises import solved
from grader.gaps import answers
from grader.instructors import similarity
from grader.instructors.collect import collect
from grader.instructors.reports import pages
from grader.instructors.similarity import groups

ROOT = Path(__file__).resolve().parents[2]
FILE = "exercises/x.py"
GIVEN = """import torch
def train(model, images, labels, optimizer):
    # PUT YOUR CODE: one step
    raise NotImplementedError("PUT YOUR CODE: step")
    return loss
def speed(images, seconds):
    # PUT YOUR CODE: images a second
    raise NotImplementedError("PUT YOUR CODE: speed")
    return result
"""
SOLVED = GIVEN.replace(
    '    raise NotImplementedError("PUT YOUR CODE: step")\n',
    "    outputs = model(images)\n    loss = torch.nn.functional.cross_entropy(outputs, labels)\n"
    "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n",
).replace('    raise NotImplementedError("PUT YOUR CODE: speed")\n', "    result = len(images) / seconds\n")
ODD = """    # my own way
    collected = []
    for index in range(0, len(images), 4):
        piece = model(images[index : index + 4])
        collected.append(piece * 1.0)
    joined = torch.cat(collected)
    loss = -torch.log_softmax(joined, 1)[range(len(labels)), labels].mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def filled(code, speed="    result = len(images) / seconds\n"):
    return GIVEN.replace('    raise NotImplementedError("PUT YOUR CODE: step")\n', code).replace(
        '    raise NotImplementedError("PUT YOUR CODE: speed")\n', speed
    )


def odd_of_their_own(number):
    """An answer that is unlike any other's, and unlike the solution."""
    chance = random.Random(number)
    words = "model images labels + * ( ) [ ] 1 2 if else for in not optimizer len sum".split()
    return "".join("    " + " ".join(chance.choices(words, k=9)) + "\n" for _ in range(9))


def found(students, given=GIVEN, solved=SOLVED):
    texts = {student: {FILE: text} for student, text in students.items()}
    return [{side.student for side in group.sides} for group in groups(texts.items(), {FILE: given}, {FILE: solved})]


OTHERS = {f"s{number}": filled(odd_of_their_own(number)) for number in range(8)}


def test_a_copy_is_found_among_others():
    assert found(OTHERS | {"jane": filled(ODD), "max": filled(ODD)}) == [{"jane", "max"}]


@pytest.mark.parametrize(
    "disguise",
    [
        lambda code: (
            code.replace("collected", "all_of_it").replace("index", "k").replace("piece", "p").replace("joined", "Z")
        ),
        lambda code: code.replace("my own way", "something else") + "    # and more\n\n\n",
        lambda code: code.replace("\n", "  # hm\n").replace(" * ", "*"),
        lambda code: code.replace("    ", "\t"),
        lambda code: "    if True:\n" + "".join(f"    {line}\n" for line in code.splitlines()),
        lambda code: "    print('start')\n" + code + "    print('end')\n",
        lambda code: "".join(code.splitlines(keepends=True)[3:] + code.splitlines(keepends=True)[:3]),
    ],
    ids=["renamed", "other comments", "layout", "tabs", "indented", "something around it", "moved"],
)
def test_a_copy_in_disguise_is_found(disguise):
    assert found(OTHERS | {"jane": filled(ODD), "max": filled(disguise(ODD))}) == [{"jane", "max"}]


def test_exercises_as_they_were_given_and_solutions_are_not_alike():
    assert found({"a": GIVEN, "b": GIVEN, "c": SOLVED, "d": SOLVED}) == []


def test_what_much_of_the_class_wrote_is_common_knowledge():
    assert found({f"s{number}": filled(ODD + odd_of_their_own(number)) for number in range(6)}) == []


@pytest.mark.parametrize("copies", [3, 30])
def test_copies_are_one_group_however_much_of_the_class_they_are(copies):
    group = {f"copy{number}": filled(ODD) for number in range(copies)}
    assert found(OTHERS | group) == [set(group)]


def test_short_answers_are_never_a_likeness():
    short = filled("    loss = torch.nn.functional.nll_loss(model(images), labels)\n")
    assert found({"a": short, "b": short}) == []


def test_shares_and_lines_tell_what_is_alike():
    extra = ODD + odd_of_their_own(5)
    [group] = groups([("a", {FILE: filled(ODD)}), ("b", {FILE: filled(extra)})], {FILE: GIVEN}, {FILE: SOLVED})
    shares = {side.student: side.share for side in group.sides}
    assert shares["a"] == 1.0 and 0.3 < shares["b"] < 0.9
    marked = {side.student: [text.strip() for _, _, text, alike in side.lines if alike] for side in group.sides}
    assert marked["a"] == marked["b"] and "joined = torch.cat(collected)" in marked["a"]
    [number] = [number for _, number, text, _ in group.sides[0].lines if "joined =" in text]
    assert filled(ODD).splitlines()[number - 1].strip() == "joined = torch.cat(collected)"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# a comment",
        "\0" * 1000,
        '"' * 1001,
        "'''\n" * 999,
        "(" * 100_000,
        "x " * 500_000,
        "\\\n" * 1000,
        "é𝔘 " * 999,
        "0" * 500_000,
    ],
    ids=range(10),
)
def test_no_text_is_too_strange_or_too_long(text):
    before = time.process_time()
    found({"a": text, "b": text[::-1], "c": filled(ODD)})
    assert time.process_time() - before < 5


def test_a_large_class_is_compared_in_seconds():
    students = {f"s{number:04}": filled(odd_of_their_own(number)) for number in range(1000)} | {
        "jane": filled(ODD),
        "max": filled(ODD),
    }
    before = time.process_time()
    assert found(students) == [{"jane", "max"}]
    assert time.process_time() - before < 20


def test_the_page_shows_both_sides_and_takes_nobodys_code_for_its_own():
    code = ODD.replace("my own way", "</pre><script>alert(1)</script>").replace("1.0", "'<img src=x>'")
    page = pages.similarity(
        groups([("<b>a", {FILE: filled(code)}), ("b", {FILE: filled(code)})], {FILE: GIVEN}, {FILE: SOLVED})
    )
    assert "<script" not in page and "<img" not in page and "<b>a" not in page
    assert page.count("&lt;img src=x&gt;") == 2 and page.count("&lt;b&gt;a") == 3 and "100 %" in page
    assert "No submissions have" in pages.similarity([])


@pytest.fixture
def submissions(tmp_path):
    """Three students with the course's own exercises; two of them filled in the same odd code."""
    for student in ("jane", "max", "zoe"):
        for path in (ROOT / "exercises/02_multi_gpu").rglob("*.py"):
            to = tmp_path / "class" / student / path.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text()
            if student != "zoe":
                text = text.replace(
                    '    raise NotImplementedError("PUT YOUR CODE: device")\n', ODD.replace("piece", student)
                )
            to.write_text(text)
    return tmp_path / "class"


def test_collected_submissions_are_compared_with_the_courses_own_exercises(submissions, tmp_path):
    name = "exercises/02_multi_gpu/pytorch/train_cifar_multi_gpu.py"
    [group] = similarity.of_submissions(collect(submissions, tmp_path / "work", [name]))
    assert [side.student for side in group.sides] == ["jane", "max"]
    assert group.files == (name,)
    assert group.gaps == ((name, "device"),)
    assert 'device <span class="soft">in exercises/02_multi_gpu' in pages.similarity([group])


@pytest.mark.thorough
def test_similarity_is_a_command(submissions, tmp_path):
    words = [sys.executable, "-m", "grader", "similarity", str(submissions), "--out", str(tmp_path / "page.html")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ": jane, max\n1 group: see" in done.stdout
    assert "(device in exercises/02_multi_gpu/" in done.stdout
    assert "zoe" not in done.stdout
    assert "joined" in (tmp_path / "page.html").read_text()
    words[4] = str(tmp_path / "nowhere")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_who_hands_in_the_courses_solutions_is_named_where_gaps_are_long_enough_to_tell(tmp_path):
    file, [(gap, _, _), *_] = next(iter(similarity._long_gaps().items()))
    handed_in = {
        "copied": (file, solved(file)),
        "own": (file, solved(file).replace(" = ", " = 0 + ")),
        "more": (file, solved(file, **{gap: f"{answers(exercises.solution(file).read_text())[gap]}\nown = 1"})),
        "short": (UNITS["start"][0].file, "{}"),
    }
    for student, (name, text) in handed_in.items():
        (tmp_path / "class" / student / name).parent.mkdir(parents=True)
        (tmp_path / "class" / student / name).write_text(text)
    sentence, *others = similarity.as_solved(
        collect(tmp_path / "class", tmp_path / "work", [file, UNITS["start"][0].file])
    )
    assert not [one for one in others if not one.startswith("more: ") or f"{gap} in" in one]
    assert sentence.startswith("copied: ") and f"{gap} in {file}" in sentence
    assert sentence in unescape(pages.similarity([], solved=[sentence]))
