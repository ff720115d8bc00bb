"""Live pages: only who has the token comes in, only their own forms change anything, and nothing that was typed in is
lost."""

import http.client
import json
import re
import subprocess
import sys
import tempfile
import urllib.parse
from html import unescape
from types import SimpleNamespace

import pytest
from classes import handed_in, said, store
from serving import ROOT, served
from waiting import run_to_end, wait_until

from grader.course import UNITS
from grader.exercises import solved
from grader.instructors import adjustments, reports
from grader.instructors.collect import digest_of, file_name
from grader.instructors.grade import grading
from grader.instructors.gradebook import Gradebook, InUse
from grader.instructors.reports import PROGRESS
from grader.instructors.serve.desk import Desk

STUDENT = "Zoë <b> O'Neill"


def class_in(folder):
    with Gradebook(folder) as book:
        store(book, handed_in(STUDENT, digest="1"), [said("step", 0.5), said("device", 2.0)])
        store(book, handed_in("max", digest="2"), [said("step", 1.0)])
    return folder


class Browser:
    """What a browser keeps between two pages: cookies."""

    def __init__(self, address):
        self.at = urllib.parse.urlsplit(address)
        self.cookies = {}

    def ask(self, path, fields=None, **headers):
        """(status, headers, text) of a page; fields: of a form to send."""
        connection = http.client.HTTPConnection(self.at.hostname, self.at.port, timeout=60)
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} | headers
        body = None if fields is None else urllib.parse.urlencode(fields)
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        for cookie in answer.headers.get_all("Set-Cookie", ()):
            name, value = cookie.split(";")[0].split("=", 1)
            self.cookies[name] = value
        return SimpleNamespace(status=answer.status, headers=answer.headers, text=answer.read().decode())

    def form(self, student, unit, gap):
        """The hidden fields of the form for a gap."""
        page = self.ask(f"/feedback/{urllib.parse.quote(student)}.html").text
        forms = [
            dict(re.findall(r'type="hidden" name="(\w+)" value="(.*?)"', form)) for form in page.split("<form")[1:]
        ]
        forms = [{name: unescape(value) for name, value in form.items()} for form in forms]
        return next(form for form in forms if (form.get("unit"), form.get("gap")) == (unit, gap))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = class_in(tmp_path_factory.mktemp("class"))
    with served(folder) as address:
        yield SimpleNamespace(url=address, folder=folder)


@pytest.fixture
def browser(address):
    browser = Browser(address.url)
    assert browser.ask(f"/?{browser.at.query}").status == 302
    return browser


def entered_points(points, text, author):
    """What a person types into a form that sets points."""
    return {"action": "set", "points": points, "text": text, "author": author}


def said_on(page):
    return re.search(r"<p>(.*?)</p>", page.text)[1]


@pytest.mark.thorough
def test_the_token_is_asked_for_once_and_leaves_the_address(address):
    browser = Browser(address.url)
    for path in ("/", "/?token=wrong", "/progress", "/feedback/max.html", "/nowhere"):
        assert browser.ask(path).status == 403 and "multi gpu" not in browser.ask(path).text
    entered = browser.ask(f"/?{browser.at.query}")
    assert (entered.status, entered.headers["Location"]) == (302, "/")
    [cookie] = [one for one in entered.headers.get_all("Set-Cookie") if "xsrf" not in one]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert browser.at.query.removeprefix("token=") not in cookie
    assert "multi gpu" in browser.ask("/").text and browser.ask("/nowhere").status == 404


@pytest.mark.thorough
def test_a_name_that_points_to_this_computer_does_not_get_in(browser):
    for host in ("evil.example", f"evil.example:{browser.at.port}", "127.0.0.1", f"127.0.0.1:{browser.at.port + 1}"):
        page = browser.ask("/", Host=host)
        assert page.status == 403 and "only to its own address" in page.text
    assert browser.ask("/", Host=f"localhost:{browser.at.port}").status == 200


