"""Run kubectl, and convert its errors to one sentence with the object and the next command to type."""

import json
import re
import shutil
import subprocess

from handson.errors import OneSentence

PATIENCE = 60  # seconds for a cluster to answer
AWAY = r"connection refused|no such host|i/o timeout|unable to connect|was refused"
CAUSES = (  # a regular expression for the message of kubectl or the cluster, its meaning, what to do
    (
        r"context .* does not exist|context was not found|no context exists",
        "kubectl has no such context",
        "`kubectl config get-contexts` lists yours; correct `context` in the site's file",
    ),
    (
        r"Unauthorized|must be logged in|getting credentials",
        "the cluster does not accept your credentials, or they have expired",
        "log in again; for EKS: aws eks update-kubeconfig --name CLUSTER",
    ),
    (
        AWAY,
        "the cluster does not answer",
        "start it, or correct `context` in the site's file; try `kubectl cluster-info`",
    ),
    (
        r"already exists",
        "the name is taken by an earlier one",
        "remove that one: python -m handson kubernetes delete {part} --site {site}",
    ),
    (
        r"exceeded quota",
        "the namespace's quota is too small",
        "see what is left: kubectl describe quota -n {namespace}; then ask for less, or delete other jobs",
    ),
    (
        r'no matches for kind "\w+"|have a resource type "\w+"',
        "the cluster does not know this kind of job",
        "install its operator (docs/kubernetes.md), or submit torchrun or mpi instead",
    ),
    (
        r"forbidden",
        "you may not do this in this cluster",
        "ask its administrator for permission: kubectl auth can-i --list -n {namespace}",
    ),
    (
        r'namespaces "[^"]*" not found',
        "the namespace does not exist",
        "create it: python -m handson kubernetes apply --site {site}",
    ),
)


class KubernetesError(OneSentence, RuntimeError):
    """A problem with a cluster or an object in it, and the next command to type."""

    status = 1


class Away(KubernetesError, TimeoutError):
    """A cluster does not answer now; it may answer later."""


class Kubectl:
    """Run commands in the cluster and a namespace of a site, whatever kubectl's current context is. namespace: the
    students' by default."""

    def __init__(self, site, namespace=None):
        self.site, self.at = site, site.kubernetes
        self.namespace = namespace or self.at.namespace
        if not shutil.which("kubectl"):
            raise KubernetesError("there is no kubectl on PATH: install it (https://kubernetes.io/docs/tasks/tools/)")

    def run(self, *words, text=None, part="", missing=None):
        """Run kubectl, and return its output. text: its standard input; missing: the result if the object does not
        exist. Raises KubernetesError."""
        where = [*(["--context", self.at.context] if self.at.context else []), "--namespace", self.namespace]
        try:
            done = subprocess.run(
                ["kubectl", *where, *words], input=text, capture_output=True, text=True, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired:
            raise Away(f"kubectl {words[0]} has not answered for {PATIENCE} s: try `kubectl cluster-info`") from None
        if done.returncode == 0:
            return done.stdout
        if (
            missing is not None
            and re.search(r"\(NotFound\)|not found", done.stderr)
            and "namespaces" not in done.stderr
        ):
            return missing
        raise self.explained(done.stderr, part)

    def get(self, *words, **options):
        """Return the object that `kubectl get` shows, or None if it does not exist."""
        text = self.run("get", *words, "--output", "json", missing="null", **options)
        return json.loads(text)

    def current(self):
        """Return the name of kubectl's current context."""
        done = subprocess.run(
            ["kubectl", "config", "current-context"], capture_output=True, text=True, timeout=PATIENCE
        )
        if done.returncode:
            raise KubernetesError("kubectl has no current context: name one with `context` in the site's file")
        return done.stdout.strip()

    def explained(self, said, part=""):
        """Return the meaning of kubectl's error as a KubernetesError."""
        last = (said.strip().splitlines() or ["kubectl said nothing"])[-1].removeprefix("error: ")
        for pattern, meaning, cure in CAUSES:
            if re.search(pattern, said, re.IGNORECASE):
                sentence = (
                    f"{meaning} ({last}):"
                    f" {cure.format(part=part or 'NAME', namespace=self.namespace, site=self.site.name)}"
                )
                return (Away if pattern is AWAY else KubernetesError)(sentence)
        return KubernetesError(
            f"kubectl failed ({last}): run the same command by hand, with --namespace {self.namespace}"
        )
