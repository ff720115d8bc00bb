"""Collecting: whose submission it is, which attempt counts, what is missing; and nothing that is handed in does any
harm."""

import gzip
import io
import json
import os
import random
import stat
import struct
import tarfile
import time
import zipfile
import zlib
from pathlib import Path

import pytest

from grader import notebook_cells
from grader.instructors import archives
from grader.instructors.collect import LARGE, CollectError, Listed, collect, digest_of, file_name, in_groups, newest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT, OTHER, NOTEBOOK = (
    "exercises/02_multi_gpu/pytorch/train.py",
    "exercises/01_single_gpu/run.sh",
    "notebooks/02_multi_gpu.ipynb",
)
EXPECTED = [SCRIPT, OTHER, NOTEBOOK]
GOOD = {name: f"# {name}\n".encode() for name in EXPECTED}


def zipped(files, path=None):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def tarred(files, mode="w:gz", members=()):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in members:
            archive.addfile(member)
    return data.getvalue()


def member(name, kind, target=""):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.fixture
def room(tmp_path):
    (tmp_path / "submissions").mkdir()
    return tmp_path / "submissions"


def collected(room):
    return collect(room, room.parent / "work", EXPECTED)


def only(room):
    [submission] = collected(room)
    return submission


def unpacked(submission):
    return {
        str(path.relative_to(submission.path)): path.read_bytes()
        for path in submission.path.rglob("*")
        if path.is_file()
    }


PACKED = {".zip": zipped, ".tar": lambda files: tarred(files, "w"), ".tar.gz": tarred, ".tgz": tarred}


@pytest.mark.parametrize("suffix", ["", *PACKED])
@pytest.mark.parametrize("top", ["", "my homework/", "./", "./repo-main/"])
def test_a_folder_or_archive_is_read_with_or_without_a_folder_around_it(room, suffix, top):
    files = {top + name: content for name, content in GOOD.items()}
    if suffix:
        (room / f"jane{suffix}").write_bytes(PACKED[suffix](files))
    else:
        write(room / "jane", files)
    submission = only(room)
    assert (submission.student, submission.name, submission.number, submission.attempt) == ("jane", "jane", "", 1)
    assert (submission.refused, submission.problems, submission.late) == (None, (), False)
    assert unpacked(submission) == GOOD


@pytest.mark.parametrize(
    "entry, student, name, number, late",
    [
        ("Jane Doe_12345_assignsubmission_file_homework.zip", "Jane Doe_12345", "Jane Doe", "12345", False),
        ("doejane_12345_67890_homework.zip", "doejane_12345", "doejane", "12345", False),
        ("doejane_LATE_12345_67890_home_work-1.zip", "doejane_12345", "doejane", "12345", True),
        ("LATE_anon_12345_67890_home_work.zip", "anon_12345", "anon_12345", "", True),
        ("A_777_assignsubmission_file_B_12345_assignsubmission_file_hw.zip", "A_777", "A", "777", False),
        ("Participant_7_assignsubmission_file_homework.zip", "Participant_7", "Participant", "7", False),
        ("Max_١٢_assignsubmission_file_homework.zip", "Max_١٢", "Max_١٢", "", False),
        ("jane.zip", "jane", "jane", "", False),
        ("Zoë Müller.zip", "Zoë Müller", "Zoë Müller", "", False),
    ],
)
def test_names_of_platforms_are_understood(room, entry, student, name, number, late):
    (room / entry).write_bytes(zipped(GOOD))
    submission = only(room)
    assert (submission.student, submission.name, submission.number, submission.late) == (student, name, number, late)


