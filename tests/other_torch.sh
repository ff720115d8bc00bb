#!/usr/bin/env bash
# Run the quick tests, the three tasks and one class with another torch, as SYSTEM_TORCH=1 takes it from an image.
#   bash tests/other_torch.sh oldest     the oldest torch that `python -m handson doctor` does not remark on
#   bash tests/other_torch.sh newest     the newest torch of the package index
# The torch stays in build/torch-oldest or -newest: several GB where the index has torch with CUDA's libraries only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
which=$1 torch=$PWD/build/torch-$1 course=$PWD/build/course-$1
oldest=$(.venv/bin/python -c 'from handson.cluster.doctor import TORCHES; print("torch==%d.%d.*" % TORCHES[0])')
case $which in oldest) wanted=$oldest ;; newest) wanted=torch ;; *) echo "other_torch.sh: give oldest or newest" >&2; exit 2 ;; esac

[ -x "$torch/bin/python" ] || .venv/bin/python -m venv "$torch"
timeout 1800 "$torch/bin/python" -m pip install --quiet --upgrade "$wanted" "$(grep '^numpy==' requirements.txt)"
mkdir -p "$course"
git ls-files -z | xargs -0 cp --parents --target-directory "$course"    # over an earlier copy, whose .venv stays
cd "$course"
unset VIRTUAL_ENV
make SYSTEM_TORCH=1 PYTHON="$torch/bin/python" environment
make test
make tour ARGS="--options '-e 1 --size 64'"