def test_only_a_form_of_these_pages_changes_anything(browser, address):
    form = browser.form("max", "multi_gpu", "step") | entered_points("2", "why", "who")
    for path in ("/adjust", "/regrade"):
        assert browser.ask(path, form | {"_xsrf": "made up"}).status == 403
        assert browser.ask(path, {name: value for name, value in form.items() if name != "_xsrf"}).status == 403
        foreign = browser.ask(path, form, Origin="http://127.0.0.1:1")
        assert foreign.status == 403 and "comes from another page" in foreign.text
        assert Browser(address.url).ask(path, form).status == 403
        assert browser.ask(path).status == 405
    with Gradebook(address.folder, writing=False) as book:
        assert not book.adjustments()


def test_pages_run_no_script_but_their_own_and_send_nothing_elsewhere(browser):
    for path in ("/", f"/feedback/{urllib.parse.quote(file_name(STUDENT))}.html"):
        page = browser.ask(path)
        [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page.text)
        assert "default-src 'none'" in policy
        assert "connect-src 'self'" in policy
        assert "form-action 'self'" in policy
        assert "unsafe-eval" not in policy
        assert "script-src 'sha256-" in policy and "<b> O'Neill" not in page.text
        assert page.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        assert page.headers["Cache-Control"] == "no-store"


def test_the_live_report_leads_to_the_leaderboard_of_a_contest(browser, tmp_path):
    assert browser.ask("/leaderboard.html").status == 404 and "leaderboard" not in browser.ask("/").text
    numbers = dict.fromkeys(("speed_up", "predicted", "seconds", "plain_seconds", "bytes", "plain_bytes"), 2.0)
    measured = numbers | {"loss": 1.0, "memory": 4 << 20, "others": 0.0}
    with Gradebook(tmp_path) as book:
        store(book, handed_in("max"), [said("train", 4.0, 4.0, unit="challenge", track="", measured=measured)])
    with served(tmp_path) as address:
        other = Browser(address)
        other.ask(f"/?{other.at.query}")
        assert 'href="leaderboard.html"' in other.ask("/").text and "max" in other.ask("/leaderboard.html").text
        assert "2.00 (you)" in other.ask("/feedback/max.html").text


@pytest.mark.thorough
def test_points_and_comments_are_stored_and_the_reports_written(browser, address):
    name = file_name(STUDENT)
    form = browser.form(name, "multi_gpu", "step") | entered_points("1,5", "right, in <another> way", "J. Roe")
    done = browser.ask("/adjust", form)
    assert done.status == 303 and done.headers["Location"].startswith("/feedback/")
    page = browser.ask(done.headers["Location"].split("#")[0])
    assert "Set to 1.5 points by hand: right, in &lt;another&gt; way (J. Roe" in page.text
    assert 'value="J. Roe"' in page.text
    form = browser.form(name, "multi_gpu", "device") | {
        "action": "comment",
        "text": "Short & good.",
        "author": "J. Roe",
    }
    assert browser.ask("/adjust", form).status == 303
    written = address.folder / f"feedback/{name}.html"
    wait_until(lambda: written.exists() and "Short &amp; good." in written.read_text(), "the page has the comment")
    assert "right, in &lt;another&gt; way" in written.read_text() and "<form" not in written.read_text()
    assert (
        "J. Roe on multi_gpu, device: Short & good."
        in json.loads((address.folder / f"results/{name}.json").read_text())["output"]
    )
    form = browser.form(name, "multi_gpu", "step") | {"action": "back", "author": "J. Roe"}
    assert browser.ask("/adjust", form).status == 303
    assert "by hand:" not in browser.ask(f"/feedback/{urllib.parse.quote(name)}.html").text


@pytest.mark.parametrize(
    "fields, sentence",
    [
        ({"points": "many"}, "'many' is not a number of points"),
        ({"points": "nan"}, "is not a number of points"),
        ({"points": ""}, "type the points, or choose only to comment"),
        ({"points": "2.5"}, "2.5 points can't be given"),
        ({"author": " "}, "needs a reason and an author"),
        ({"text": "x" * 2001}, "the text is too long"),
    ],
)
def test_what_cannot_be_stored_is_said_and_stays_in_the_form(browser, fields, sentence):
    typed = entered_points("1", "a reason", "J. Roe") | fields
    page = browser.ask("/adjust", browser.form("max", "multi_gpu", "step") | typed)
    assert page.status == 400 and sentence in unescape(said_on(page))
    assert all(f'value="{typed[name]}"' in page.text for name in ("points", "text"))


