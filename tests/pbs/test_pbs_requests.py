"""What qsub understands: directives, options, resources, dates, variables (no process is started here)."""

import time

import pytest

from handson.cluster import site
from handson.pbs import command_options, depend, directives, machine, resources
from handson.pbs.command import job_name
from handson.pbs.pbs_errors import PBSError

# Directives ------------------------------------------------------------------


@pytest.mark.parametrize(
    "script, words",
    [
        ("#!/bin/bash\n#PBS -q lecture\n#PBS -j oe -N name\n", [["-q", "lecture"], ["-j", "oe", "-N", "name"]]),
        ("#PBS -N first\n#PBS -N second\n", [["-N", "first"], ["-N", "second"]]),
        ("#!/bin/bash\n\n# a comment\n   \n#PBS -N name\n", [["-N", "name"]]),
        ("#!/bin/bash\necho hello\n#PBS -N late\n", []),
        ("#!/bin/bash\n  cd here\n#PBS -N late\n", []),
        (":\n#PBS -N name\n", [["-N", "name"]]),
        ("#PBSX -N name\n##PBS -N name\n# PBS -N name\n", []),
        ("#!/bin/bash\n  #PBS -N name\n\t#PBS -j oe\n", [["-N", "name"], ["-j", "oe"]]),
        (
            "#PBS -l select=1:\\\nncpus=2 \\\n-N name\n#PBS -j oe\n",
            [["-l", "select=1:ncpus=2", "-N", "name"], ["-j", "oe"]],
        ),
        ("#PBS\t-N name\r\n#PBS -q lecture\r\necho\r\n", [["-N", "name"], ["-q", "lecture"]]),
        ("#PBS -v A=\"x y\",B='z'\n", [["-v", "A=x y,B=z"]]),
        ("#PBS\n", []),
        ("", []),
        ("  # a comment\n#PBS -N name\n", [["-N", "name"]]),
        ("#PBS\u00a0-N name\n#PBS\u2003-N name\n", []),
        ("# one\u2028#PBS -N line\x85#PBS -N for\x0c#PBS -N C\r#PBS -N too\n", []),
        ("\u00a0\n#PBS -N late\n", []),
    ],
)
def test_directives_count_up_to_the_first_executable_line(script, words):
    assert directives.read(script.encode()) == words


def test_the_number_of_a_directives_line_is_known():
    assert directives.numbered(b":\n#PBS -N a\n\n#PBS\n#PBS -q b\necho\n#PBS -N late\n") == {
        1: "-N a",
        3: "",
        4: "-q b",
    }


def test_the_lines_of_a_directive_that_goes_on_are_one_line_of_the_job():
    script = b"#!/bin/bash\n#PBS -l select=1:\\\nmpiprocs=2\n# a comment \\\necho a \\\n#PBS -N late \\\nb\n"
    assert directives.joined(script) == script.replace(b"select=1:\\\n", b"select=1:")


def test_another_prefix_makes_other_lines_directives():
    assert directives.read(b"#PBS -N a\n#QSUB -N b\n", "#QSUB") == [["-N", "b"]]
    assert directives.read(b"#PBS -N a\n", "") == []


def test_requests_are_the_options_for_queue_resources_and_group_with_an_argument_each():
    script = (
        b"#PBS -q lecture\n#PBS -N name\n#PBS -l (nodes  and so on: select=...)\n#PBS -W 'group_list=gt00'\n#PBS -j"
        b" oe\necho\n#PBS -q late\n"
    )
    assert directives.requests(script) == [
        ["-q", "lecture"],
        ["-l", "(nodes and so on: select=...)"],
        ["-W", "group_list=gt00"],
    ]


def test_a_directive_with_an_open_quote_is_an_error():
    with pytest.raises(PBSError, match="directive error: -N 'name"):
        directives.read(b"#PBS -N 'name\n")


def test_a_script_in_another_encoding_is_read():
    assert directives.read("#!/bin/bash\n# \xe9t\xe9\n#PBS -N name\n".encode("latin-1")) == [["-N", "name"]]


# Options ---------------------------------------------------------------------