@pytest.mark.parametrize("folder", ["Jane Doe_12345_assignsubmission_file_", "Jane Doe_12345_assignsubmission_file"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_folder_of_moodle_holds_the_files_or_an_archive(room, folder, packed):
    write(room / folder, {"homework.zip": zipped(GOOD), "note.txt": b"hello"} if packed else GOOD)
    write(room / "Jane Doe_12345_assignsubmission_onlinetext_", {"onlinetext.html": b"hello"})
    submission = only(room)
    assert (submission.student, submission.refused) == ("Jane Doe_12345", None) and unpacked(submission) == GOOD


def test_who_has_only_typed_a_text_in_moodle_is_named(room):
    write(room / "Jane Doe_1_assignsubmission_file_", GOOD)
    for name in ("Jane Doe_1", "Bob Text_2"):
        write(room / f"{name}_assignsubmission_onlinetext_", {"onlinetext.html": b"a link"})
    said = []
    assert [one.student for one in collect(room, room.parent / "work", EXPECTED, said.append)] == ["Jane Doe_1"]
    assert said == ["Bob Text_2: only a text that was typed in Moodle, which is not graded."]


def test_of_several_attempts_the_newest_counts_and_all_are_kept(room):
    (room / "doejane_LATE_5_200_homework-1.zip").write_bytes(zipped({SCRIPT: b"new"}))
    # written later: Canvas's numbers say the order
    (room / "doejane_5_100_homework.zip").write_bytes(zipped({SCRIPT: b"old"}))
    write(room / "max", {SCRIPT: b"as a folder"})
    (room / "max.zip").write_bytes(zipped({SCRIPT: b"as an archive"}))
    for path in (room / "max.zip", room / "max" / SCRIPT):
        os.utime(path, (1000, 1000) if path.suffix == ".zip" else (2000, 2000))
    attempts = collected(room)
    assert [(one.student, one.attempt, one.late, unpacked(one)[SCRIPT]) for one in attempts] == [
        ("doejane_5", 1, False, b"old"),
        ("doejane_5", 2, True, b"new"),
        ("max", 1, False, b"as an archive"),
        ("max", 2, False, b"as a folder"),
    ]
    assert [one.attempt for one in newest(reversed(attempts))] == [2, 2]


def test_a_number_that_several_names_have_is_refused_for_all_of_them(room):
    for name in (
        "Jane Doe_5_assignsubmission_file_",
        "Max Roe_5_assignsubmission_file_",
        "Zoe_6_assignsubmission_file_",
    ):
        write(room / name, GOOD)
    jane, maximal, zoe = collected(room)
    assert "has the number 5, as Max Roe_5 has" in jane.refused
    assert "has the number 5, as Jane Doe_5 has" in maximal.refused
    assert zoe.refused is None and (jane.path, maximal.path) == (None, None)


def dated(files, year):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), content)
    return data.getvalue()


@pytest.mark.parametrize("layout", ["Ann Lee_1_assignsubmission_file_/{}", "Ann Lee_1_assignsubmission_file_{}"])
def test_two_archives_in_one_submission_of_moodle_are_one_attempt(room, layout):
    """If a file is in both, the newer one counts, and the student reads that."""
    parts = {
        "a.zip": dated({NOTEBOOK: b"n", SCRIPT: b"old"}, 2024),
        "m.zip": dated({SCRIPT: b"new", OTHER: b"o"}, 2026),
    }
    parts |= {"z.zip": dated({SCRIPT: b"older"}, 2025), "essay.zip": zipped({"essay.txt": b"x"})}
    write(room, {layout.format(name): data for name, data in parts.items()})
    submission = only(room)
    assert (submission.attempt, submission.refused) == (1, None)
    assert unpacked(submission) == {NOTEBOOK: b"n", SCRIPT: b"new", OTHER: b"o"}
    said = " ".join(submission.problems)
    assert f"{SCRIPT} is there twice: the newer one, in m.zip, was read, not the one in a.zip." in said
    assert f"{SCRIPT} is there twice: the newer one, in m.zip, was read, not the one in z.zip." in said
    assert "essay.zip holds none of the files asked for" in said


