"""An instructor's evening in a real browser: the table of students, points and comments by hand, grading again, and
looking on."""

import re
from types import SimpleNamespace

import pytest
from waiting import wait_until

from grader import exercises
from grader.course import UNITS
from grader.exercises import solved
from grader.instructors.collect import digest_of
from grader.instructors.gradebook import Gradebook
from grader.instructors.reports import PROGRESS, write_reports
from grader.verdict import GRADER_FAULT
from tests.grader.classes import handed_in, not_done, said, store
from tests.grader.serving import served

UNIT = "single_gpu"
SCRIPT = next(part for part in UNITS[UNIT] if part.file.endswith(".sh"))  # its check needs no libraries
GAP = SCRIPT.checks[0].gap
HOSTILE = "<img src=x onerror=document.title='hacked'>"

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Grades of five students: ann is ungraded though right, ben has points that wait to be confirmed, and dan a
    hostile name."""
    folder = tmp_path_factory.mktemp("class")
    text = solved(SCRIPT.file)
    path = folder / "submissions/ann/1" / SCRIPT.file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with Gradebook(folder) as book:
        store(
            book,
            handed_in("ann", digest=digest_of({SCRIPT.file: text.encode()})),
            [of_script(status=GRADER_FAULT, points=None)],
        )
        store(book, handed_in("ben", digest="b1"), [of_script(points=0.0), not_done("throughput", unit=UNIT)])
        book.adjust("ben", UNIT, GAP, 1.0, "shown in class", "A. Roe")
        store(
            book, handed_in("ben", digest="b2", late=True), [of_script(points=0.0), not_done("throughput", unit=UNIT)]
        )
        store(book, handed_in("cleo10", digest="c"), [of_script(points=2.0)])
        store(book, handed_in(HOSTILE.replace("/", "_"), digest="d"), [of_script(points=1.0, message=HOSTILE)])
        store(book, handed_in("eva9", digest="e"), [of_script(points=1.5, message="not so")])
        write_reports(book, folder)
    assert exercises.given_out(SCRIPT.file).text != text
    return folder


def of_script(points, **fields):
    return said(GAP, points, unit=UNIT, track="", **fields)


@pytest.fixture(scope="module")
def desk(folder):
    with served(folder, "--engines", "1") as address:
        yield SimpleNamespace(address=address, root=address.split("?")[0], folder=folder)


@pytest.fixture
def at_desk(browser, desk):
    """A function: a browser of its own for a person who has opened the address."""
    contexts = []

    def opened(path=""):
        contexts.append(browser.new_context(viewport={"width": 1200, "height": 900}))
        page = contexts[-1].new_page()
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda said: said.type == "error" and page.problems.append(said.text))
        page.goto(desk.address)
        assert "token" not in page.url
        if path:
            page.goto(desk.root + path)
        return page

    yield opened
    for context in contexts:
        for page in context.pages:
            assert page.title() != "hacked"
        context.close()


def names(page):
    return [name for name in page.locator("#students tbody tr:visible td:first-child").all_inner_texts()]


def edit(page, gap, **fields):
    """Open the form of a gap, and type."""
    section = page.locator("section.gap", has=page.locator(f"h3:text-is('{gap.replace('_', ' ')}')"))
    if not section.is_visible():
        page.locator("summary", has_text="passed:").click()
    section.locator("details.edit > summary").click()
    for name, text in fields.items():
        section.locator(f"form.by-hand:not(.decide) [name={name}]").fill(text)
    return section


def test_the_report_sorts_and_searches_without_a_server(browser, folder):
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: said.type == "error" and problems.append(said.text))
    page.goto((folder / "report.html").as_uri())
    assert names(page)[1:] == ["ann", "ben", "cleo10", "eva9"]
    page.get_by_role("button", name="total").click()
    assert names(page)[:4] == ["ben", HOSTILE, "eva9", "cleo10"], "what has no grade comes last"
    page.get_by_role("button", name="total").click()
    assert names(page)[:4] == ["cleo10", "eva9", HOSTILE, "ben"]
    page.get_by_role("link", name="late", exact=True).click()
    assert names(page) == ["ben"]
    page.get_by_role("link", name="all", exact=True).click()
    page.get_by_role("searchbox").fill("EVA")
    assert names(page) == ["eva9"] and page.locator("#tools output").inner_text() == "1 of 5"
    page.reload()
    assert names(page) == ["eva9"], "what was chosen stands in the address"
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="student").click()
    assert page.title() != "hacked" and problems == []
    page.close()


def test_points_and_comments_by_hand_stand_on_the_page_and_in_the_table(at_desk, desk):
    page = at_desk("feedback/cleo10.html")
    page.set_viewport_size({"width": 1200, "height": 300})
    edit(page, GAP, points="1,5", text=f"see the lecture {HOSTILE}", author="J. Roe").get_by_role(
        "button", name="Set the points"
    ).click()
    page.get_by_text("Set to 1.5 points by hand: see the lecture").wait_for()
    assert HOSTILE in page.locator(".note").first.inner_text()
    tops = [page.locator(place).first.bounding_box() for place in (f"#{UNIT} h2", ".status")]
    assert page.url.endswith(f"#{UNIT}") and tops[0]["y"] >= tops[1]["y"] + tops[1]["height"], (
        "the bar does not cover the task's name"
    )
    edit(page, GAP, text="But well explained.").get_by_role("button", name="Comment only").click()
    page.get_by_text("But well explained.").wait_for()
    page.get_by_role("link", name="The class", exact=True).click()
    row = page.locator("#students tbody tr", has_text="cleo10")
    assert "by hand" in row.inner_text() and "1.5" in row.inner_text()
    wait_until(
        lambda: "But well explained." in (desk.folder / "feedback/cleo10.html").read_text(), "the page has the comment"
    )
    assert page.problems == []


def test_points_for_an_earlier_submission_are_confirmed(at_desk, desk):
    page = at_desk("feedback/ben.html")
    page.get_by_text("do not count now").wait_for()
    page.locator("form.decide [name=author]").fill("J. Roe")
    page.get_by_role("button", name="Apply to the newest submission").click()
    page.get_by_text("Set to 1 point by hand: shown in class (J. Roe").wait_for()
    with Gradebook(desk.folder, writing=False) as book:
        assert book.adjustments()["ben", UNIT, GAP]["digest"] == "b2"


def test_of_two_people_the_later_one_is_asked(at_desk, desk):
    one, other = at_desk("feedback/eva9.html"), at_desk("feedback/eva9.html")
    section = edit(other, GAP, points="1", text="theirs", author="T. Theirs")
    edit(one, GAP, points="2", text="mine", author="M. Mine").get_by_role("button", name="Set the points").click()
    one.get_by_text("Set to 2 points by hand: mine").wait_for()
    other.locator("#changed").wait_for()
    section.get_by_role("button", name="Set the points").click()
    other.get_by_role("heading", name="Not changed yet").wait_for()
    assert "Set to 2 points by hand: mine (M. Mine" in other.locator("main").inner_text()
    assert other.locator("[name=text]").input_value() == "theirs"
    other.get_by_role("button", name="Set the points").click()
    one.get_by_text("Set to 1 point by hand: theirs").wait_for()  # by itself


def test_a_student_is_graded_again_and_the_page_shows_it(at_desk, desk):
    page = at_desk("feedback/ann.html")
    assert "ungraded" in page.locator("main").inner_text()
    page.get_by_role("button", name="Grade again").click()
    page.locator("#progress:visible").wait_for()
    page.locator("summary", has_text="1 passed: " + GAP.replace("_", " ")).wait_for(timeout=120_000)
    page.get_by_text("Graded again: ").wait_for(timeout=60_000)
    assert "1 passed" in (desk.folder / "feedback/ann.html").read_text()


def test_the_report_shows_how_far_a_grader_is_and_what_it_finds(at_desk, desk):
    page = at_desk()
    with Gradebook(desk.folder) as grader:
        (desk.folder / PROGRESS).write_text('{"done": 3, "pieces": 8}')
        page.get_by_text("3 of 8 pieces graded").wait_for()
        store(grader, handed_in("fay", digest="f"), [of_script(points=2.0)])
        page.locator("#students a", has_text="fay").wait_for()
        (desk.folder / PROGRESS).unlink()
    page.get_by_text(re.compile("No grader is running|Graded again")).wait_for()
