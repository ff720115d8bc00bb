"""The pages' addresses: /, /feedback/STUDENT.html, and the requests of their forms and scripts.

Other web sites and other people on this computer are kept out: the Host header must be this server's (not another name
that resolves to this computer), the cookie proves the token, and a change must come from a form of these pages: it
carries tornado's _xsrf token, and its Origin header, if there is one, must be this server's.
"""

import asyncio
import functools
import hashlib
import hmac
import math
import secrets
from types import SimpleNamespace

import tornado.escape
import tornado.httputil
import tornado.web

from grader.course import UNITS
from grader.instructors import adjustments
from grader.instructors.collect import file_name, unpacked
from grader.instructors.gradebook import BONUS, Gradebook, Stale
from grader.instructors.reports import absent, answers, comments_of, leaderboards, pages
from grader.instructors.reports.report_files import clean
from handson.errors import OneSentence

LONGEST = 2_000  # characters of a reason or comment
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # a page itself cannot set this policy
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def application(desk, token, port):
    """Return the tornado application of the pages on `desk`, for users with the token."""
    routes = [
        ("/(?:report.html)?", Report),
        (r"/leaderboard\.html", Leaderboard),
        (r"/feedback/([^/]+)\.html", Feedback),
        ("/progress", Progress),
        ("/gap", Answers),
        ("/file", File),
        ("/adjust", Adjust),
        ("/decide", Decide),
        ("/regrade", Regrade),
    ]
    return tornado.web.Application(
        routes,
        default_handler_class=Nowhere,
        desk=desk,
        token=token,
        session=secrets.token_urlsafe(24),
        hosts={f"127.0.0.1:{port}", f"localhost:{port}"},
        cookie=f"grader_{port}",  # cookies do not depend on the port
        xsrf_cookies=True,
        xsrf_cookie_name=f"grader_xsrf_{port}",
        xsrf_cookie_kwargs={"httponly": True, "samesite": "Strict"},
        log_function=lambda handler: None,
    )


class Page(tornado.web.RequestHandler):
    """The base class of all pages: access control, and error pages."""

    def set_default_headers(self):
        self.clear_header("Server")
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def prepare(self):
        if self.request.host not in self.settings["hosts"]:
            raise Refused(
                403,
                "This server answers only to its own address on this computer: open the one that `python -m grader"
                " serve` printed.",
            )
        if "token" in self.request.query_arguments:
            if not _equal(self.get_query_argument("token"), self.settings["token"]):
                raise Refused(
                    403,
                    "This token is not the one of this server: open the address that `python -m grader serve` printed"
                    " last.",
                )
            self.set_cookie(
                self.settings["cookie"], self.settings["session"], httponly=True, samesite="Strict", path="/"
            )
            self.redirect(self.request.path)  # removes the token from the address, and from the browser's history
            return
        if not _equal(self.get_cookie(self.settings["cookie"], ""), self.settings["session"]):
            raise Refused(
                403, "This browser is not known here: open the address that `python -m grader serve` printed."
            )
        origin = self.request.headers.get("Origin")
        if (
            self.request.method == "POST"
            and origin is not None
            and origin not in {f"http://{host}" for host in self.settings["hosts"]}
        ):
            raise Refused(403, "This change comes from another page, so it was refused.")

    @property
    def desk(self):
        return self.settings["desk"]

    def live(self, version, **more):
        """Return the values of a live page for its template."""
        author = tornado.escape.url_unescape(self.get_cookie("grader_author", ""))
        wait = max(1.0, 5 * self.request.request_time())  # limits how often a large class is read while it is graded
        return SimpleNamespace(xsrf=self.xsrf_token.decode(), version=version, author=author, wait=wait, **more)

    def write_error(self, status_code, exc_info=None, **_):
        error = exc_info[1] if exc_info else None
        sentence = (
            error.sentence
            if isinstance(error, Refused)
            else str(error)
            if isinstance(error, OneSentence)
            else f"This does not work ({status_code})."
        )
        if status_code == 403 and not isinstance(error, Refused):
            sentence = "This form is from another session of the server, so nothing is changed: load the page again."
        if isinstance(error, OneSentence):
            self.set_status(400)
        self.finish(pages.message(sentence, back=self.get_status() != 403))

    def log_exception(self, kind, error, traceback):
        if not isinstance(error, (tornado.web.HTTPError, OneSentence)):
            super().log_exception(kind, error, traceback)

    def score(self, student=None, name=None):
        """Return the Score of a student, by name or by the name of the student's files."""
        for score in self.desk.scores():
            if score.student == student or name is not None and file_name(score.student) == name:
                return score
        raise Refused(404, "There is no such student in the gradebook.")