def test_two_archives_in_one_submission_of_canvas_are_one_attempt(room):
    write(
        room,
        {
            f"annlee_1_{number}_{name}": zipped({file: b"1"})
            for number, name, file in ((10, "notebooks.zip", NOTEBOOK), (11, "exercises.zip", SCRIPT))
        },
    )
    write(
        room,
        {
            f"annlee_1_{number}_{name}": zipped({file: b"2"})
            for number, name, file in ((20, "notebooks-1.zip", NOTEBOOK), (21, "exercises-1.zip", SCRIPT))
        },
    )
    assert [unpacked(one) for one in collected(room)] == [{NOTEBOOK: again, SCRIPT: again} for again in (b"1", b"2")]


SHEET = [Listed("Ann Lee_1", "Ann Lee", "1", "", None), Listed("Bo Xu_2", "Bo Xu", "2", "Ann Lee", None)]


@pytest.mark.parametrize("name", ["Ann Lee_1", "Ann Lee", "ann lee_1", "Ann Lee_1_assignsubmission_file_"])
def test_a_submission_repaired_by_hand_is_its_students_under_every_name_that_is_printed(room, name):
    write(room / name, GOOD)
    [one] = collect(room, room.parent / "work", EXPECTED, listed=[one._replace(group="") for one in SHEET])
    assert (one.student, one.number, one.refused) == ("Ann Lee_1", "1", None)


@pytest.mark.parametrize(
    "name, reason",
    [
        ("Eve_1_assignsubmission_file_", "has the number of Ann Lee_1, and another name: rename it"),
        ("Ann Lee_assignsubmission_file_", "could be of Ann Lee_1 or of the group of this name"),
        ("Eve_1_5_work.zip", "has the number of Ann Lee_1, and another name"),
        ("lab_3_55_680_work.zip", "could be of the student 3 or 55: rename it"),
    ],
)
def test_a_name_that_could_take_somebody_elses_place_is_refused(room, name, reason):
    write(room, {name if name.endswith("zip") else f"{name}/work.zip": zipped(GOOD)})
    [one] = collect(room, room.parent / "work", EXPECTED, listed=SHEET)
    assert reason in one.refused


def test_a_group_called_like_a_student_takes_nothing_from_the_student(room):
    write(room, {f"Ann Lee_{number}_assignsubmission_file_/work.zip": zipped(GOOD) for number in (1, 777)})
    own, of_group = collect(room, room.parent / "work", EXPECTED, listed=SHEET)
    assert {one.student: one.refused for one in (own, of_group)} == {"Ann Lee_1": None, "Ann Lee_777": None}
    assert in_groups([own, of_group], SHEET) == {"Ann Lee_777": "Ann Lee"}


@pytest.mark.parametrize(
    "around", ["handson", "results", "datasets", "jobs", "env", "venv", "node_modules", "a/results"]
)
def test_a_folder_around_a_submission_may_have_any_name(room, around):
    write(room / "max", {f"{around}/{name}": content for name, content in GOOD.items()})
    (room / "jane.zip").write_bytes(zipped({f"{around}/{name}": content for name, content in GOOD.items()}))
    inside = {f"top/exercises/01_single_gpu/results/{SCRIPT}": b"a copy in the results of a run"}
    write(room / "zoe", {f"top/{name}": content for name, content in GOOD.items()} | inside)
    assert [(one.student, one.refused, unpacked(one)) for one in collected(room)] == [
        (name, None, GOOD) for name in ("jane", "max", "zoe")
    ]


@pytest.mark.parametrize("file", ["work.zip", "01_single_gpu.ipynb"])
def test_a_name_of_canvas_may_have_underscores(room, file):
    data = zipped(GOOD) if file == "work.zip" else b"{}"
    (room / f"ann_lee_55_680_{file}").write_bytes(data)
    [one] = collect(room, room.parent / "work", [*EXPECTED, "notebooks/01_single_gpu.ipynb"])
    assert (one.student, one.name, one.number, one.refused) == ("ann_lee_55", "ann_lee", "55", None)


