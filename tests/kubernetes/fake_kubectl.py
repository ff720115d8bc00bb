"""A kubectl whose cluster is a JSON file, CLUSTER: {"objects": {"job/torchrun": {...}}, "pods": [...], "events": [...],
"log": "...", "refuse": {"a word of the command": "what is then written to stderr"}, "calls": [...]}. It answers with
the words of kubectl 1.32."""

import json
import os
import sys
from pathlib import Path

import yaml

if "kustomize" in sys.argv:
    os.execv(os.environ["KUBECTL"], [os.environ["KUBECTL"], *sys.argv[1:]])
path = Path(os.environ["CLUSTER"])
cluster = json.loads(path.read_text())
# what kubectl calls a kind
FULL = {"job": "jobs.batch", "mpijob": "mpijobs.kubeflow.org", "trainjob": "trainjobs.trainer.kubeflow.org"}
words = sys.argv[1:]
options = {words[i]: words[i + 1] for i in range(len(words) - 1) if words[i].startswith("--")}
verb, *rest = [
    word
    for word in words
    if word not in ("--context", "--namespace") and word not in (options.get("--context"), options.get("--namespace"))
]
sent = sys.stdin.read() if "-" in rest else ""
cluster["calls"].append({"words": words, "text": sent})
path.write_text(json.dumps(cluster))


def end(message):
    print(message, file=sys.stderr)
    sys.exit(1)


for word, message in cluster["refuse"].items():
    if word in words:
        end(message)
if verb == "config":
    print("somebody-elses")
elif verb == "get" and rest[0] in ("pods", "events"):
    print(json.dumps({"items": cluster[rest[0]]}))
elif verb == "get":
    name = f"{rest[0]}/{rest[1]}"
    (
        print(json.dumps(cluster["objects"][name]))
        if name in cluster["objects"]
        else end(f'Error from server (NotFound): {FULL.get(rest[0], rest[0] + "s")} "{rest[1]}" not found')
    )
elif verb == "logs":
    print(cluster["log"], end="")
elif verb in ("create", "apply") and sent:
    for one in yaml.safe_load_all(sent):
        name = f"{one['kind'].lower()}/{one['metadata']['name']}"
        if verb == "create" and name in cluster["objects"]:
            end(
                f'Error from server (AlreadyExists): error when creating "STDIN": {FULL[one["kind"].lower()]}'
                f' "{one["metadata"]["name"]}" already exists'
            )
        if "--dry-run=server" not in rest:
            cluster["objects"][name] = one
    path.write_text(json.dumps(cluster))
elif verb == "delete":
    print("deleted")