def test_options_may_stand_before_and_behind_the_script():
    assert command_options.split(["-joe", "a.sh", "-N", "x"]) == ([("j", "oe"), ("N", "x")], ["a.sh"], None)
    assert command_options.split(["-Vh", "-N", "x", "--", "cmd", "-N", "y"]) == (
        [("V", ""), ("h", ""), ("N", "x")],
        [],
        ["cmd", "-N", "y"],
    )


def test_an_option_without_its_value_is_an_error():
    with pytest.raises(PBSError, match="option requires an argument -- 'N'"):
        command_options.split(["-N"])


def test_the_command_line_goes_before_the_script_resource_by_resource():
    asked = command_options.Options()
    asked.add([("N", "line"), ("l", "walltime=1"), ("W", "group_list=a")])
    asked.add(
        [("N", "script"), ("q", "lecture"), ("l", "select=2:ncpus=1,walltime=9"), ("W", "group_list=b,umask=022")]
    )
    assert asked.values == {"N": "line", "q": "lecture"}
    assert asked.resources == {"walltime": "1", "select": "2:ncpus=1"}
    assert asked.attributes == {"group_list": "a", "umask": "022"}


def test_what_the_command_line_overrides_is_not_even_looked_at():
    asked = command_options.Options()
    asked.add([("N", "good")])
    asked.add([("N", "not good")])
    assert asked.values["N"] == "good"


@pytest.mark.parametrize(
    "letter, text",
    [
        ("j", "on"),
        ("k", "x"),
        ("r", "maybe"),
        ("p", "1025"),
        ("p", "high"),
        ("m", "z"),
        ("J", "3"),
        ("J", "2-1"),
        ("J", "1-1"),
        ("J", "0-9:0"),
        ("a", "tomorrow"),
        ("a", "9999"),
        ("N", ""),
        ("N", "a/b"),
        ("N", ".a"),
        ("N", "a\nb"),
        ("l", "="),
        ("o", ""),
        ("S", ""),
        ("W", "depend=later:5"),
        ("W", "depend=afterok"),
        ("W", "depend=afterok:x"),
        ("W", "nonsense"),
        ("R", "x"),
    ],
)
def test_a_wrong_value_names_its_option(letter, text):
    with pytest.raises(PBSError) as refusal:
        command_options.Options().add([(letter, text)])
    assert (str(refusal.value), refusal.value.status, refusal.value.usage) == (f"illegal -{letter} value", 2, True)


def test_an_unknown_attribute_is_named():
    with pytest.raises(PBSError) as refusal:
        command_options.Options().add([("W", "nonsense=1")])
    assert (refusal.value.hint, refusal.value.status) == ("-W knows no attribute nonsense", 154)


def test_interactive_jobs_are_refused():
    for letter in "IX":
        with pytest.raises(PBSError, match=f"^-{letter}: .* is not possible here"):
            command_options.Options().add([(letter, "")])


def test_attributes_of_W_keep_their_commas():
    asked = command_options.Options()
    asked.add([("W", "depend=afterok:1:2,afterany:3.server,group_list=gt00,own,block=true")])
    assert asked.attributes == {
        "depend": [["afterok", ["1", "2"]], ["afterany", ["3"]]],
        "group_list": "gt00,own",
        "block": True,
    }


def test_options_without_meaning_here_are_noted():
    asked = command_options.Options()
    asked.add([("m", "abe"), ("M", "me@here"), ("p", "5"), ("W", "sandbox=PRIVATE"), ("N", "x")])
    assert asked.noted() == ["-m", "-M", "-p", "-W sandbox"]


def test_variables_are_split_at_commas_outside_quotes():
    here = {"SET": "from here", "EMPTY": ""}
    assert command_options.variable_list('A=1,B="x,y",SET,C=,EMPTY', here) == {
        "A": "1",
        "B": "x,y",
        "SET": "from here",
        "C": "",
        "EMPTY": "",
    }
    assert command_options.variable_list(r"A=x\,y,B='a\b',C=a=b", here) == {"A": "x,y", "B": r"a\b", "C": "a=b"}
    assert command_options.variable_list(r"A=C:\Data\x,B=\d+", here) == {"A": r"C:\Data\x", "B": r"\d+"}
    for wrong in ("UNSET", 'A="open', "=1"):
        with pytest.raises(PBSError, match="cannot send environment with the job"):
            command_options.variable_list(wrong, here)