@pytest.mark.parametrize(
    "name, number",
    [
        ("ann_55_680_2_hw.zip", "55"),
        ("doejane_12345_67890_2026_11_hw.zip", "12345"),
        ("lab_3_LATE_55_680_2_hw.zip", "55"),
        ("lab_9_5_680_hw.zip", None),
        ("ann_55_680_2026_hw.zip", None),
    ],
)
def test_a_file_on_canvas_may_begin_with_a_number_unless_that_makes_two_students_possible(room, name, number):
    """Files have higher numbers than students on Canvas; two readings in which that is so are two students."""
    (room / name).write_bytes(zipped(GOOD))
    one = only(room)
    assert (one.number if one.refused is None else None) == number


def test_a_folder_called_exercises_among_submissions_stops_nobody(room):
    write(room / "jane", GOOD)
    (room / "exercises").mkdir()
    said = []
    [jane] = collect(room, room.parent / "work", EXPECTED, said.append)
    assert jane.refused is None and said == ["exercises: left out, its name is not a student's."]


def test_the_files_of_earlier_attempts_are_kept(room):
    write(room / "jane", {SCRIPT: b"first"})
    first = only(room)
    write(room / "jane", {SCRIPT: b"second"})
    assert only(room).path != first.path and unpacked(first) == {SCRIPT: b"first"}


