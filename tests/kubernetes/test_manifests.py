"""The manifests: every overlay is put together by kubectl, and keeps the schemas of Kubernetes and Kubeflow and the
rules for safe pods."""

import json
import subprocess

import kubernetes_validate
import programs
import pytest
import yaml
from waiting import run_to_end

from handson.cluster import site as sites
from handson.cluster.kubernetes import render
from handson.files import COURSE

SITES = [name for name in sites.names() if sites.read(name).kubernetes]
CHECKOV = max(map(str, COURSE.glob("build/checkov-*/bin/checkov")), default="checkov")  # of `make checkov`
RELEASES = ("1.31", "1.33", "1.35", "1.37")
PARTS = render.parts()
NEEDS_ENGINES = "the sandbox in an engine's pod makes namespaces: docs/kubernetes.md"


@pytest.fixture(scope="session")
def manifests(tmp_path_factory):
    """{(site, part): its objects, as kubectl puts them together}."""
    programs.need("kubectl")
    made = {}
    for site in SITES:
        for part in PARTS:
            done = run_to_end(["kubectl", "kustomize", COURSE / "jobs/kubernetes/overlays" / site / part])
            assert done.returncode == 0 and not done.stderr, done.stderr
            made[site, part] = list(yaml.safe_load_all(done.stdout))
    return made


def pods(objects):
    """The specs of all pods that the objects lead to, with the name of their object."""
    for one in objects:
        spec = one.get("spec", {})
        for template in [
            spec.get("template"),
            *(replica["template"] for replica in spec.get("mpiReplicaSpecs", {}).values()),
        ]:
            if template and "containers" in template.get("spec", {}):
                yield one["metadata"]["name"], template["spec"]


def test_the_overlays_are_what_render_makes_of_the_sites(tmp_path):
    for site in SITES:
        made = render.render(site, tmp_path / site / "overlays")
        kept = COURSE / "jobs/kubernetes/overlays" / site
        assert {path.relative_to(kept) for path in kept.rglob("*.yaml")} == {
            path.relative_to(made) for path in made.rglob("*.yaml")
        }
        for path in made.rglob("*.yaml"):
            base = path.read_text().replace(
                next(
                    (line[2:] for line in path.read_text().splitlines() if line.endswith(f"base/{path.parent.name}")),
                    "\0",
                ),
                "BASE",
            )
            assert base == (kept / path.relative_to(made)).read_text().replace(
                f"../../../base/{path.parent.name}", "BASE"
            )


@pytest.mark.thorough
@pytest.mark.parametrize("release", RELEASES)
def test_every_object_keeps_the_schema_of_its_kind(manifests, release):
    everything = [one for objects in manifests.values() for one in objects]
    known = [one for one in everything if one["kind"] not in ("MPIJob", "TrainJob")]
    known += [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec} for name, spec in pods(everything)
    ]
    for one in {str(one): one for one in known}.values():  # many are the same at several sites
        kubernetes_validate.validate(one, release, strict=True)


@pytest.mark.thorough
def test_a_job_of_kubeflow_keeps_its_own_schema(manifests):
    # half a second, which no other test needs
    from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob

    for site in SITES:
        [train] = [one for one in manifests[site, "trainjob"] if one["kind"] == "TrainJob"]
        known = TrainerV1alpha1TrainJob.from_dict(train).to_dict()
        assert _without_none(known) == train, "a key that the model does not know is lost on the way"


def _without_none(value):
    if isinstance(value, dict):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value