class Refused(tornado.web.HTTPError):
    """An HTTP status, and the sentence to show."""

    def __init__(self, status, sentence):
        super().__init__(status)
        self.sentence = sentence


class Nowhere(Page):
    def prepare(self):
        super().prepare()
        if not self._finished:
            raise Refused(404, "There is no such page: begin at /.")


class Report(Page):
    def get(self):
        scores, folder = self.desk.scores(), self.desk.folder
        boards = leaderboards.standings(scores, folder)
        live = self.live(self.desk.progress()["version"])
        self.finish(pages.report(scores, absent(folder), folder, live, boards))


class Leaderboard(Page):
    def get(self):
        boards = leaderboards.standings(self.desk.scores(), self.desk.folder)
        if not boards:
            raise Refused(404, "No student has a place on a leaderboard yet.")
        self.finish(pages.leaderboard(boards))


class Feedback(Page):
    def get(self, name):
        score = self.score(name=name)
        students = [one.student for one in self.desk.scores()]
        place = students.index(score.student)
        beside = {"before": students[place - 1] if place else "", "next": (*students, "")[place + 1]}
        attempts = {one.name: one.attempt for one in score.units if one.attempt}

        @functools.cache
        def code(unit, track, gap):
            return answers.written(self.desk.folder, attempts[unit], unit, track, gap) if unit in attempts else ""

        with Gradebook(self.desk.folder, writing=False) as book:
            version = functools.partial(book.version, score.student)
            live = self.live(version(), of=lambda unit, gap: version(unit, gap), code=code, **beside)
            pictures = pages.plots(self.desk.folder / "plots" / file_name(score.student))
            boards = leaderboards.standings(self.desk.scores(), self.desk.folder)
            self.finish(pages.feedback(score, pictures, comments_of(book)[score.student], live, boards))


class Answers(Page):
    """A class's answers to a gap, in groups of equal answers with a form for each group."""

    async def get(self):
        where = tuple(self.get_query_argument(name, "") for name in ("unit", "track", "gap"))
        self.refuse_unknown(*where)
        same = await asyncio.to_thread(answers.alike, self.desk.folder, self.desk.scores(), *where)
        with Gradebook(self.desk.folder, writing=False) as book:
            live = self.live(self.desk.progress()["version"], of=lambda one: _version(book, one, *where))
            self.finish(pages.of_gap(*where, same, live))

    def refuse_unknown(self, unit, track, gap):
        units = [one for score in self.desk.scores() for one in score.units if one.name == unit]
        if not any((one.track, one.name) == (track, gap) for unit in units for one in (*unit.gaps, *unit.others)):
            raise Refused(404, "There is no such task or gap in the gradebook: begin at /.")


class Decide(Answers):
    """One decision for all students with the same answer to a gap."""

    async def post(self):
        names = ("unit", "track", "gap", "digest", "version", "points", "text", "author")
        form = SimpleNamespace(**{name: self.get_body_argument(name, "") for name in names})
        where = form.unit, form.track, form.gap
        self.refuse_unknown(*where)
        found = await asyncio.to_thread(answers.alike, self.desk.folder, self.desk.scores(), *where)
        same = next((one for one in found if one.digest == form.digest), None)
        with Gradebook(self.desk.folder, writing=False) as book:
            if same is None or _version(book, same, *where) != form.version:
                raise Refused(409, "Something here has changed since your page was loaded: load it again, and decide.")
        if len(form.text) > LONGEST or len(form.author) > 200:
            raise Refused(400, f"The text is too long: use at most {LONGEST} characters, and 200 for the name.")
        students = {score.student for score in same.scores}
        words = form.unit, form.gap, _points(form.points.strip()), form.text.strip(), form.author.strip()
        adjustments.adjust_all(self.desk.folder, students, *words, lambda line: None, self.desk.reports_are_due)
        address = tornado.httputil.url_concat("/gap", {"unit": form.unit, "track": form.track, "gap": form.gap})
        self.redirect(f"{address}#{same.digest}", status=303)


class File(Page):
    """A file that a student handed in, as plain text."""

    def get(self):
        score, unit = (
            self.score(self.get_query_argument("student", "", strip=False)),
            self.get_query_argument("unit", ""),
        )
        files = {part.file for part in UNITS.get(unit, ())}
        attempt = next((one.attempt for one in score.units if one.name == unit), None)
        place = attempt and unpacked(attempt, self.desk.folder / "submissions")
        file = self.get_query_argument("file", "")
        if not place or file not in files or not (place / file).is_file():
            raise Refused(404, "This file no longer exists.")
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
        self.finish(clean((place / file).read_bytes().decode(errors="replace")))