def test_a_full_disk_is_said_with_what_to_do(room, monkeypatch):
    write(room / "jane", GOOD)
    monkeypatch.setattr(
        Path, "write_bytes", lambda path, data: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(
        CollectError,
        match=(
            r"work/jane/.* can't be written \(No space left on device\): make room, then run the same command again"
        ),
    ):
        collected(room)


def test_files_that_nobody_asked_for_are_told_and_those_of_other_tasks_are_not_missed(room):
    write(room / "jane", {SCRIPT: b"1", "notebooks/99_my_own.ipynb": b"2", "data.bin": b"3"})
    problems = only(room).problems
    assert len(problems) == 1 and "99_my_own.ipynb" in problems[0] and "data.bin" not in problems[0]
    assert OTHER not in problems[0] and NOTEBOOK not in problems[0], (
        "which files are missing depends on the tasks and the track that count"
    )


@pytest.mark.parametrize(
    "name, probable",
    [
        ("02_multi_gpu_final.ipynb", [NOTEBOOK]),
        ("Multi_GPU.ipynb", [NOTEBOOK]),
        ("run.sh.txt", [OTHER]),
        ("something.py", []),
    ],
)
def test_a_file_of_another_name_is_named_with_what_it_probably_is(room, name, probable):
    write(room / "jane", {OTHER if "sh" not in name else SCRIPT: b"1", name: b"2"})
    said = [problem for problem in only(room).problems if archives.lost(problem)]
    assert said == [f"{name} was not looked at: is it {one}? Give it that name." for one in probable]


def test_exercises_that_are_not_graded_are_no_surprise(room):
    names = [str(path.relative_to(ROOT)) for path in (ROOT / "exercises").rglob("*.py")]
    write(room / "jane", GOOD | dict.fromkeys(names, b"x"))
    assert names and only(room).problems == ()


def test_what_comes_with_the_course_is_ignored(room):
    rest = {
        f"{name}/x.py": b"x"
        for name in (".git", ".venv", "handson", "results", "__pycache__", "notebooks/.ipynb_checkpoints")
    }
    write(room / "jane", GOOD | rest)
    (room / "jane/.venv/python").symlink_to("/usr/bin/python3")
    (room / "max.tar.gz").write_bytes(
        tarred(GOOD | rest, members=[member(".venv/python", tarfile.SYMTYPE, "/usr/bin/python3")])
    )
    for submission in collected(room):
        assert (submission.refused, submission.problems) == (None, ()) and unpacked(submission) == GOOD


def test_the_digest_is_that_of_the_files_alone(room):
    write(room / "a", GOOD)
    write(room / "b", {f"top/{name}": content for name, content in GOOD.items()} | {"top/data.bin": b"1"})
    (room / "c.zip").write_bytes(zipped(GOOD))
    write(room / "d", GOOD | {SCRIPT: b"changed"})
    write(room / "e", {SCRIPT: GOOD[SCRIPT]})
    digests = [one.digest for one in collected(room)]
    assert len(set(digests[:3])) == 1 and len(set(digests)) == 3 and all(len(digest) == 64 for digest in digests)


def test_a_file_that_is_too_large_is_left_out(room):
    (room / "jane.zip").write_bytes(zipped(GOOD | {SCRIPT: b"#" * 1_000_001}))
    (room / "max.zip").write_bytes(zipped(GOOD | {SCRIPT: b"#" * 1_000_000}))
    jane, maximal = collected(room)
    assert jane.problems == (f"{SCRIPT} is larger than 1 MB and was left out.",) and SCRIPT not in unpacked(jane)
    assert maximal.problems == () and len(unpacked(maximal)[SCRIPT]) == 1_000_000


# Hostile and unlucky: (name, content, a part of the reason). Each is refused in a sentence, and the others go on.


def zip_entry(name, mode=0, **fields):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry


def encrypted():
    data = bytearray(zipped(GOOD))
    for signature, offset in (b"PK\x03\x04", 6), (b"PK\x01\x02", 8):
        at = data.find(signature)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(signature, at + 1)
    return bytes(data)


def not_utf8_zip():
    data = zipped(GOOD | {"exercises/ä.py": b"x"})
    return data.replace("exercises/ä.py".encode(), b"exercises/\xff\xfe.py")


def lying_zip():
    """One that says its script has 10 bytes, where there are many."""
    data = bytearray(zipped({SCRIPT: b"#" * 900_000}))
    for signature, offset in (b"PK\x03\x04", 22), (b"PK\x01\x02", 24):
        struct.pack_into("<I", data, data.find(signature) + offset, 10)
    return bytes(data)


def header(name=b"x", size=b"%011o" % 0, kind=b"0"):
    block = bytearray(512)
    block[:100], block[100:108], block[124:136], block[156:157] = (
        name.ljust(100, b"\0"),
        b"0000644\0",
        size.ljust(12, b"\0"),
        kind,
    )
    block[257:265], block[148:156] = b"ustar\x0000", b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax(content):
    return header(b"p", b"%011o" % len(content), b"x") + content + b"\0" * (-len(content) % 512)


DAMAGED = "can't be read (it is damaged, or not an archive of the format in its name): pack it again"
HOSTILE = {
    "path traversal, zip": ("x.zip", lambda: zipped(GOOD | {"../../evil.py": b"x"}), "leads out"),
    "path traversal, tar": ("x.tar", lambda: tarred(GOOD | {"exercises/../../evil.py": b"x"}, "w"), "leads out"),
    "path traversal that ends inside": ("x.zip", lambda: zipped({f"a/../{SCRIPT}": b"x"}), "leads out"),
    "path traversal of Windows": ("x.zip", lambda: zipped(GOOD | {"..\\evil.py": b"x"}), "leads out"),
    "absolute path, zip": ("x.zip", lambda: zipped(GOOD | {"/etc/cron.d/evil": b"x"}), "leads out"),
    "absolute path of Windows": ("x.zip", lambda: zipped(GOOD | {"C:\\evil.py": b"x"}), "leads out"),
    "symbolic link, zip": (
        "x.zip",
        lambda: zipped({zip_entry(SCRIPT, stat.S_IFLNK | 0o777): b"/etc/passwd"}),
        "a link",
    ),
    "symbolic link, tar": (
        "x.tgz",
        lambda: tarred(GOOD, members=[member("exercises/a.py", tarfile.SYMTYPE, "/etc/passwd")]),
        "a link",
    ),
    "symbolic link to a folder": (
        "x.tgz",
        lambda: tarred({}, members=[member("exercises", tarfile.SYMTYPE, "/etc")]),
        "a link",
    ),
    "hard link": ("x.tgz", lambda: tarred(GOOD, members=[member("a.py", tarfile.LNKTYPE, "/etc/passwd")]), "a link"),
    "device, tar": ("x.tar", lambda: tarred(GOOD, "w", [member(SCRIPT + "c", tarfile.CHRTYPE)]), "device"),
    "pipe": ("x.tar", lambda: tarred({}, "w", [member(SCRIPT, tarfile.FIFOTYPE)]), "device"),
    "sparse file": ("x.tar", lambda: header(SCRIPT.encode(), b"%011o" % 0, b"S") + bytes(1024), "holds a sparse file"),
    "zip bomb": ("x.zip", lambda: zipped({"exercises/zeros": bytes(30_000_000)}), "unpacks to"),
    "tar bomb": ("x.tgz", lambda: tarred({"exercises/zeros": bytes(30_000_000)}), "unpacks to"),
    "a bomb in front": ("x.tgz", lambda: gzip.compress(bytes(30_000_000)) + tarred(GOOD), ""),
    "100,000 files, zip": (
        "x.zip",
        lambda: zipped({str(number): b"" for number in range(100_000)}),
        "more than 10,000 files",
    ),
    "100,000 files, tar": (
        "x.tgz",
        lambda: gzip.compress(b"".join(header(b"%d" % number) for number in range(100_000)), 1),
        "more than 10,000 files",
    ),
    "not UTF-8, zip": ("x.zip", not_utf8_zip, "not UTF-8"),
    "clash by case": ("x.zip", lambda: zipped(GOOD | {SCRIPT.upper(): b"x"}), "two files of one name"),
    "the same name twice": (
        "x.tar",
        lambda: tarred(GOOD, "w", [member(SCRIPT, tarfile.REGTYPE)]),
        "two files of one name",
    ),
    "an archive in an archive": (
        "x.zip",
        lambda: zipped({"homework.zip": zipped(GOOD)}),
        "holds homework.zip, an archive in an archive: unpack",
    ),
    "several submissions in one": (
        "x.zip",
        lambda: zipped({f"{top}/{SCRIPT}": b"x" for top in "ab"}),
        "several submissions",
    ),
    "nothing asked for": ("x.zip", lambda: zipped({"essay.docx": b"x"}), "none of the files"),
    "empty zip": ("x.zip", lambda: zipped({}), "none of the files"),
    "empty file, zip": ("x.zip", lambda: b"", "can't be read"),
    "cut off, zip": ("x.zip", lambda: zipped(GOOD)[:-30], DAMAGED),
    "cut off, gz": ("x.tar.gz", lambda: tarred({SCRIPT: os.urandom(5000)})[:2000], "can't be read"),
    "damaged, zip": (
        "x.zip",
        lambda: zipped({SCRIPT: b"abc" * 100}).replace(zlib.compress(b"abc" * 100)[2:-4], b"\0" * 8),
        "can't be read",
    ),
    "encrypted": ("x.zip", encrypted, "encrypted"),
    "an unusual compression": (
        "x.zip",
        lambda: zipped({zip_entry(SCRIPT, compress_type=zipfile.ZIP_LZMA): b"x"}),
        "unusual",
    ),
    "a zip called .tar.gz": ("x.tar.gz", lambda: zipped(GOOD), "can't be read"),
    "a 7z": ("x.7z", lambda: b"7z\xbc\xaf\x27\x1c", "is a 7z archive, which cannot be read: pack the folder as .zip"),
    "a RAR": (
        "x.rar",
        lambda: b"Rar!\x1a\x07\x01\x00",
        "is a RAR archive, which cannot be read: pack the folder as .zip",
    ),
    "a lone notebook": ("x.ipynb", lambda: b"{}", "neither a folder nor an archive"),
    "sizes that lie": ("x.zip", lying_zip, "can't be read"),
    "a negative size": ("x.tar", lambda: header(size=b"\xff" * 10 + b"\xfc\x00") + bytes(2048), "negative size"),
    "a header of digits": ("x.tar", lambda: pax(b"1" * 60_000) + header() + bytes(1024), "header"),
    "a long header": ("x.tar", lambda: pax(b"30 path=" + b"x" * 100_000) + header() + bytes(1024), "far too long"),
    "a name with a line break": ("x.zip", lambda: zipped({"../a\nb\x1b[31m": b"x"}), "leads out"),
    "everything too large": ("x.zip", lambda: zipped({SCRIPT: b"#" * 1_000_001}), "too large"),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.thorough if "100,000" in case else ()) for case in HOSTILE]
)
def test_hostile_archives_are_refused_in_a_sentence_and_the_others_go_on(room, case):
    name, make, reason = HOSTILE[case]
    (room / name).write_bytes(make())
    (room / "zoe.zip").write_bytes(zipped(GOOD))
    before = time.process_time()
    bad, good = collected(room)
    assert time.process_time() - before < 20
    assert bad.refused.startswith(name)
    assert reason in bad.refused
    assert bad.refused.endswith(".")
    assert len(bad.refused) < 300
    assert bad.refused.isprintable() and (bad.path, bad.digest, bad.attempt) == (None, "", 1)
    assert good.refused is None and unpacked(good) == GOOD
    assert sorted(path.name for path in (room.parent / "work").iterdir()) == ["zoe"], "nothing else is written"
    assert sorted(path.name for path in room.parent.iterdir()) == ["submissions", "work"]


