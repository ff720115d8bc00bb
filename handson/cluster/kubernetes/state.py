"""Derive the state of a Kubernetes job from JSON that `kubectl get` shows of the job, its pods and events."""

import re

STARTING = ("ContainerCreating", "PodInitializing")
DONE = {"Complete": True, "Succeeded": True, "SuccessCriteriaMet": True, "Failed": False}
WAITS = (  # reasons of a pod that does not start: Kubernetes' word, its meaning, what to do
    (
        r"ImagePullBackOff|ErrImage\w+|InvalidImageName|Failed to pull image",
        "its node cannot pull the image {image}",
        "push it there, or correct `image` in the site's file",
    ),
    (
        r'secrets? "?([\w-]+)"? not found',
        "the Secret {0} is missing",
        "python -m handson kubernetes keys --site {site}",
    ),
    (r"configmap \"?([\w-]+)\"? not found", "the ConfigMap {0} is missing", "submit the job again"),
    (
        r"persistentvolumeclaim \"?([\w-]+)\"? not found",
        "the claim {0} is missing",
        "python -m handson kubernetes apply --site {site}",
    ),
    (
        r"unbound immediate PersistentVolumeClaims",
        "the claim `course` has no volume",
        "kubectl describe pvc course -n {namespace}; then correct storage_class, nfs or host_path in the site's file",
    ),
    (
        r"Insufficient ([\w.-]+/[\w./-]*\w)",
        "no node has enough {0} left, or offers it at all",
        "kubectl describe nodes; then install its device plugin, correct `gpu_resource` in the site's file, or wait",
    ),
    (
        r"Insufficient ([\w./-]*\w)",
        "no node has enough {0} left",
        "ask for less in the site's file, or wait: kubectl describe nodes",
    ),
    (r"untolerated taint", "no node is open for such pods", "look at their taints: kubectl describe nodes"),
    (r"FailedMount|MountVolume", "a volume cannot be mounted", "kubectl describe pod {pod} -n {namespace}"),
    (r"exceeded quota", "the namespace's quota is too small", "kubectl describe quota -n {namespace}"),
    (r"violates PodSecurity", "the namespace refuses such pods", "kubectl get events -n {namespace}"),
)


def over(job):
    """Return whether a job ended well, or None if it has not ended."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in DONE:
            return DONE[condition["type"]]
    return None


def incomplete(pods):
    """Return whether pods of a job are missing, or have not started."""
    return not pods or any(pod.get("status", {}).get("phase") == "Pending" for pod in pods)


def waiting(pods, events, at, site):
    """Return why a job does not start, as half a sentence with the next command, or "" if all of its pods run or have
    run.

    events: the warnings about the job, its pods, and their controllers.
    """
    for pod in pods:
        status, name = pod.get("status", {}), pod["metadata"]["name"]
        if status.get("phase") != "Pending":
            continue
        reasons = [
            f"{one.get('reason', '')} {one.get('message', '')}"
            for one in status.get("conditions") or ()
            if one["status"] == "False"
        ]
        states = [one.get("state", {}).get("waiting") or {} for one in status.get("containerStatuses") or ()]
        said = " ".join([f"{one.get('reason', '')} {one.get('message', '')}" for one in states] + reasons).strip()
        warnings = [
            f"{event.get('reason', '')} {event.get('message', '')}"
            for event in events
            if event["involvedObject"]["name"] == name
        ]
        image = pod["spec"]["containers"][0]["image"] if "spec" in pod else ""
        meaning = _meaning(" ".join([said, *warnings]), at, site, pod=name, image=image)
        starting = not warnings and all(one.get("reason") in STARTING for one in states if one)
        return f"pod {name}: {meaning or (warnings[-1] if warnings else 'it is being started' if starting else said)}"
    failures = [event["message"] for event in events if event.get("reason") == "FailedCreate"]
    return "" if pods or not failures else _meaning(failures[-1], at, site, pod="") or failures[-1]


def problem(job, pods, again):
    """Return how a job failed, as half a sentence: the pod that failed first, and how. again: restarts it."""
    failed = sorted((one for one in (_failure(pod, again) for pod in pods) if one), key=lambda one: one[0])
    if failed:
        return failed[0][1]
    conditions = [one for one in job["status"]["conditions"] if one["type"] == "Failed" and one["status"] == "True"]
    return f"failed: {conditions[0].get('message') or conditions[0].get('reason') or 'without a reason'}; {again}"


def _failure(pod, again):
    """Return (when, sentence) for a pod that failed, or None for other pods."""
    status, name = pod.get("status", {}), pod["metadata"]["name"]
    taken = [
        one for one in status.get("conditions") or () if one["type"] == "DisruptionTarget" and one["status"] == "True"
    ]
    if status.get("reason") in ("Evicted", "Preempting", "NodeLost", "Shutdown", "Terminated", "DeadlineExceeded"):
        taken = [status]
    if taken:
        message = taken[0].get("message", "without a message").strip().rstrip(".")
        return "", f"lost pod {name}: {taken[0]['reason']} ({message}); {again}"
    for container in status.get("containerStatuses") or ():
        end = container.get("state", {}).get("terminated")
        if end and end["exitCode"]:
            reason = {"OOMKilled": f"it was out of memory: ask for more `memory` in the site's file, {again}"}.get(
                end.get("reason")
            )
            reason = reason or (
                f"it was killed: {again}" if end["exitCode"] == 137 else f"its log: kubectl logs {name}"
            )
            return end.get("finishedAt") or "", f"ended in pod {name} with status {end['exitCode']}; {reason}"
    return None


def _meaning(said, at, site, **names):
    for pattern, meaning, cure in WAITS:
        if found := re.search(pattern, said):
            groups = [group or "" for group in found.groups()]
            names = {"namespace": at.namespace, "site": site, "pod": "", "image": "", **names}
            return f"{meaning.format(*groups, **names)}; {cure.format(**names)}"
    return ""