def test_everything_leaves_out_what_belongs_to_the_surrounding_job():
    assert command_options.everything({"A": "1", "PBS_JOBID": "5", "HANDSON_NODES": "x", "HANDSON_DATA": "y"}) == {
        "A": "1",
        "HANDSON_DATA": "y",
    }


@pytest.mark.parametrize(
    "text, path, foreign",
    [
        ("out", "/work/out", ""),
        ("/tmp/out", "/tmp/out", ""),
        ("sub/../out", "/work/out", ""),
        ("logs/", "/work/logs/", ""),
        ("here:out", "/work/out", ""),
        ("here.domain:/tmp/out", "/tmp/out", ""),
        ("there:/tmp/out", "/tmp/out", "there"),
        ("./a:b", "/work/a:b", ""),
    ],
)
def test_output_paths_may_name_a_host(text, path, foreign):
    assert command_options.output_path(text, "/work", {"here"}) == (path, foreign)


def at(text):
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


@pytest.mark.parametrize(
    "text, moment",
    [
        ("1430", "2026-11-20 14:30:00"),
        ("1130", "2026-11-21 11:30:00"),
        ("101000", "2026-12-10 10:00:00"),
        ("12241800", "2026-12-24 18:00:00"),
        ("01020304", "2027-01-02 03:04:00"),
        ("202001020304", "2020-01-02 03:04:00"),
    ],
)
def test_what_a_date_leaves_out_is_the_next_time_that_fits(text, moment):
    assert command_options.parse_date(text, now=at("2026-11-20 12:00:00")) == at(moment)


def test_array_ranges():
    assert command_options.parse_array("0-2") == {"first": 0, "last": 2, "step": 1, "limit": None}
    assert command_options.parse_array("1-9:2%3") == {"first": 1, "last": 9, "step": 2, "limit": 3}


def test_dependencies():
    assert depend.parse("afterok:5:6[].server,on:2") == [["afterok", ["5", "6[]"]], ["on", 2]]


@pytest.mark.parametrize(
    "text, name",
    [
        ("5", "5"),
        ("5.here", "5"),
        ("05", "5"),
        ("28[]", "28[]"),
        ("28[1].here", "28[1]"),
        ("5.here.domain", "5"),
        ("5@here", "5"),
    ],
)
def test_job_identifiers(text, name):
    assert job_name(text, "here") == name


# Resources -------------------------------------------------------------------


def test_times_and_sizes():
    assert [resources.parse_time(text) for text in ("90", "01:30", "01:00:00", "5.9")] == [90, 90, 3600, 5]
    assert [resources.parse_size(text) for text in ("4gb", "512MB", "1024", "1", "10kw", "7k")] == [
        4 << 20,
        512 << 10,
        1,
        1,
        80,
        7,
    ]
    for wrong in ("", "abc", "-1", "1:2:3:4", "1:", "1e3"):
        with pytest.raises(ValueError):
            resources.parse_time(wrong)
    for wrong in ("", "gb", "4xb", "-4gb"):
        with pytest.raises(ValueError):
            resources.parse_size(wrong)


def test_a_chunk_has_one_cpu_unless_it_says_otherwise():
    assert resources.parse_select("2:ngpus=2:mpiprocs=2+ncpus=3+1") == [
        {"count": 2, "ngpus": 2, "mpiprocs": 2, "ncpus": 1},
        {"count": 1, "ncpus": 3},
        {"count": 1, "ncpus": 1},
    ]