@pytest.mark.parametrize("suffix", PACKED)
def test_damage_of_any_kind_is_a_reason_and_nothing_else(tmp_path, suffix):
    chance, whole, ends = random.Random(7), PACKED[suffix](GOOD), {"read": 0, "refused": 0}
    for _ in range(250):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            start = chance.randrange(len(data))
            data[start : start + chance.choice([0, 1, 4])] = chance.choice(
                [b"", chance.randbytes(4), b"\0\0\0\0", b"\xff\xff\xff\xff"]
            )
        path = tmp_path / f"x{suffix}"
        path.write_bytes(data)
        try:
            content = archives.read(path, dict.fromkeys(EXPECTED, 1000))
            assert set(content.files) <= set(EXPECTED)
            ends["read"] += 1
        except archives.Refused as error:
            assert str(error).isprintable()
            ends["refused"] += 1
    assert ends["refused"] > 20, ends


def linked(name):
    def make(folder):
        write(folder, GOOD)
        target = folder / name
        target.unlink() if target.is_file() else None
        target.symlink_to("/etc/passwd")

    return make


def linked_folder(folder):
    write(folder.parent.parent / "solutions", GOOD)
    folder.mkdir()
    (folder / "exercises").symlink_to(folder.parent.parent / "solutions/exercises")


