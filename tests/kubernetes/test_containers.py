"""What surrounds the manifests: the image's file, editors in the browser, JupyterHub's values, kind's nodes; and that
no secret is among them."""

import functools
import json
import re
import subprocess
from fnmatch import fnmatch

import yaml
from waiting import run_to_end

from handson.cluster import site as sites
from handson.files import COURSE

CONTAINERFILE = (COURSE / "containers/Containerfile").read_text()


# Keys that the values.schema.yaml of the chart of Zero to JupyterHub (version 2 and later) allows, where we use some.
IN_CHART = {
    "": "singleuser cull hub",
    "hub": "config",
    "cull": "enabled timeout every",
    "singleuser": "image cmd defaultUrl uid fsGid allowPrivilegeEscalation storage cpu memory lifecycleHooks networkPolicy",
    "singleuser.image": "name tag pullPolicy pullSecrets",
    "singleuser.storage": "capacity homeMountPath type dynamic",
    "singleuser.cpu": "guarantee limit",
    "singleuser.memory": "guarantee limit",
    "singleuser.lifecycleHooks": "postStart preStop",
    "singleuser.networkPolicy": "enabled",
}


def test_values_for_jupyterhub_have_keys_of_its_chart():
    values = yaml.safe_load((COURSE / "jobs/kubernetes/jupyterhub/values.yaml").read_text())
    for place, keys in IN_CHART.items():
        part = functools.reduce(lambda part, key: part.get(key, {}), place.split(".") if place else (), values)
        assert part.keys() <= {*keys.split()}, place
    [role, option, command] = values["singleuser"]["lifecycleHooks"]["postStart"]["exec"]["command"]
    assert (role, option) == ("sh", "-c") and subprocess.run(["sh", "-n", "-c", command], timeout=60).returncode == 0


def test_an_editor_in_the_browser_gets_the_first_stage_of_the_image():
    told = json.loads((COURSE / ".devcontainer/devcontainer.json").read_text())
    assert (COURSE / ".devcontainer" / told["build"]["dockerfile"]).resolve() == COURSE / "containers/Containerfile"
    assert f"AS {told['build']['target']}\n" in CONTAINERFILE
    assert f"--shell /bin/bash {told['remoteUser']};" in CONTAINERFILE
    assert told["postCreateCommand"] == "make environment"
    assert told["remoteEnv"]["VIRTUAL_ENV"] == f"{told['workspaceFolder']}/.venv"


def test_the_image_runs_as_an_ordinary_user_with_the_entrypoint():
    first, second = CONTAINERFILE.split("\nFROM system\n")
    users = re.findall(r"^USER (\S+)$", first + second, re.MULTILINE)
    assert users == ["1000"] and 'ENTRYPOINT ["/opt/handson/containers/entrypoint"]' in first
    assert "rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*" in first, "host keys are made when a pod starts"


def test_nodes_of_kind_mount_what_its_volumes_are_made_of():
    mounted = [
        {mount["containerPath"] for mount in node["extraMounts"]}
        for node in yaml.safe_load((COURSE / "containers/kind.yaml").read_text())["nodes"]
    ]
    at = sites.read("kind").kubernetes
    assert len(mounted) == 2 and all(folders == {at.host_path, at.grades} for folders in mounted)
    assert not at.image.endswith(":latest"), "Kubernetes pulls images with that tag from their registry, always"


def test_what_git_ignores_reaches_no_image():
    left_out = [line.removeprefix("**/") for line in (COURSE / ".containerignore").read_text().splitlines()]
    for line in (COURSE / ".gitignore").read_text().split():
        path = line.strip("/")
        assert path in left_out or any(
            fnmatch(path, one) or fnmatch(path.rpartition("/")[2], one) for one in left_out
        ), f"{line}: perhaps gigabytes, such as .venv-frameworks"


def test_no_private_key_is_in_git_and_none_reaches_an_image():
    begin = "-----BEGIN [A-Z ]*PRIVATE " + "KEY-----"
    found = run_to_end(["git", "grep", "-lE", "-e", begin], cwd=COURSE)
    assert found.returncode in (0, 1) and not found.stdout, found.stdout + found.stderr
    ignored = (COURSE / ".containerignore").read_text().split()
    assert {*"**/.ssh **/id_ed25519* **/*.pem **/inputs.secret **/gradebook.sqlite* **/submissions".split()} <= set(
        ignored
    )
    assert (COURSE / ".dockerignore").resolve() == COURSE / ".containerignore"