def test_who_changes_a_stale_page_sees_both_values_and_decides(browser, address):
    stale = browser.form("max", "multi_gpu", "step") | entered_points("1.5", "mine", "M. Mine")
    other = Browser(address.url)
    other.ask(f"/?{other.at.query}")
    assert (
        other.ask("/adjust", other.form("max", "multi_gpu", "step") | entered_points("2", "theirs", "T. Theirs")).status
        == 303
    )
    page = browser.ask("/adjust", stale)
    assert page.status == 409 and "Set to 2 points by hand: theirs (T. Theirs" in page.text
    assert 'value="1.5"' in page.text and 'value="mine"' in page.text
    with Gradebook(address.folder, writing=False) as book:
        assert book.adjustments()["max", "multi_gpu", "step"]["points"] == 2
    again = dict(re.findall(r'type="hidden" name="(\w+)" value="(.*?)"', page.text))
    assert browser.ask("/adjust", stale | {"version": again["version"]}).status == 303
    with Gradebook(address.folder, writing=False) as book:
        assert book.adjustments()["max", "multi_gpu", "step"]["points"] == 1.5
        assert [row["points"] for row in book.history("max") if row["table"] == "adjustments"] == [2, 1.5], (
            "both are kept"
        )


@pytest.mark.parametrize("where", [{"unit": "nosuch"}, {"gap": "nosuch"}, {"unit": "", "gap": "step"}])
def test_a_form_about_what_nobody_has_is_refused_in_a_sentence(browser, where):
    form = browser.form("max", "multi_gpu", "step") | entered_points("1", "because", "J. Roe")
    found = browser.ask("/adjust", form | where)
    assert found.status == 404 and "There is no such task or gap" in found.text
    found = browser.ask("/regrade", {"_xsrf": form["_xsrf"], "student": "max", "unit": "nosuch"})
    assert found.status == 404 and "There is no such task" in found.text


@pytest.mark.thorough
def test_grades_are_changed_while_a_grader_runs(browser, address):
    with Gradebook(address.folder):  # the lock of a grader
        (address.folder / PROGRESS).write_text('{"done": 3, "pieces": 8}')
        now = browser.ask("/progress").text
        assert '"done": 3, "pieces": 8' in now and '"grader": "process ' in now
        form = browser.form("max", "multi_gpu", "step") | entered_points("0.25", "meanwhile", "J. Roe")
        assert "No grader is running" not in browser.ask("/feedback/max.html").text.partition("<script")[0], (
            "before a script has asked"
        )
        assert browser.ask("/adjust", form).status == 303
        busy = browser.ask("/regrade", {"_xsrf": form["_xsrf"], "student": "max"})
        assert busy.status == 409 and "A grader is running" in busy.text and '<a href="/">The class</a>' in busy.text
    wait_until(lambda: "meanwhile" in (address.folder / "feedback/max.html").read_text(), "the page has the reason")
    assert '"grader": null' in browser.ask("/progress").text


@pytest.mark.thorough
def test_a_port_in_use_and_a_folder_without_grades_are_one_sentence(address, tmp_path):
    port = str(urllib.parse.urlsplit(address.url).port)
    for words, sentence in (
        ([str(address.folder), "--port", port], f"port {port} is in use"),
        ([str(tmp_path)], "has no gradebook.sqlite"),
    ):
        done = run_to_end([sys.executable, "-m", "grader", "serve", *words], cwd=ROOT)
        assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, "") and sentence in done.stderr


@pytest.mark.thorough
def test_who_writes_reports_waits_for_others_and_begins_with_what_they_stored(tmp_path, monkeypatch):
    class_in(tmp_path)
    words = (
        "from grader.instructors import reports; from pathlib import Path; locked ="
        f" reports.locked(Path({str(tmp_path)!r}), reports.LOCK); print('has it', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", words], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "has it\n"
        monkeypatch.setattr(reports, "PATIENCE", 0.1)
        with pytest.raises(InUse):
            adjustments.reports_again(tmp_path)
        other.communicate("\n")
    adjustments.reports_again(tmp_path)
    assert (tmp_path / "report.html").exists()