def pipe(folder):
    write(folder, GOOD)
    (folder / SCRIPT).unlink()
    os.mkfifo(folder / SCRIPT)


def not_utf8(folder):
    write(folder, GOOD)
    with open(os.fsencode(folder) + b"/\xff.py", "wb"):
        pass


def crowded(folder):
    write(folder, GOOD)
    for number in range(101):
        (folder / f"{number}").touch()


def clashing(folder):
    write(folder, GOOD | {SCRIPT.replace("train", "Train"): b"x"})


@pytest.mark.parametrize(
    "make, reason",
    [
        (linked(SCRIPT), "a link"),
        (linked("elsewhere"), "a link"),
        (linked_folder, "a link"),
        (pipe, "a pipe"),
        (not_utf8, "not UTF-8"),
        (crowded, "more than 100 files"),
        (clashing, "two files of one name"),
        (lambda folder: folder.mkdir(), "none of the files"),
    ],
    ids=["link", "other link", "link to the solutions", "pipe", "not UTF-8", "101 files", "clash by case", "empty"],
)
def test_hostile_folders_are_refused_in_a_sentence_and_the_others_go_on(room, monkeypatch, make, reason):
    monkeypatch.setattr(archives, "ENTRIES", 100)
    make(room / "x")
    write(room / "zoe", GOOD)
    bad, good = collected(room)
    assert bad.refused.startswith("x holds") and reason in bad.refused and bad.path is None
    assert good.refused is None and unpacked(good) == GOOD


