"""The embedded PBS of a strict site is as a release of OpenPBS, and the course takes it for a real one."""

import pytest

from handson.cluster import doctor, follow, slow_network, virtual_nodes
from handson.pbs import command, resources


@pytest.fixture
def strict(pbs, monkeypatch):
    pbs.site.write_text(f"strict = true\n{pbs.site.read_text()}name = 'pbsn'\n")
    for name, value in pbs.environment.items():
        monkeypatch.setenv(name, value)
    return pbs


@pytest.mark.parametrize("resource", ["network=100mbit", "gpu_memory=1gb"])
def test_it_knows_no_resources_of_ours(strict, resource):
    done = strict("qsub", "-l", resource, strict.script("true"))
    assert done.returncode == 187
    assert done.stderr.splitlines()[0] == f"qsub: Unknown resource Resource_List.{resource.partition('=')[0]}"
    assert resources.ONLY_EMBEDDED in done.stderr


@pytest.mark.skipif(virtual_nodes.why_not() is not None, reason=f"{virtual_nodes.why_not()}")
def test_it_sends_nothing_by_v_without_names_and_values_of_any_kind_by_name(strict):
    variables = {"ONE": "a b, c=d", "OTHER": "x", "HANDSON_GPU_MEMORY": "1GB"}
    look = 'echo "[$ONE] [$OTHER] [$HANDSON_GPU_MEMORY] [$HANDSON_NODES] [$HANDSON_NODE]"; cat "$PBS_NODEFILE"'
    output, _ = strict.run(look, "-V", "-v", "ONE", **variables)
    assert output in ("[a b, c=d] [] [] [] []\npbsn1\n",)


def test_the_course_takes_it_for_a_real_one(strict, monkeypatch):
    assert command.batch_system() == ("pbs", f"{strict.bin}/qsub")
    for name in follow.OF_COURSE:
        monkeypatch.delenv(name, raising=False)
    assert follow.sending({"A": "1", "B": "2"}) == ["-v", "A,B"]
    monkeypatch.setenv("HANDSON_DATA", "/data")
    assert follow.sending({"A": "1"}) == ["-v", "A,HANDSON_DATA"] and follow.sending({}) == ["-v", "HANDSON_DATA"]
    assert slow_network.why_not() == ("PBS runs the jobs here on real nodes, whose network cannot be limited")
    said = []
    doctor.summary(said.append)
    assert "virtual nodes  none: the nodes of PBS are real ones" in said


def test_slurms_qsub_gets_all_variables_since_it_takes_values_apart(monkeypatch):
    monkeypatch.setattr(command, "batch_system", lambda: ("slurm", "/usr/bin/qsub"))
    for name in follow.OF_COURSE:
        monkeypatch.delenv(name, raising=False)
    assert follow.sending({"A": "1"}) == ["-V"] and follow.sending({}) == []
    assert slow_network.why_not().startswith("Slurm runs the jobs here on real nodes")


@pytest.mark.parametrize(
    ("rate", "nodes", "says"),
    [
        ("20mbit", {}, True),
        ("20mbit", {"node1": {}, "node2": {}}, True),  # of an embedded PBS without namespaces
        ("20mbit", {"node1": {"pid": 3}, "node2": {"pid": 4}}, False),
        ("20mbit", {"node1": {}}, False),  # a job of one node has no network
        ("none", {}, False),
        ("", {}, False),
    ],
)
def test_a_rate_without_effect_is_named_in_the_job(rate, nodes, says, capsys):
    slow_network.warn({"HANDSON_NETWORK": rate}, nodes)
    assert ("HANDSON_NETWORK=20mbit has no effect" in capsys.readouterr().err) == says


def test_the_doctor_looks_which_variables_arrive(strict, monkeypatch):
    found = doctor.variables()
    assert isinstance(found, doctor.Note) and "`qsub -V` sends none, as in OpenPBS 23.06.06" in found
    assert "sends variables of the shell, with any value" in found and strict("qstat").stdout == ""
    strict.site.write_text(strict.site.read_text().replace("strict = true", ""))
    monkeypatch.setattr(command, "batch_system", lambda: ("pbs", f"{strict.bin}/qsub"))
    assert not isinstance(doctor.variables(), doctor.Note)
    reedbush = doctor.site.read("reedbush")
    monkeypatch.setattr(doctor.site, "load", lambda: reedbush)
    with pytest.raises(doctor.Broken, match="qsub refuses a job of the site reedbush .*Unknown queue"):
        doctor.variables()
