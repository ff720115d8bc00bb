"""What surrounds the manifests: the image's file, editors in the browser, JupyterHub's values, kind's nodes; and that
no secret is among them."""

import json
import re
import subprocess
from fnmatch import fnmatch

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError

from handson.cluster import site as sites
from handson.files import COURSE

CONTAINERFILE = (COURSE / "containers/Containerfile").read_text()


def closed(**properties):
    return {"type": "object", "properties": properties, "additionalProperties": False}


# What the values.schema.yaml of the chart of Zero to JupyterHub (version 2 and later) allows, in the parts that our
# values use.
QUANTITY, TEXT, FLAG = {"type": ["number", "null"]}, {"type": ["string", "null"]}, {"type": ["boolean", "null"]}
HUB = closed(
    singleuser=closed(
        image=closed(
            name={"type": "string"},
            tag={"type": "string"},
            pullPolicy={"enum": [None, "", "IfNotPresent", "Always", "Never"]},
            pullSecrets={"type": "array"},
        ),
        cmd={"type": ["array", "string", "null"]},
        defaultUrl=TEXT,
        uid={"type": ["integer", "null"]},
        fsGid={"type": ["integer", "null"]},
        allowPrivilegeEscalation=FLAG,
        storage=closed(
            capacity=TEXT,
            homeMountPath={"type": "string"},
            type={"enum": ["dynamic", "static", "none"]},
            dynamic={"type": "object"},
        ),
        cpu=closed(guarantee=QUANTITY, limit=QUANTITY),
        memory=closed(guarantee={"type": ["number", "string", "null"]}, limit={"type": ["number", "string", "null"]}),
        lifecycleHooks=closed(postStart={"type": "object"}, preStop={"type": "object"}),
        networkPolicy=closed(enabled={"type": "boolean"}),
    ),
    cull=closed(
        enabled={"type": "boolean"}, timeout={"type": ["integer", "null"]}, every={"type": ["integer", "null"]}
    ),
    hub=closed(config={"type": "object"}),
)


def test_values_for_jupyterhub_keep_the_schema_of_its_chart():
    values = yaml.safe_load((COURSE / "jobs/kubernetes/jupyterhub/values.yaml").read_text())
    Draft202012Validator(HUB).validate(values)
    with pytest.raises(ValidationError):
        Draft202012Validator(HUB).validate({"singleuser": values["singleuser"] | {"homeMountPath": "/home"}})
    [role, option, command] = values["singleuser"]["lifecycleHooks"]["postStart"]["exec"]["command"]
    assert (role, option) == ("sh", "-c") and subprocess.run(["sh", "-n", "-c", command], timeout=60).returncode == 0


def test_an_editor_in_the_browser_gets_the_first_stage_of_the_image():
    told = json.loads((COURSE / ".devcontainer/devcontainer.json").read_text())
    assert (COURSE / ".devcontainer" / told["build"]["dockerfile"]).resolve() == COURSE / "containers/Containerfile"
    assert (
        f"AS {told['build']['target']}\n" in CONTAINERFILE
        and f"--shell /bin/bash {told['remoteUser']};" in CONTAINERFILE
    )
    assert (
        told["postCreateCommand"] == "make environment"
        and told["remoteEnv"]["VIRTUAL_ENV"] == f"{told['workspaceFolder']}/.venv"
    )


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
    found = subprocess.run(["git", "grep", "-lE", "-e", begin], cwd=COURSE, capture_output=True, text=True, timeout=60)
    assert found.returncode in (0, 1) and not found.stdout, found.stdout + found.stderr
    ignored = (COURSE / ".containerignore").read_text().split()
    assert {
        "**/.ssh",
        "**/id_ed25519*",
        "**/*.pem",
        "**/inputs.secret",
        "**/gradebook.sqlite*",
        "**/submissions",
    } <= set(ignored)
    assert (COURSE / ".dockerignore").resolve() == COURSE / ".containerignore"