@pytest.mark.thorough
def test_reports_have_what_was_graded_again_before_an_interruption(tmp_path, monkeypatch):
    name, data = "exercises/01_single_gpu/run_single_gpu_training.sh", b"#"
    path = tmp_path / "submissions/max/1" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with Gradebook(tmp_path) as book:
        store(book, handed_in("max", digest=digest_of({name: data})), [said("step", None)])

    def interrupted(book, pairs, *_):
        assert {one.path for one, _ in pairs} == {path.parents[2]}
        book.store(pairs[0][0], "multi_gpu", [said("step", 2.0)], "2")
        raise KeyboardInterrupt

    monkeypatch.setattr(grading, "_grade", interrupted)
    with pytest.raises(KeyboardInterrupt):
        grading.again(tmp_path, "max", ["multi_gpu"], trusted=True, say=lambda line: None)
    assert "1 passed: step" in (tmp_path / "feedback/max.html").read_text()


def test_what_grading_again_has_changed_is_said(tmp_path, monkeypatch):
    class_in(tmp_path)
    desk = Desk(tmp_path, 1, True)
    assert desk.progress()["said"] == ""
    for printed, expected in (
        ("3 graded.\nChanged grades:\n    max: 35 -> 70\n", "Graded again: max: 35 -> 70."),
        ("3 graded.\n", "Graded again: no grade has changed."),
    ):
        desk._said = tempfile.TemporaryFile()
        desk._regrading = subprocess.Popen([sys.executable, "-c", f"print({printed!r})"], stdout=desk._said)
        desk._regrading.wait()
        assert desk.progress()["said"] == expected


@pytest.fixture(scope="module")
def with_code(tmp_path_factory):
    """A class whose files are there: ann and bob wrote the same, cy something else."""
    folder, part = tmp_path_factory.mktemp("code"), next(one for one in UNITS["single_gpu"] if one.track == "pytorch")
    gap = part.checks[0].gap
    with Gradebook(folder) as book:
        for student, code in ("ann", "mine = 1"), ("bob", "mine = 1  \n# a comment"), ("cy", "<b>other</b> = 2"):
            data = solved(part.file, **{gap: code}).encode()
            files = {part.file: data}
            path = folder / "submissions" / student / digest_of(files)[:12] / part.file
            path.parent.mkdir(parents=True)
            path.write_bytes(data)
            verdict = said(gap, 0.0, unit="single_gpu", message="wrong")
            store(book, handed_in(student, digest=digest_of(files)), [verdict])
    with served(folder) as address:
        yield SimpleNamespace(url=address, folder=folder, gap=gap, file=part.file)


def test_points_are_set_beside_the_code_and_for_all_who_wrote_the_same(with_code):
    browser = Browser(with_code.url)
    browser.ask(f"/?{browser.at.query}")
    page = browser.ask("/feedback/bob.html").text
    assert "mine = 1" in page and "PUT YOUR CODE" in page and "ann" in page and "cy ›" in page
    query = urllib.parse.urlencode({"unit": "single_gpu", "track": "pytorch", "gap": with_code.gap})
    page = browser.ask(f"/gap?{query}").text
    assert "Written by 2" in page and "Written by 1" in page and "<b>other" not in page and "&lt;b&gt;other" in page
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="(.*?)"', page.split("<form")[1]))
    decided = fields | {"points": "1,5", "text": "right, too", "author": "J. Roe"}
    assert browser.ask("/decide", decided).status == 303
    with Gradebook(with_code.folder, writing=False) as book:
        points = {key: row["points"] for key, row in book.adjustments().items()}
    assert points == {(student, "single_gpu", with_code.gap): 1.5 for student in ("ann", "bob")}
    again = browser.ask("/decide", decided | {"points": "2"})
    assert again.status == 409 and "has changed since your page was loaded" in again.text
    assert browser.ask(f"/gap?{query}x").status == 404 and browser.ask("/gap").status == 404


def test_a_students_file_is_shown_as_text_and_no_other_file(with_code):
    browser = Browser(with_code.url)
    browser.ask(f"/?{browser.at.query}")
    asked = {"student": "cy", "unit": "single_gpu", "file": with_code.file}
    shown = browser.ask(f"/file?{urllib.parse.urlencode(asked)}")
    assert shown.status == 200 and "<b>other</b> = 2" in shown.text
    for file in ("../../../gradebook.sqlite", "/etc/passwd", "", with_code.file + "x"):
        assert browser.ask(f"/file?{urllib.parse.urlencode(asked | {'file': file})}").status == 404
