"""Pages: everything a student needs is there, ungraded is never 0, and nobody's text is anything but text."""

import base64
import hashlib
import html.parser
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import pytest
from classes import handed_in, not_done, said, store
from waiting import run_to_end

from grader import exercises
from grader.gaps import fill
from grader.instructors.collect import digest_of, unpacked
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import comments_of, note_absent, pages, score_tables, write_reports
from grader.instructors.reports.report_files import ReportError, write
from grader.instructors.rules import Rules, StudentRules, UnitRules
from grader.instructors.scores import scores
from grader.verdict import DEADLOCK

ROOT = Path(__file__).resolve().parents[2]


class Page(html.parser.HTMLParser):
    """What a browser makes of a page: the tags with their attributes, and the text."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.words, self.open = [], [], []
        self.feed(source)
        self.close()
        self.text = " ".join(" ".join(self.words).split())
        assert self.open == [], "every tag is closed"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "br", "img", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "title", "script"):
            self.words.append(data)


@pytest.fixture
def book(tmp_path):
    with Gradebook(tmp_path / "out") as book:
        yield book


def feedback(book, student="jane", pictures=()):
    return Page(pages.feedback(next(score for score in scores(book) if score.student == student), pictures))


def test_feedback_shows_points_message_hint_and_output_of_each_gap(book):
    bad = said(
        "average_gradients",
        0.5,
        status=DEADLOCK,
        message="ranks 0 and 1 wait in all_reduce",
        hint="call it on all ranks",
        output="epoch 1\n[... 123 bytes cut ...]\nepoch 9",
    )
    store(book, handed_in(digest="before"), [bad])
    store(book, handed_in(attempt=2, late=True), [bad, said("step", 2.0)])
    page = feedback(book)
    for words in (
        "multi gpu",
        "average gradients 0.5 of 2",
        "equal gradients deadlock 0.5 / 2",
        "ranks 0 and 1 wait in all_reduce",
        "Hint call it on all ranks",
        "epoch 1 [... 123 bytes cut ...] epoch 9",
        "2.5 of 4",
        "step 2 of 2",
        "attempt 2",
        "late",
    ):
        assert words in page.text
    assert any(attributes.get("class") == "cut" for _, attributes in page.tags), "the cut is marked"


def test_feedback_has_its_messages_in_the_language_of_the_course(book):
    store(book, handed_in(), [said(points=0.0, message="`workers` counts nodes, not processes", hint="<b> & `x`")])
    page = Page(pages.feedback(scores(book, rules=Rules(language="ja"))[0]))
    assert "workers は、プロセスではなくノードを数えています" in page.text
    assert "最初に直すところ" in page.text and "to fix first" not in page.text.lower()
    assert "<b> & x" in page.text


def test_feedback_begins_with_what_to_fix_first_and_folds_what_passed(book):
    store(
        book,
        handed_in(),
        [
            said("device", 2.0),
            said("replica", 0.0, check="all ranks", message="this counts only if the gap runs", hint="later"),
            said("replica", 0.0, check="equal", status=DEADLOCK, message="rank 1 `waits`", hint="call it on all"),
            not_done("step", message="to be filled"),
        ],
    )
    source = pages.feedback(scores(book)[0])
    text = Page(source).text
    assert "To fix first replica in multi gpu" in text
    assert (
        ", exercises/02_multi_gpu/pytorch/train_cifar_multi_gpu.py rank 1 waits What to do next: change this part"
        in text
    )
    assert text.index("To fix first") < text.index("1 passed: device")
    assert re.search(r'<details class="gap"><summary>.*1 passed: device</summary>', source)
    assert "python -m grader check multi_gpu" in text


def test_feedback_names_what_to_write_next_and_says_when_nothing_is_left(book):
    store(book, handed_in(), [said("device", 2.0), not_done("step", message="to be filled", hint="the mean")])
    assert (
        "To write next step in multi gpu, exercises/02_multi_gpu/pytorch/train_cifar_multi_gpu.py What to do next: fill"
        " in this gap" in feedback(book).text
    )
    store(book, handed_in(digest="2"), [said("device", 2.0)])
    assert "You have all points" in feedback(book).text and "What to do next" not in feedback(book).text


@pytest.mark.parametrize("unit, gap", [("", ""), ("multi_gpu", ""), ("multi_gpu", "step")])
def test_what_a_person_has_decided_on_is_not_to_be_fixed(book, unit, gap):
    store(book, handed_in(), [said("step", 0.5)])
    assert "To fix first" in feedback(book).text
    book.adjust("jane", unit, gap, 1.5, "right, in another way", "who")
    assert "To fix first" not in feedback(book).text


def test_what_stands_between_backticks_is_code_and_nothing_more(book):
    store(book, handed_in(), [said(points=0.0, message="divide by `a<b>`", hint="call `f()` \x1b[31monce")])
    source = pages.feedback(scores(book)[0])
    assert "divide by <code>a&lt;b&gt;</code>" in source and "call <code>f()</code> once" in source
    assert "divide by <code>a&lt;b&gt;</code>" in pages.report(scores(book))


def test_ungraded_is_shown_as_such_and_never_as_0(book):
    store(book, handed_in(), [said("step", None, message="the box broke"), said("split", 2.0)])
    page = feedback(book)
    assert "step ungraded" in page.text and "2 of 4 so far" in page.text and "costs no points" in page.text
    assert not re.search(r"\b0 (of|/)", page.text) and "grader fault" not in page.text
    assert "jane ungraded 1 1 ungraded" in Page(pages.report(scores(book))).text


def test_feedback_on_a_refused_submission_gives_the_reason(book):
    book.record([handed_in(digest="", refused="x.zip is encrypted.")])
    page = feedback(book)
    assert "could not be read" in page.text and "x.zip is encrypted." in page.text and " of " not in page.text


def test_points_by_hand_for_a_refused_submission_are_told_everywhere(book):
    store(book, handed_in("max"), [said("step", 1.0)])
    book.record([handed_in(digest="", refused="x.zip is encrypted.")])
    book.adjust("jane", "multi_gpu", "", 1.5, "shown in class", "Dr. Roe")
    jane = scores(book)[0]
    page, report = Page(pages.feedback(jane)), Page(pages.report(scores(book)))
    assert "x.zip is encrypted." in page.text
    assert "set to 1.5 of 2 points by hand: shown in class" in page.text
    assert "1.5 of 2" in page.text
    assert (jane.points, jane.complete) == (1.5, True)
    assert "What to do next" in page.text, "the other units are still to be handed in"
    book.adjust("jane", "", "", 2.0, "shown in class", "Dr. Roe")
    whole = feedback(book).text
    assert "could not be read" in whole and "could not be graded" not in whole and "What to do next" not in whole
    assert "jane 1.5 1 by hand 1.5" in report.text
    assert re.search(r"jane multi gpu shown in class \([^)]*\) 1.5", report.text)
    assert "jane,multi_gpu,adjusted,1.5,0,adjusted" in score_tables.grades([jane])
    assert "multi_gpu 1.5/2" in score_tables.moodle([jane])


def test_who_waits_to_be_graded_is_found_among_the_ungraded(book):
    store(book, handed_in("max"), [said("step", 1.0), said("workers", unit="start", track="")])
    store(book, handed_in("jane"), [said("workers", unit="start", track="")])
    jane, maximal = scores(book)
    assert pages.marks(jane)["ungraded"] == "1 task" and pages.marks(maximal)["ungraded"] == ""


def test_feedback_tells_about_files_and_adjustments(book):
    store(book, handed_in(problems=("Missing: notebooks/a.ipynb.",)), [said("step", 0.0)])
    book.adjust("jane", "multi_gpu", "step", 1.5, "a typo in the task", "Dr. Roe")
    page = feedback(book)
    assert "Missing: notebooks/a.ipynb." in page.text
    assert re.search(r"Set to 1.5 points by hand: a typo in the task \(Dr. Roe, \d{4}-\d\d-\d\d\)", page.text)


def test_a_comment_is_shown_and_says_if_it_is_about_an_earlier_submission(book):
    store(book, handed_in(), [said("device", 2.0)])
    book.comment("jane", "multi_gpu", "device", "well <done>", "J. Roe", "d")
    for digest, words in (("d", "J. Roe: well <done>"), ("d2", "J. Roe on an earlier submission: well <done>")):
        store(book, handed_in(digest=digest), [said("device", 2.0)])
        page = Page(pages.feedback(scores(book)[0], comments=comments_of(book)["jane"]))
        assert words in page.text and "1 passed" not in page.text, "what is commented on is not folded"


def test_the_other_track_is_shown_if_it_was_tried(book):
    store(book, handed_in(), [said("step", 2.0), said("scatter", 1.0, track="chainer", message="not all images")])
    assert "does not count" in feedback(book).text and "not all images" in feedback(book).text
    store(
        book, handed_in(digest="2"), [said("step", 2.0), not_done("scatter", track="chainer", message="not all images")]
    )
    assert "does not count" not in feedback(book).text


def test_output_of_any_length_is_cut_and_the_cut_marked(book):
    store(book, handed_in(), [said(points=0.0, output="start\n" + "x" * 100_000 + "\nend")])
    page = feedback(book)
    assert "start" in page.text and "end" in page.text and len(page.text) < 2 * pages.LONGEST
    assert "[... 92010 characters cut ...]" in page.text


HOSTILE = ["<script>alert(1)</script>", "</pre><img src=x onerror=alert(1)>", "\"'><svg onload=alert(1)>"]
HOSTILE += ["{{ 7 * 7 }}{% raw %}", "&lt;b&gt;", "<!--", "]]>", "</style><style>*{display:none}"]
HOSTILE += ["javascript:alert(1)", "a\x00\x1b[31m\u202eb\ud800", "<title>x</title>"]


def skeleton(page):
    """Tags and attributes, but for what they are meant to carry of a text."""
    return [
        (tag, {name: value for name, value in attributes.items() if name != "href"}) for tag, attributes in page.tags
    ]


def written(book, text):
    name = text.replace("\ud800", "").replace("/", "_")
    store(
        book,
        handed_in(name, problems=(name,)),
        [said(name, 0.0, check=text, message=text, hint=text, output=text), said("b", None, message=text)],
    )
    book.adjust(name, "multi_gpu", name, 1.0, name, name)
    return Page(pages.feedback(scores(book)[0])), Page(pages.report(scores(book)))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(book, tmp_path, text):
    found = written(book, text)
    with Gradebook(tmp_path / "harmless") as harmless:
        for page, of_harmless in zip(found, written(harmless, "harmless"), strict=True):
            assert skeleton(page) == skeleton(of_harmless)
            assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
            links = [
                value for _, attributes in page.tags if (value := attributes.get("href")) and not value.startswith("#")
            ]
            assert all(value.startswith("feedback/") and "/" not in value[9:] for value in links)
            assert all(letter.isprintable() for letter in page.text)
            if text.isprintable():
                assert text.replace("_", " ") in page.text


def test_pages_need_nothing_else_and_run_nothing(book):
    store(book, handed_in(), [said()])
    for page in (pages.feedback(scores(book)[0]), pages.report(scores(book))):
        assert "default-src 'none'" in page and "@import" not in page and "url(" not in page
        assert not re.search(r"https?://", page)
        assert 'name="viewport"' in page and "@media print" in page


def test_the_reports_own_script_is_the_only_one_that_may_run(book):
    store(book, handed_in("<script>alert(1)</script>"), [said()])
    assert "<script" not in pages.feedback(scores(book)[0]) and "script-src" not in pages.feedback(scores(book)[0])
    page = pages.report(scores(book))
    [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = [attributes["content"] for tag, attributes in Page(page).tags if attributes.get("http-equiv")]
    assert re.findall(r"script-src ([^;]*)", policy) == [f"'sha256-{digest}'"]
    assert "innerHTML" not in script and "eval" not in script, "it handles text as text"


def test_own_plots_are_shown_as_pictures_that_run_nothing(book, tmp_path):
    folder = tmp_path / "plots"
    folder.mkdir()
    (folder / "speed.svg").write_text("<svg><script>alert(1)</script></svg>")
    (folder / "loss.png").write_bytes(b"\x89PNG")
    (folder / "page.html").write_text("<script>")
    (folder / "large.png").write_bytes(bytes(pages.PICTURE + 1))
    (folder / "link.png").symlink_to("/etc/passwd")
    store(book, handed_in(), [said()])
    page = feedback(book, pictures=pages.plots(folder))
    assert [(attributes["alt"], attributes["src"][:20]) for tag, attributes in page.tags if tag == "img"] == [
        ("loss", "data:image/png;base6"),
        ("speed", "data:image/svg+xml;b"),
    ]
    assert pages.plots(tmp_path / "nowhere") == []


def class_of(book, count):
    for number in range(count):
        verdicts = [said("easy", 2.0, seconds=3.0, cpu_seconds=1.0)]
        verdicts += [
            said("hard", 0.0, message=f"after step {number} parameters differ by up to {number / 7:.2g}", seconds=0.5)
        ]
        verdicts += [
            (
                not_done("left_out", message="still to be filled")
                if number % 2
                else said("left_out", 1.0, message="another thing")
            )
        ]
        store(book, handed_in(f"s{number:02}", digest=f"d{number}"), verdicts)


def test_the_report_names_the_hardest_gaps_first(book):
    class_of(book, 8)
    rows = pages.hardest_gaps(scores(book))
    assert [(row["gap"], row["share"], row["attempted"], row["students"]) for row in rows] == [
        ("hard", 0, 8, 8),
        ("left_out", 0.25, 4, 8),
    ]
    text = Page(pages.report(scores(book))).text
    assert text.index("hard multi gpu") < text.index("left out multi gpu")


def test_the_report_has_distribution_statuses_timings_and_students(book):
    class_of(book, 8)
    book.record([handed_in("zoe", digest="", refused="x.zip is encrypted.")])
    page = Page(pages.report(scores(book)))
    for words in (
        "9 students",
        "1 could not be read",
        "8 passed",
        "12 failed",
        "4 not attempted",
        "3.50 s",
        "1.00 s",
        "x.zip is encrypted.",
    ):
        assert words in page.text.replace("\u00a0", " ")
    [labels] = [label for _, attributes in page.tags if "How many" in (label := attributes.get("aria-label", ""))]
    assert labels.endswith(
        ": 4 from 32 to 34 %, 0 from 34 to 36 %, 0 from 36 to 38 %, 0 from 38 to 40 %, 0 from 40 to 42 %, 0 from 42 to"
        " 44 %, 0 from 44 to 46 %, 0 from 46 to 48 %, 4 from 48 to 50 %"
    ), "half have 2 of 6 points, half 3 of 6"
    [body] = re.findall(r"<tbody>(.*?)</tbody>", pages.report(scores(book)), re.DOTALL)
    assert body.count("<tr") == 9


def test_the_table_of_students_has_what_an_instructor_looks_for(book):
    store(book, handed_in("max", digest="before"), [said("step", 1.0)])
    store(
        book,
        handed_in("max", late=True, attempt=2),
        [said("step", None), said("split", 1.0, message="[x: a person should look at it]")],
    )
    store(book, handed_in("jane"), [said("step", 1.0)])
    book.adjust("jane", "multi_gpu", "step", 1.5, "why", "who")
    page = pages.report(scores(book))
    rows = [
        re.findall(r"<t[dh]>(.*?)</t[dh]>", row)
        for row in re.findall(r"<tr.*?</tr>", page[page.index('id="students"') :], re.DOTALL)[:3]
    ]
    rows = [[re.sub("<.*?>", "", cell) for cell in row] for row in rows]
    assert rows == [
        ["student", "total", "late", "attempt", "by hand", "ungraded", "look at", "multi gpu"],
        ["jane", "1.5", "", "1", "by hand", "", "", "1.5"],
        ["max", "ungraded", "late", "2", "", "1", "look", "ungraded"],
    ]
    assert (
        page.index('id="students"')
        < page.index("Hardest gaps")
        < page.index("Most common misconceptions")
        < page.index("Distribution")
    )


def test_a_misconception_names_its_students_and_shows_what_one_of_them_wrote(book):
    class_of(book, 20)
    file = book.folder / "submissions/s00/1/exercises/02_multi_gpu/pytorch/train_cifar_multi_gpu.py"
    file.parent.mkdir(parents=True)
    given = exercises.given_out("exercises/02_multi_gpu/pytorch/train_cifar_multi_gpu.py")
    file.write_text(fill(given, {"device": "device = '<b>my own'"}))
    digest = digest_of({str(file.relative_to(file.parents[3])): file.read_bytes()})
    store(book, handed_in("s00", digest=digest), [said("device", 0.0, message="no such device")])
    assert unpacked(scores(book)[0].submission, book.folder / "submissions") == file.parents[3]
    page = pages.report(scores(book), folder=book.folder)
    assert "What s00 wrote</summary><pre>device = &#39;&lt;b&gt;my own&#39;</pre>" in page
    text = Page(page).text
    assert "s01 , s02 , s03 , s04 , s05 , s06 , s07 , s08 , s09 , s10 , s11 , s12 and 7 more" in text
    assert page.count('data-said="') == 20


def test_the_report_says_who_was_not_handed_in_this_time_until_they_are(book):
    store(book, handed_in(), [said()])
    for absent in (["jane", "Ann_14"], []):
        note_absent(book.folder, absent)
        write_reports(book, book.folder)
        text = Page((book.folder / "report.html").read_text()).text
        assert ("In the gradebook, but not in this download: jane." in text) == bool(absent)
        assert ("Submitted according to Moodle's worksheet, but not in the download: Ann_14." in text) == bool(absent)


def test_everything_is_written_where_it_belongs_and_only_when_it_changed(book):
    folder = book.folder
    store(book, handed_in("../../evil\n", "7"), [said()])
    write_reports(book, folder)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    [name] = [Path(file).stem for file in files if file.startswith("feedback/")]
    assert files == {
        "gradebook.sqlite",
        "gradebook.lock",
        "reports.lock",
        "grades.csv",
        "overview.csv",
        "moodle.csv",
        "canvas.csv",
        "nbgrader.csv",
        "report.html",
        f"results/{name}.json",
        f"feedback/{name}.html",
    }
    page = Page((folder / "report.html").read_text())
    [link] = [
        attributes["href"] for tag, attributes in page.tags if tag == "a" and not attributes["href"].startswith("#")
    ]
    assert (folder / link).is_file(), "the report leads to the feedback"
    os.utime(folder / "grades.csv", (1000, 1000))
    write_reports(book, folder)
    assert (folder / "grades.csv").stat().st_mtime == 1000


def test_a_file_is_written_aside_first(tmp_path, monkeypatch):
    write(tmp_path / "a/b.html", "old")
    monkeypatch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(ReportError, match="b.html can't be written .No space left on device"):
        write(tmp_path / "a/b.html", "new")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.html"]
    assert (tmp_path / "a/b.html").read_text() == "old"


def grader(*words):
    return run_to_end([sys.executable, "-m", "grader", *map(str, words)], cwd=ROOT)


@pytest.mark.thorough
def test_adjust_and_report_are_commands(tmp_path):
    with Gradebook(tmp_path) as book:
        store(book, handed_in(), [said("step", 0.5)])
    wanted = ["--student", "jane", "--unit", "multi_gpu", "--gap", "step", "--reason", "a typo", "--author", "Dr. Roe"]
    assert grader("adjust", tmp_path, *wanted, "--points", 1.5).returncode == 0
    assert "a typo" in (tmp_path / "feedback/jane.html").read_text()
    assert ",1,0,adjusted," in (tmp_path / "grades.csv").read_text()
    (tmp_path / "grades.csv").unlink()
    done = grader("report", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"1 students: see {tmp_path / 'report.html'}\n")
    assert "adjusted" in (tmp_path / "grades.csv").read_text()
    assert grader("adjust", tmp_path, *wanted).returncode == 0  # taken back
    assert "adjusted" not in (tmp_path / "grades.csv").read_text()


def test_pages_say_what_the_courses_rules_made_of_the_points(book):
    due = datetime(2026, 11, 20, 17, tzinfo=UTC)
    course = Rules(
        title="My term",
        scale=100,
        passing=50,
        units={"multi_gpu": UnitRules(due=due, per_day=10, gaps={"b": 0})},
        students={"jnae": StudentRules()},
    )
    store(book, handed_in(handed_in=(due + timedelta(hours=30)).isoformat()), [said("a", 2.0), said("b", 0.0)])
    store(book, handed_in("max", digest="m"), [said("a", 2.0), said("b", 0.0)])
    of_class = scores(book, rules=course)
    jane, report = Page(pages.feedback(of_class[0])), Page(pages.report(of_class))
    for words in (
        "My term",
        "Handed in Saturday, 21 November 2026, 23:00 (UTC)",
        "late",
        "80 of 100",
        "passed",
        "b without points",
        "multi_gpu: 2 days late: −20 %, 2 points become 1.6.",
        "1.6 of 2 points give the grade 80 of 100: passed (50 are needed).",
    ):
        assert words in jane.text
    assert "My term" in report.text
    assert "course.toml names 'jnae', who has handed in nothing; did you mean 'jane'?" in report.text
    assert (
        "It is not known when multi_gpu was handed in, so nothing counts as late. A person should look: max."
        in report.text
    )


def test_a_unit_that_nobody_has_begun_is_folded_and_no_zero(book):
    store(book, handed_in(), [said("a", 1.0), not_done("b", unit="start", track="")])
    [score] = scores(book)
    page, of_class = pages.feedback(score), pages.report([score])
    assert re.search(
        r'id="start">.*<details><summary>Not begun</summary>.*still|id="start">.*Not begun', page, re.DOTALL
    )
    assert "<td>1</td><td>–</td>" in of_class.replace("\n", "")


def test_a_sentence_that_one_student_was_told_is_folded(book):
    for student in ("ann", "bob"):
        store(
            book,
            handed_in(student, digest=student),
            [said("a", 0.0, message="common"), said("b", 0.0, message=student)],
        )
    page = pages.report(scores(book))
    common, folded = page.index("common</div>"), page.index("Messages to a single student")
    assert common < folded < page.index(">ann</div>") and folded < page.index(">bob</div>")


def test_what_was_not_read_and_who_is_in_a_group_is_in_the_report(book):
    problem = "02_multi_gpu_final.ipynb was not looked at: is it notebooks/02_multi_gpu.ipynb? Give it that name."
    store(book, handed_in("ann", problems=(problem,)), [said("a", 1.0)])
    store(book, handed_in("zoe", digest="", refused="x"), [])
    page = pages.report(scores(book, rules=Rules(groups={"Rhein": ("ann", "bob")})), ["ann"])
    assert f"Handed in and not read: {problem} A person should look: ann" in unescape(page)
    assert "Rhein</span></td>" in page and "<td>missing</td>" in page and "<td>not read</td>" in page


def test_who_is_in_a_group_of_one_unit_alone_has_a_page(book):
    store(book, handed_in("ann"), [said("step", 1.0), said("c", 1.0, unit="start", track="")])
    course = Rules(units={"multi_gpu": UnitRules(groups={"One": ("ann", "zoe")})})
    ann, zoe = scores(book, ["multi_gpu", "start"], course)
    assert "group One; handed in by ann" in pages.feedback(zoe) and "<td>1</td><td>–</td>" in pages.report([ann, zoe])
    for table in (
        score_tables.grades,
        score_tables.overview,
        score_tables.nbgrader,
        score_tables.moodle,
        score_tables.canvas,
    ):
        assert "zoe" in table([ann, zoe])
    assert score_tables.gradescope(zoe)