class Progress(Page):
    def check_xsrf_cookie(self):
        """Skip the check, because this request changes nothing."""

    def get(self):
        self.finish(self.desk.progress(self.get_query_argument("student", None)))


class Adjust(Page):
    """A form for a gap, a unit or the whole grade. Its `action` decides the change."""

    def post(self):
        form = SimpleNamespace(
            **{
                name: self.get_body_argument(name, "", strip=name in ("points", "text", "author"))
                for name in ("student", "unit", "gap", "action", "points", "text", "author", "version")
            }
        )
        self._refuse_unknown(form)
        where = form.student, form.unit or adjustments.WHOLE, form.gap
        keep = {"version": form.version, "write": self.desk.reports_are_due}
        said = []
        try:
            if len(form.text) > LONGEST or len(form.author) > 200:
                raise adjustments.GradebookError(
                    f"the text is too long: use at most {LONGEST} characters, and 200 for the name"
                )
            match form.action:
                case "set":
                    adjustments.adjust(
                        self.desk.folder, *where, _points(form.points), form.text, form.author, said.append, **keep
                    )
                case "back":
                    adjustments.adjust(
                        self.desk.folder, *where, None, form.text or "taken back", form.author, said.append, **keep
                    )
                case "confirm":
                    adjustments.confirm(self.desk.folder, *where, form.author, said.append, **keep)
                case "comment":
                    adjustments.comment(self.desk.folder, *where, form.text, form.author, said.append, **keep)
                case _:
                    raise Refused(400, "This form names no action.")
        except Stale:
            self.ask(
                409,
                form,
                "Somebody has changed this since your page was loaded. Nothing is lost: look at both, and decide.",
            )
        except OneSentence as error:
            self.ask(400, form, str(error))
        else:
            self.set_cookie(
                "grader_author", _plain(form.author), httponly=True, samesite="Strict", path="/", expires_days=30
            )
            self.redirect(
                f"/feedback/{tornado.escape.url_escape(file_name(form.student), plus=False)}.html#{form.unit}",
                status=303,
            )

    def _refuse_unknown(self, form):
        """Refuse a form for a unit or a gap that no student has."""
        units = {one.name: one for one in self.score(form.student).units}
        of_gaps = (*units[form.unit].gaps, *units[form.unit].others) if form.unit in units else ()
        known = form.unit in units or form.unit == BONUS or (not form.unit and not form.gap)
        if not known or form.gap and form.gap not in {one.name for one in of_gaps}:
            raise Refused(404, "There is no such task or gap in the gradebook: load the page again.")

    def ask(self, status, form, sentence):
        """Show the person's input next to the present value, to be sent again or not."""
        score = self.score(form.student)
        with Gradebook(self.desk.folder, writing=False) as book:
            comment = comments_of(book)[form.student].get((form.unit, form.gap))
            live = self.live(book.version(form.student), of=lambda unit, gap: book.version(form.student, unit, gap))
            self.set_status(status)
            self.finish(pages.ask(score, form, comment, sentence, live))


class Regrade(Page):
    def post(self):
        score = self.score(self.get_body_argument("student", strip=False))
        if self.desk.grader():
            raise Refused(409, "A grader is running: wait until it has ended, then grade this student again.")
        unit = self.get_body_argument("unit", "")
        if unit and unit not in UNITS:
            raise Refused(404, "There is no such task: load the page again.")
        self.desk.grade_again(score.student, [unit] if unit else [])
        self.redirect(f"/feedback/{tornado.escape.url_escape(file_name(score.student), plus=False)}.html", status=303)


def _version(book, same, unit, track, gap):
    """Return a text that differs after each change of the points of the students with the same answer."""
    versions = "".join(book.version(score.student, unit, gap) + ";" for score in same.scores)
    return hashlib.sha256(versions.encode()).hexdigest()[:16]


def _points(text):
    """Return the points in a person's input: 2, 2.5 or 2,5."""
    try:
        points = float(text.replace(",", "."))
    except ValueError:
        points = math.nan
    if not math.isfinite(points):
        raise adjustments.GradebookError(
            f"{text!r} is not a number of points: type a number, such as 2.5"
            if text
            else "type the points, or choose only to comment"
        )
    return points


def _equal(one, other):
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())


def _plain(text):
    """Return text that a cookie can contain."""
    return tornado.escape.url_escape("".join(letter for letter in text if letter.isprintable())[:100])