def test_strange_names_of_students_stay_apart_and_are_safe_to_show(room):
    names = ["a\x01b", "a\x02b", "a\u202eb", "a\\b", "a\nb", "..b", "-rf", "=cmd()", "<b>x", "Æ" * 100, "x.", "x "]
    for name in names:
        write(room / name, {SCRIPT: name.encode()})
    with open(os.fsencode(room) + b"/a\xff.zip", "wb") as file:
        file.write(zipped({SCRIPT: b"not UTF-8"}))
    submissions = collected(room)
    readable = [one for one in submissions if one.refused is None]
    # "..b" is hidden, the one that is not UTF-8 comes in its stead
    assert len({one.student for one in submissions}) == len(names)
    assert len({unpacked(one)[SCRIPT] for one in readable}) == len(names)
    for one in submissions:
        assert one.student.isprintable() and one.student.encode()


@pytest.mark.parametrize(
    "student",
    [
        "",
        "..",
        "../x",
        "/etc/passwd",
        "a\\b",
        "x\0y",
        "-rf",
        ".hidden",
        "x.",
        "a" * 300,
        "日" * 90,
        "a_b-0123456789ab",
        "<script>",
        "\n",
    ],
)
def test_file_names_are_safe_and_told_apart(student):
    name = file_name(student)
    assert len(name.encode()) <= 215 and "/" not in name and "\0" not in name and name not in ("", ".", "..")
    assert name[0] not in ".- " and name.isprintable() and name != file_name(student + "x") and name != student
    assert file_name(name) != name, "nobody can be called what another one's file is called"


def test_no_submissions_is_said(room):
    with pytest.raises(CollectError, match="is empty"):
        collected(room)
    with pytest.raises(CollectError, match="is neither a folder"):
        collect(room / "nowhere", room.parent / "work", EXPECTED)


def test_files_that_nobody_handed_in_are_no_students_and_said(room):
    write(room / "jane", GOOD)
    for name in ("notes.txt", "README", ".DS_Store"):
        (room / name).write_text("x")
    (room / "doejane_12345_67890_essay.txt").write_text("x")
    said = []
    found = collect(room, room.parent / "work", EXPECTED, said.append)
    assert [one.student for one in found] == ["doejane_12345", "jane"], (
        "what a student uploaded is refused, not left out"
    )
    assert said == [f"{name}: left out, it is neither a folder nor an archive." for name in ("README", "notes.txt")]


@pytest.mark.parametrize("inside", ["exercises", "notebooks"])
def test_a_submission_in_place_of_the_class_is_refused(room, inside):
    (room / inside).mkdir()
    with pytest.raises(CollectError, match="give the folder that contains it"):
        collected(room)


def test_a_large_notebook_is_kept_without_its_outputs_(room, tmp_path):
    """A class of 2,000 with 30 MB each would take 60 GB, and engines would be sent all of it."""
    name = "notebooks/00_start.ipynb"
    cells = [
        {"cell_type": "markdown", "source": "words"},
        {"cell_type": "code", "source": ["return 1\n", "# mine"], "outputs": ["x" * LARGE]},
    ]
    data = json.dumps({"nbformat": 4, "cells": cells}).encode()
    write(room / "jane", {name: data})
    write(room / "max", {name: data[:-1]})  # damaged: students are told so when it is read
    jane, max_ = collect(room, tmp_path / "work", [name])
    kept = (jane.path / name).read_bytes()
    assert len(kept) < 1000 and notebook_cells.sources(kept) == notebook_cells.sources(data) == ["return 1\n# mine"]
    assert (max_.path / name).read_bytes() == data[:-1]
    assert jane.digest == digest_of({name: kept}), "by which the unpacked files are found again"