def test_pods_keep_the_standard_that_kubernetes_calls_restricted(manifests):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/ and, beyond it, a read-only root and limits
    for everything."""
    seen = 0
    for (_, part), objects in manifests.items():
        for name, spec in pods(objects):
            assert spec["automountServiceAccountToken"] is False
            assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
            assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 1000
            allowed = ("Unconfined",) if name == "engines" else ("RuntimeDefault",)
            assert spec["securityContext"]["seccompProfile"]["type"] in allowed, NEEDS_ENGINES
            assert spec.get("hostUsers", True) is (name != "engines"), NEEDS_ENGINES
            assert all(not {"hostPath"} & volume.keys() for volume in spec["volumes"])
            for container in spec["containers"]:
                box = container["securityContext"]
                assert box["allowPrivilegeEscalation"] is False
                assert box["readOnlyRootFilesystem"]
                assert box["capabilities"] == {"drop": ["ALL"]}
                assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
                assert container["resources"]["requests"]
                seen += 1
        [*labels] = [
            one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
            for one in objects
            if one["kind"] == "Namespace"
        ]
        assert labels == {"course": ["restricted"], "grader": ["privileged"]}.get(part, [])
    assert seen == len(SITES) * 6


def test_a_site_decides_on_pods_processes_gpus_image_and_volume(manifests):
    [volume] = [one for one in manifests["eks", "course"] if one["kind"] == "PersistentVolume"]
    assert volume["spec"]["nfs"]["server"].startswith("fs-") and "nfsvers=4.1" in volume["spec"]["mountOptions"]
    [claim] = [one for one in manifests["gpu_cluster", "course"] if one["kind"] == "PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"] and claim["spec"]["storageClassName"] == "nfs-client"
    [job] = [one for one in manifests["gpu_cluster", "torchrun"] if one["kind"] == "Job"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["image"] == "registry.example.org/handson:gpu"
    assert {entry["name"]: entry.get("value") for entry in container["env"]}.items() >= {
        "NODES": "2",
        "PROCESSES": "2",
    }.items()


def test_the_grader_has_a_volume_of_its_own_that_no_student_sees(manifests):
    for site in SITES:
        claims = [
            one
            for part in ("course", "grader")
            for one in manifests[site, part]
            if one["kind"] == "PersistentVolumeClaim"
        ]
        assert [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in claims] == [
            ("handson", "course"),
            ("handson-grader", "grades"),
        ]
        mounting = {
            name
            for name, spec in pods(manifests[site, "grader"])
            for volume in spec["volumes"]
            if "persistentVolumeClaim" in volume
        }
        assert mounting == {"controller"}, "engines, in which students' code runs, mount no volume"
    [volume] = [one for one in manifests["eks", "grader"] if one["kind"] == "PersistentVolume"]
    assert volume["spec"]["nfs"]["path"] == "/grades"
    assert volume["spec"]["claimRef"] == {"namespace": "handson-grader", "name": "grades"}
    [claim] = [one for one in manifests["kind", "grader"] if one["kind"] == "PersistentVolumeClaim"]
    assert claim["spec"]["volumeName"] == "handson-grades" and claim["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.thorough
def test_checkov_finds_nothing_that_is_not_explained(manifests, tmp_path):
    """checkov knows neither MPIJob nor TrainJob: the pods of an MPIJob are shown to it as Pods."""
    programs.need(CHECKOV)
    for (site, part), objects in manifests.items():
        shown = [one for one in objects if one["kind"] not in ("MPIJob", "TrainJob")]
        shown += [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{name}-{number}", "namespace": "handson"},
                "spec": spec,
            }
            for number, (name, spec) in enumerate(pods(one for one in objects if one["kind"] == "MPIJob"))
        ]
        (tmp_path / f"{site}-{part}.yaml").write_text(yaml.safe_dump_all(shown))
    (tmp_path / "Dockerfile").write_text((COURSE / "containers/Containerfile").read_text())
    command = [CHECKOV, "--config-file", COURSE / "jobs/kubernetes/checkov.yaml", "--directory", tmp_path, "--output"]
    command += ["json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    for report in json.loads(done.stdout):
        assert not report["results"]["failed_checks"] and report["summary"]["passed"] > 50, [
            check["check_id"] for check in report["results"]["failed_checks"]
        ]


def test_no_secret_is_in_the_manifests(manifests):
    assert not [one for objects in manifests.values() for one in objects if one["kind"] == "Secret"]


def test_only_engines_reach_the_controller_and_engines_reach_nothing_else(manifests):
    rules = {
        one["metadata"]["name"]: one["spec"] for one in manifests["kind", "grader"] if one["kind"] == "NetworkPolicy"
    }
    assert rules["controller"]["ingress"][0]["from"] == [{"podSelector": {"matchLabels": {"handson": "engine"}}}]
    assert "Egress" in rules["controller"]["policyTypes"] and "egress" not in rules["controller"], (
        "the controller opens no connection"
    )
    [controller] = [spec for name, spec in pods(manifests["kind", "grader"]) if name == "controller"]
    assert controller["hostname"] == "controller", "so that `grade` there finds it without a name server"
    assert "ingress" not in rules["engines"]
    assert rules["engines"]["egress"][0]["to"] == [{"podSelector": {"matchLabels": {"handson": "controller"}}}]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "names no volume, but it must have one of storage_class, nfs, host_path"),
        ('nfs = "a:/"\nhost_path = "/a"', "names nfs and host_path"),
        ('nfs = "server"', "a server and its folder"),
        ('host_path = "/a"\nmemory = "2GB"', "a size such as 2Gi"),
        ('host_path = "/a"\nimmage = "x"', "did you mean 'image'"),
        ('host_path = "/a"\ngrades = "/a/grades"', "inside '/a', which all students see: name a folder outside it"),
        ('host_path = "/a"\ngrades = "//a/x"', "inside '/a'"),
        ('host_path = "/a"\ngrades = "/./a/x"', "inside '/a'"),
        ('host_path = "/a"\ngrades = "/b/../a"', "inside '/a'"),
        ('nfs = "server:/a/"\ngrades = "server:/b/..//a/x"', "inside 'server:/a/'"),
        ('nfs = "server:/"\ngrades = "server:/grades"', "inside 'server:/', which all students see"),
        ('host_path = "/a"\ngrades = "grades"', "a folder for the grader alone"),
    ],
)
def test_a_wrong_table_is_told_in_a_sentence(tmp_path, line, words):
    path = tmp_path / "ours.toml"
    path.write_text(f"[kubernetes]\n{line}\n")
    with pytest.raises(sites.SiteError, match=words):
        sites.load(str(path))
