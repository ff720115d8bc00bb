"""What a class handed in as a learning platform gives it out: one zip, files without folders, names that changed on the
way.

Names and layouts are those of Moodle's mod/assign/classes/downloader.php (4.1 to 5.1) and Canvas's
lib/content_zipper.rb.
"""

import io
import zipfile

import pytest

from grader.instructors.collect import CollectError, Listed, collect
from grader.instructors.recognise import Recogniser

SCRIPT, TWIN = "exercises/02_multi_gpu/pytorch/train.py", "exercises/02_multi_gpu/chainer/train.py"
JOB, NOTEBOOK = "exercises/01_single_gpu/run.sh", "notebooks/02_multi_gpu.ipynb"
EXPECTED = [SCRIPT, TWIN, JOB, NOTEBOOK]
GOOD = {name: f"# {name}\n".encode() for name in EXPECTED}
MOODLE = "Jane Doe_12345_assignsubmission_file"


def zipped(files, times=None):
    """The bytes of a zip. files: {name: bytes}; times: {name: (year, month, day, hour, minute, second)}."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (times or {}).get(name, (2026, 11, 20, 12, 0, 0))), content)
    return data.getvalue()


@pytest.fixture
def collected(tmp_path):
    """A function: what is collected from a class's zip with these files, as {student: (files, Submission)}, and what
    was said."""

    def collected(files, times=None, **known):
        (tmp_path / "class.zip").write_bytes(zipped(files, times))
        said = []
        found = collect(tmp_path / "class.zip", tmp_path / "work", EXPECTED, said.append, **known)
        return {one.student: (unpacked(one), one) for one in found}, said

    return collected


def unpacked(submission):
    return (
        {str(path.relative_to(submission.path)): path.read_bytes() for path in submission.path.rglob("*.*")}
        if submission.path
        else {}
    )


@pytest.mark.parametrize(
    "files",
    [
        {f"{MOODLE}/homework.zip": zipped(GOOD)},
        {f"{MOODLE}_/homework.zip": zipped({f"homework/{name}": content for name, content in GOOD.items()})},
        {f"{MOODLE}/{name}": content for name, content in GOOD.items()},
        {f"{MOODLE}_homework.zip": zipped(GOOD)},
        {f"submissions/{MOODLE}/homework.zip": zipped(GOOD), "__MACOSX/submissions/._x": b""},
        {
            f"{MOODLE}/homework.zip": zipped(GOOD),
            "Jane Doe_12345_assignsubmission_onlinetext/onlinetext.html": b"hello",
        },
    ],
    ids=["folders", "folders before 4.1", "unpacked", "flat", "packed once more", "with an online text"],
)
def test_moodles_zip_is_read_as_it_is(collected, files):
    found, _ = collected(files)
    assert found["Jane Doe_12345"][0] == GOOD and len(found) == 1


@pytest.mark.parametrize("before", [f"{MOODLE}_", "doejane_12345_678_", "doejane_LATE_12345_678_"])
def test_files_that_a_platform_gives_out_side_by_side_are_one_submission(collected, before):
    found, _ = collected({f"{before}{name.split('/')[-1]}": GOOD[name] for name in (JOB, NOTEBOOK)})
    [(files, one)] = found.values()
    assert files == {name: GOOD[name] for name in (JOB, NOTEBOOK)}
    assert one.late == ("LATE" in before)
    assert one.number == "12345"


def test_group_work_and_anonymous_work_are_submissions_of_their_own(collected):
    found, _ = collected(
        {
            "Group A_77_assignsubmission_file/a.zip": zipped(GOOD),
            "Participant_5_assignsubmission_file/a.zip": zipped(GOOD),
            "Default group_assignsubmission_file/a.zip": zipped(GOOD),
        }
    )
    assert [(one.student, one.number) for _, one in found.values()] == [
        ("Default group", ""),
        ("Group A_77", "77"),
        ("Participant_5", "5"),
    ]


@pytest.mark.parametrize(
    "handed_in, name",
    [
        ("notebooks/02_multi_gpu-Copy1.ipynb", NOTEBOOK),
        ("notebooks/02_multi_gpu (1).ipynb", NOTEBOOK),
        ("notebooks/02_multi_gpu-1.ipynb", NOTEBOOK),
        ("notebooks/02_multi_gpu - Copy.ipynb", NOTEBOOK),
        ("Notebooks/02_Multi_GPU.IPYNB", NOTEBOOK),
        ("02_multi_gpu.ipynb", NOTEBOOK),
        ("my work/02_multi_gpu-Copy2.ipynb", NOTEBOOK),
        ("a/b/c/exercises/01_single_gpu/run.sh", JOB),
        ("pytorch/train.py", SCRIPT),
        ("train.py", ""),
        ("chainer/train (copy).py", ""),
        ("03_multi_gpu.ipynb", ""),
    ],
)
def test_a_file_is_recognised_whatever_became_of_its_name_where_there_is_no_doubt(handed_in, name):
    assert Recogniser(EXPECTED)(handed_in.split("/"))[1] == name


def test_the_file_itself_counts_then_its_last_copy_and_what_was_read_is_said(collected):
    copies = {"notebooks/02_multi_gpu-Copy1.ipynb": b"1", "notebooks/02_multi_gpu-Copy2.ipynb": b"2"}
    found, _ = collected(
        {f"{MOODLE}/{name}": content for name, content in (copies | {JOB: b"x"}).items()}
        | {f"Max Roe_2_assignsubmission_file/{name}": content for name, content in (copies | {NOTEBOOK: b"0"}).items()}
    )
    assert found["Jane Doe_12345"][0][NOTEBOOK] == b"2" and found["Max Roe_2"][0][NOTEBOOK] == b"0"
    assert (
        f"Read in place of a file of the right name: notebooks/02_multi_gpu-Copy2.ipynb as {NOTEBOOK}."
        in found["Jane Doe_12345"][1].problems
    )
    assert any("Copy1" in problem and "not read" in problem for problem in found["Max Roe_2"][1].problems)


def test_of_two_files_that_could_be_meant_none_is_guessed(collected):
    found, _ = collected(
        {f"{MOODLE}/{name}": b"x" for name in (JOB, "old/02_multi_gpu.ipynb", "new/02_multi_gpu.ipynb")}
    )
    [(files, one)] = found.values()
    assert set(files) == {JOB} and any(f"{NOTEBOOK} is there several times" in problem for problem in one.problems)


def test_an_archive_in_another_format_inside_of_moodles_zip_is_refused_with_its_name(collected):
    found, _ = collected(
        {f"{MOODLE}/homework.rar": b"Rar!\x1a\x07\x01\x00", "Max Roe_2_assignsubmission_file/a.zip": zipped(GOOD)}
    )
    assert found["Jane Doe_12345"][1].refused.startswith("homework.rar ")
    assert found["Max Roe_2"][0] == GOOD


def test_a_bomb_in_moodles_zip_is_refused_and_the_others_go_on(collected):
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(SCRIPT, bytes(30_000_000))
    found, _ = collected(
        {
            f"{MOODLE}/a.zip": bomb.getvalue(),
            f"Max Roe_2_assignsubmission_file/{SCRIPT}": b"x",
            "Zoe_3_assignsubmission_file/../../x.py": b"x",
        }
    )
    assert "unpacks to more than" in found["Jane Doe_12345"][1].refused and "leads out" in found["Zoe_3"][1].refused
    assert found["Max Roe_2"][0] == {SCRIPT: b"x"}


def test_a_zip_that_is_one_submission_or_none_is_refused(tmp_path):
    for name, files, reason in (("one", GOOD, "is a single submission"), ("none", {}, "is empty")):
        (tmp_path / f"{name}.zip").write_bytes(zipped(files))
        with pytest.raises(CollectError, match=reason):
            collect(tmp_path / f"{name}.zip", tmp_path / "work", EXPECTED)
    (tmp_path / "broken.zip").write_bytes(b"PK")
    with pytest.raises(CollectError, match="broken.zip can't be read .*: download it again, or unpack it"):
        collect(tmp_path / "broken.zip", tmp_path / "work", EXPECTED)
    with pytest.raises(CollectError, match="is neither a folder nor a .zip"):
        collect(tmp_path / "nowhere.tar", tmp_path / "work", EXPECTED)


def of_two(jane, other):
    names = "Abe Low_1_assignsubmission_file/a.zip", f"{MOODLE}/a.zip"
    return dict.fromkeys(names, zipped(GOOD)), dict(zip(names, (other, jane), strict=True))


def test_other_times_are_those_of_handing_in_and_said(collected):
    from zoneinfo import ZoneInfo

    found, said = collected(*of_two((2026, 11, 10, 9, 0, 0), (2026, 11, 20, 18, 0, 0)), zone=ZoneInfo("Europe/Berlin"))
    assert {name: one.handed_in for name, (_, one) in found.items()} == {
        "Jane Doe_12345": "2026-11-10T08:00:00+00:00",
        "Abe Low_1": "2026-11-20T17:00:00+00:00",
    }
    assert any("from the zip" in line and "Europe/Berlin" in line for line in said)


@pytest.mark.parametrize(
    "name, advice",
    [("doejane_12345_67890_work.zip", "Canvas gives no others"), (f"{MOODLE}/work.zip", "Moodle's grading worksheet")],
)
def test_a_zip_without_times_of_handing_in_gets_the_advice_of_its_own_platform(collected, name, advice):
    _, [line] = collected({name: zipped(GOOD)})
    assert advice in line and ("Moodle" in line) == ("Moodle" in advice)


def test_a_time_that_the_platform_lists_counts_before_that_of_the_zip(collected):
    listed = [Listed("Jane Doe_12345", "Jane Doe", "12345", "", "2026-11-21T10:00:00+00:00")]
    found, _ = collected(*of_two((2026, 11, 10, 9, 0, 0), (2026, 11, 20, 18, 0, 0)), listed=listed)
    assert {name: one.handed_in for name, (_, one) in found.items()} == {
        "Jane Doe_12345": "2026-11-21T10:00:00+00:00",
        "Abe Low_1": None,
    }


@pytest.mark.parametrize(
    "name, student, said",
    [
        ("jane doe", "Jane Doe_12345", "taken for Jane Doe_12345"),
        ("Jane Do", "Jane Do", "did you mean Jane Doe_12345?"),
        ("Zoe", "Zoe", ""),
    ],
)
def test_a_name_without_its_number_finds_its_student_or_suggests_one(collected, name, student, said):
    found, lines = collected({f"{MOODLE}/a.zip": zipped({JOB: b"1"}), f"{name}.zip": zipped({JOB: b"2"})})
    assert student in found and found[student][0] == {JOB: b"2"}
    assert any(said in line for line in lines)


def test_a_name_that_two_students_have_is_nobodys(collected):
    listed = [Listed(f"Jane Doe_{number}", "Jane Doe", str(number), "", None) for number in (1, 2)]
    found, lines = collected({"Jane Doe.zip": zipped(GOOD)}, listed=listed)
    assert list(found) == ["Jane Doe"] and any("could belong to Jane Doe_1 or Jane Doe_2" in line for line in lines)


def test_names_that_differ_in_capitals_alone_stay_apart_and_are_said(collected):
    found, lines = collected({"jane.zip": zipped({JOB: b"1"}), "Jane.zip": zipped({JOB: b"2"})})
    assert {name: files[JOB] for name, (files, _) in found.items()} == {"Jane": b"2", "jane": b"1"}
    assert lines == ["Jane and jane are graded as different students: if they are one, give both the same name."]


@pytest.mark.parametrize(("student", "number"), [("jane", ""), ("jane_7", "7")])
def test_of_names_that_differ_in_capitals_only_the_known_one_is_the_known_students(collected, student, number):
    listed = [Listed(student, "jane", number, "", None)]
    found, lines = collected({"jane.zip": zipped({JOB: b"1"}), "Jane.zip": zipped({JOB: b"2"})}, listed=listed)
    assert {name: (files[JOB], one.attempt) for name, (files, one) in found.items()} == {
        "Jane": (b"2", 1),
        student: (b"1", 1),
    }
    assert (
        f"Jane: a student of its own, as jane is handed in, too; if this is {student}, give both the same name."
        in lines
    )


def test_a_group_is_as_late_as_its_last_member_whatever_its_number(collected):
    listed = [
        Listed(f"{name}_{number}", name, number, group, time)
        for name, number, group, time in (
            ("Jane", "1", "Group A", "2026-11-20T10:00:00+00:00"),
            ("Max", "2", "Group A", "2026-11-21T10:00:00+00:00"),
            ("Zoe", "77", "", "2026-11-25T10:00:00+00:00"),
        )
    ]
    found, _ = collected({"Group A_77_assignsubmission_file/a.zip": zipped(GOOD)}, listed=listed)
    assert found["Group A_77"][1].handed_in == "2026-11-21T10:00:00+00:00"


@pytest.mark.parametrize("name", [f"{MOODLE}/x_assignsubmission_online.zip", f"{MOODLE}_x_assignsubmission_online.zip"])
def test_what_a_student_calls_a_file_hides_it_from_nobody(collected, name):
    [(files, one)] = collected({name: zipped(GOOD)})[0].values()
    assert (one.student, one.refused, files) == ("Jane Doe_12345", None, GOOD)
