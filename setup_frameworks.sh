#!/usr/bin/env bash
# Install the packages of frameworks.txt into .venv-frameworks: TensorFlow, Lightning, Accelerate and JAX, for the unit 07_frameworks.
# `make frameworks` calls this script after .venv is up to date. If they are installed, it ends immediately.
#
# .venv-frameworks contains only packages that .venv lacks: it sees the packages of .venv, and pip keeps them. Scripts and notebooks run with the Python
# of .venv and find the packages here by themselves (handson/frameworks.py), once handson-stamp says that all of them are installed.

set -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 2
folder=.venv-frameworks
stamp=$folder/handson-stamp
log=$folder/install.log
needed_kib=$((5 * 1024 * 1024 / 2))     # 1.9 GB installed, 0.4 GB of downloads that pip deletes, and some reserve

unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX
export PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_RETRIES="${PIP_RETRIES:-2}"

fail() {
    printf 'setup_frameworks.sh: %s\n' "$*" >&2
    exit 2
}

trap 'echo >&2; fail "interrupted; run make frameworks again and the installation starts afresh."' INT TERM

# The environment's inputs: its path and that of .venv, the Python, the pins and the way of installing them.
made_from() { pwd -P; .venv/bin/python -c 'import sys; print(sys.version)'; cat frameworks.txt requirements.txt setup_frameworks.sh | cksum; }

[ -x .venv/bin/python ] || fail "there is no .venv yet: run make frameworks, which makes it first."
wanted=$(made_from)
[ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && exit 0

mkdir -p "$folder" 2>/dev/null || fail "cannot write into $PWD/$folder: is the folder yours, and is there space?"
exec 9>>"$folder/lock"
if command -v flock >/dev/null && ! flock -n 9; then
    echo "Another make is installing into $folder: waiting for it (30 minutes at most)." >&2
    flock -w 1800 9 || fail "another make has been installing into $folder for 30 minutes: end it, then run make frameworks again."
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && exit 0
fi
[ -e "$stamp" ] || rm -rf "$folder/lib"    # an installation was interrupted
rm -f "$stamp"
free=$(df --output=avail -k "$folder" 2>/dev/null | tail -n 1 | tr -d ' ')
if [ -n "$free" ] && [ "$free" -lt "$needed_kib" ]; then
    fail "the disk of $PWD/$folder has $((free / 1024)) MB free and about $((needed_kib / 1024)) MB are needed: free some space and run make frameworks again."
fi

echo "Installing TensorFlow, Lightning, Accelerate and JAX into $folder: about 1.9 GB and a minute, once (progress: $log)." >&2
{
    .venv/bin/python -m venv --without-pip "$folder" &&
    packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') &&
    .venv/bin/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' >"$packages/course.pth"
} || fail "the environment $folder cannot be made: delete the folder and run make frameworks again."
# Compile modules here, with all cores (pip uses one). Otherwise the first import compiles them, and may not be able to store the result:
# users may lack write permission, or set PYTHONDONTWRITEBYTECODE. Each import of TensorFlow then takes 16 s of a core instead of 6.
{
    "$folder/bin/python" -m pip install --progress-bar off --no-compile -r frameworks.txt -c requirements.txt -c build-constraints.txt &&
    "$folder/bin/python" -m compileall -q -j 0 "$packages"
} >"$log" 2>&1 || {
    grep -E 'rror|WARNING' "$log" | tail -n 8 | sed 's/^/    /' >&2
    fail "installing failed, with the lines above (all of them: $log): check the network and the disk, then run make frameworks again."
}
printf '%s\n' "$wanted" >"$stamp"
echo "Installed in $SECONDS s." >&2