@pytest.mark.parametrize(
    "asked, sentence, status",
    [
        (
            {"select": "1:ncpus=1:ncpus=2"},
            "duplicated resource within a section of a select specification, resource is: ncpus",
            12,
        ),
        ({"select": "1:walltime=5"}, 'Resource invalid in "select" specification: walltime', 4),
        ({"select": "1:ncpus=-1"}, "Illegal attribute or resource value select.ncpus", 166),
        ({"select": "1:ncpus"}, "Illegal attribute or resource value Resource_List.select", 166),
        ({"select": "1:mem=lots"}, "Illegal attribute or resource value select.mem", 166),
        ({"select": "1+"}, "Illegal attribute or resource value Resource_List.select", 166),
        ({"place": "scatter"}, 'Cannot have "place" without "select"', 7),
        ({"select": "1", "place": "everywhere"}, "Illegal attribute or resource value Resource_List.place", 166),
        ({"select": "1", "place": "scatter:group="}, "Illegal attribute or resource value Resource_List.place", 166),
        ({"select": "1", "place": "scatter:group=rack"}, "Unknown resource Resource_List.place", 187),
        ({"select": "1", "place": "group=mem"}, "resource is not of type string Resource_List.place", 252),
        ({"select": "1", "nodes": "2"}, '"-lresource=" cannot be used with "select" or "place", resource is: nodes', 5),
        ({"nodes": "1:fast"}, "Unknown resource: fast", 187),
        ({"nodes": "2:ppn=x"}, "Illegal attribute or resource value select.ncpus", 166),
        ({"ncpus": "x"}, "Illegal attribute or resource value Resource_List.ncpus", 166),
    ],
)
def test_wrong_resources_are_refused_in_the_words_of_pbs(asked, sentence, status):
    with pytest.raises(PBSError) as refusal:
        resources.parse(asked)
    assert (str(refusal.value), refusal.value.status) == (sentence, status)


def test_a_job_that_asks_for_nothing_gets_one_cpu():
    assert resources.parse({})["listing"] == {"ncpus": "1", "nodect": "1", "place": "pack", "select": "1:ncpus=1"}


def test_the_old_syntax_is_translated():
    wanted = resources.parse({"nodes": "2:ppn=2", "walltime": "60"})
    assert wanted["listing"] == {
        "mpiprocs": "4",
        "ncpus": "4",
        "nodect": "2",
        "nodes": "2:ppn=2",
        "place": "scatter",
        "select": "2:ncpus=2:mpiprocs=2",
        "walltime": "00:01:00",
    }
    assert resources.parse({"nodes": "node2:ppn=2#excl"})["listing"]["place"] == "scatter:excl"
    assert resources.parse({"nodes": "node2:ppn=2"})["chunks"] == [
        {"count": 1, "host": "node2", "ncpus": 2, "mpiprocs": 2}
    ]
    assert resources.parse({"ncpus": "2", "ngpus": "1", "mem": "1gb"})["chunks"] == [
        {"count": 1, "ncpus": 2, "ngpus": 1, "mem": 1 << 20}
    ]


# Site files ------------------------------------------------------------------


def test_the_site_file_of_the_repository_is_the_default(monkeypatch):
    monkeypatch.delenv("HANDSON_SITE", raising=False)
    here = site.load()
    assert site.path_of().endswith("jobs/sites/local.toml")
    assert [(node.name, node.ncpus, node.ngpus) for node in machine.nodes(here)] == [("node1", 2, 2), ("node2", 2, 2)]
    assert (here.queues, here.groups) == (("lecture",), ("gt00",))


def test_virtual_gpus_are_dealt_out_over_the_cores(tmp_path, monkeypatch):
    (tmp_path / "site.toml").write_text("[machine]\nnodes = 2\ngpus = 2\nncpus = 2\n")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5, 9})
    assert [node.cores for node in machine.nodes(site.load(str(tmp_path / "site.toml")))] == [(3, 5), (9, 3)]


@pytest.mark.parametrize(
    "text",
    [
        "[machine]\nnodes = 0",
        "[machine]\ngpus = 'two'",
        "queue = []",
        "kill_delay = -1",
        "[machine",
        "[machine]\nmem = 'much'",
    ],
)
def test_a_wrong_site_file_is_named_with_the_reason(tmp_path, text):
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(site.SiteError, match=r"site\.toml is invalid \(.+\)") as refusal:
        site.load(str(tmp_path / "site.toml"))
    assert refusal.value.status == 2


def test_a_missing_site_file_is_named(tmp_path):
    with pytest.raises(site.SiteError, match="nosuch.toml cannot be read .No such file"):
        site.load(str(tmp_path / "nosuch.toml"))
