#!/usr/bin/env bash
# Install the packages of requirements.txt, build-constraints.txt and pyproject.toml into .venv. Every `make` target calls this script
# first; if they are installed, it ends in a few hundredths of a second. It needs bash, the usual Unix commands and Python 3.11 to 3.13.
#
#   PYTHON=python3.12    use this Python, not the first suitable one of python3, python3.13, python3.12, python3.11
#   SYSTEM_TORCH=1       use the torch that this Python already has (GPU images have one) and install none; 0: install our own again
#
# .venv/handson-stamp marks a complete environment: it has this folder's path, then a checksum of the three files. While pip works, it
# contains "incomplete". So an environment is rebuilt if its installation was interrupted, if it was moved, or if its Python is gone. An
# environment without a stamp, which a person created, is only updated.

set -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 2
here=$(pwd -P)
stamp=.venv/handson-stamp
log=.venv/install.log
needed_kib=$((2 * 1024 * 1024))     # 1.5 GB installed, at most 0.3 GB of downloads that pip deletes, and some reserve

unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX
export PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_RETRIES="${PIP_RETRIES:-2}"
# chainer is built from source and needs a setuptools that still has pkg_resources. pip 25.3 renamed this setting to the second name.
export PIP_CONSTRAINT=build-constraints.txt PIP_BUILD_CONSTRAINT=build-constraints.txt

fail() {
    printf 'setup_environment.sh: %s\n' "$*" >&2
    exit 2
}

trap 'echo >&2; fail "interrupted; run make again and the installation starts afresh."' INT TERM

inputs_checksum() { cat requirements.txt build-constraints.txt pyproject.toml | cksum; }

uses_system_torch() { grep -qs '^include-system-site-packages = true' .venv/pyvenv.cfg; }

free_kib() { df --output=avail -k .venv 2>/dev/null | tail -n 1 | tr -d ' '; }

# Print version <tab> yes or no (can it create environments?) <tab> path of a Python; for that of our own .venv, the Python below it.
describe_python() {
    "$1" -c '
import importlib.util, os, sys
ours = os.path.realpath(sys.prefix) == os.path.realpath(".venv")
can_make = all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))
print("%d.%d" % sys.version_info[:2], "yes" if can_make else "no", sys._base_executable if ours else sys.executable, sep="\t")
' 2>/dev/null
}

# Set python and python_version, or fail with a sentence.
find_python() {
    local candidate version can_make path seen="" without_venv="" candidates=(python3 python3.13 python3.12 python3.11)
    [ -z "$PYTHON" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        IFS=$'\t' read -r version can_make path < <(describe_python "$candidate") || continue
        case $version in
            3.11 | 3.12 | 3.13) ;;
            *) seen+="${seen:+, }$candidate is $version"; continue ;;
        esac
        if [ "$can_make" = yes ]; then
            python=$path python_version=$version
            return
        fi
        without_venv=${without_venv:-$version}
    done
    if [ -n "$without_venv" ]; then
        fail "Python $without_venv is here, but without its venv module: install it (Debian, Ubuntu: apt install python$without_venv-venv)," \
             "or name another Python: make PYTHON=/path/to/python3 TARGET."
    fi
    fail "no Python 3.11, 3.12 or 3.13 was found (${seen:-${PYTHON:-python3} does not run}): get one from the system's package manager," \
         "pyenv, conda or uv, and name it if it is not on PATH: make PYTHON=/path/to/python3.12 TARGET."
}

# Print what .venv needs: nothing, refresh (update it), or rebuild (create it again).
what_is_needed() {
    local path="" checksum="" asked
    .venv/bin/python -c '' 2>/dev/null || { echo rebuild; return; }
    if [ -n "$PYTHON" ]; then
        asked=$(describe_python "$PYTHON" | cut -f 1)
        [ "$asked" = "$(describe_python .venv/bin/python | cut -f 1)" ] || { echo rebuild; return; }
    fi
    case $SYSTEM_TORCH in
        "") ;;
        0) if uses_system_torch; then echo rebuild; return; fi ;;
        *) uses_system_torch || { echo rebuild; return; } ;;
    esac
    [ -e "$stamp" ] || { echo refresh; return; }
    { read -r path; read -r checksum; } <"$stamp"
    if [ "$path" != "$here" ]; then echo rebuild
    elif [ "$checksum" != "$(inputs_checksum)" ]; then echo refresh
    else echo nothing; fi
}

# Delete the content of .venv, but not the folder: it may be a link to a larger disk, and it contains the lock.
clear_venv() {
    find .venv/ -mindepth 1 ! -path "$stamp" ! -path .venv/lock ! -path "$log" -delete || fail "cannot clear $here/.venv: delete it by hand."
}

make_venv() {
    local free output outer options=() size="about 1.5 GB"
    find_python
    [ -n "$SYSTEM_TORCH" ] || ! uses_system_torch || SYSTEM_TORCH=1     # an earlier choice remains
    if [ "${SYSTEM_TORCH:-0}" != 0 ]; then
        "$python" -c 'import torch' 2>/dev/null ||
            fail "SYSTEM_TORCH=1, but $python has no torch that can be imported: leave it out, or name the Python that has one with PYTHON=."
        options=(--system-site-packages) size="about 0.5 GB" needed_kib=$((needed_kib / 2))
    fi
    echo incomplete 2>/dev/null >"$stamp"       # a full disk is reported below
    clear_venv
    free=$(free_kib)
    if [ -n "$free" ] && [ "$free" -lt "$needed_kib" ]; then
        fail "the disk of $here/.venv has $((free / 1024)) MB free and about $((needed_kib / 1024)) MB are needed: free some space," \
             "or let .venv be a link to a folder on a bigger disk, and run make again."
    fi
    echo "Installing the course's packages into .venv: $size and one or two minutes, once (progress: $log)." >&2
    output=$("$python" -m venv "${options[@]}" "$(readlink -f .venv)" 2>&1) || explain_failure "$output"
    # If $python is itself in an environment, .venv sees the packages of the Python below that one. Torch is in the environment between.
    outer=$("$python" -c 'import sys, sysconfig; sys.prefix == sys.base_prefix or print(sysconfig.get_path("purelib"))')
    if [ -n "$outer" ] && [ ${#options[@]} -gt 0 ]; then
        echo "$outer" >".venv/lib/python$python_version/site-packages/outer-environment.pth"
    fi
}

# Copy stdin to stdout; on a terminal, also show pip's progress in one line.
show_progress() {
    local line
    while IFS= read -r line; do
        printf '%s\n' "$line"
        [ -t 2 ] && printf '\r\033[K  %.75s' "$line" >&2
    done
    [ -t 2 ] && printf '\r\033[K' >&2
    return 0
}

# Fail with a sentence on the cause in pip's output.
explain_failure() {
    local output=$1 telling
    # pip downloads everything before it changes the environment. If it failed before that, the environment is still complete.
    if [ "$needed" = refresh ] && [[ $output != *"Installing collected packages"* ]]; then
        if [ -n "$old_stamp" ]; then echo "$old_stamp" >"$stamp"; else rm -f "$stamp"; fi
    fi
    case $output in
        *"No space left"* | *"Errno 28]"* | *"quota exceeded"* | *"Errno 122]"*)
            [ "$needed" = refresh ] || clear_venv
            fail "the disk of $here/.venv is full: free about 2 GB there (more where pip brings CUDA's libraries)," \
                 "or let .venv be a link to a folder on a bigger disk, and run make again." ;;
        *"Failed to establish a new connection"* | *NewConnectionError* | *NameResolutionError* | *"timed out"* | *ProxyError* | \
        *"Connection refused"* | *"Connection aborted"* | *SSLError* | *"Network is unreachable"* | *"Connection reset"*)
            fail "pip cannot reach its package index: check the network (a proxy's address goes into https_proxy," \
                 "a mirror's into PIP_INDEX_URL) and run make again; pip's own words are in $log." ;;
        *"No matching distribution found"*)
            fail "pip's package index has no fitting build of a package for $(.venv/bin/python --version) ($log names it):" \
                 "try another Python (make PYTHON=python3.11 TARGET) or another index (PIP_INDEX_URL)." ;;
    esac
    telling=$(grep -E 'rror|WARNING' <<<"$output" | tail -n 12)
    printf '%s\n' "${telling:-${output: -1000}}" | sed 's/^/    /' >&2
    fail "installing failed, with the lines above (all of them: $log): run make again."
}

install_packages() {
    local output torch requirements=requirements.txt
    if [ "$needed" = rebuild ]; then
        make_venv
    else
        old_stamp=$(cat "$stamp" 2>/dev/null)
        echo "Bringing .venv up to date (progress: $log)." >&2
    fi
    echo incomplete 2>/dev/null >"$stamp" || fail "cannot write into $here/.venv: is the folder yours, and is there space?"
    if uses_system_torch; then
        requirements=.venv/requirements.txt
        # pip's version of it: torch.__version__ may end in +cu130, which no index has.
        torch=$(.venv/bin/python -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null)
        sed "s/^torch==.*/${torch:+torch==$torch}/" requirements.txt >"$requirements"
    fi
    mkdir -p .venv/tmp      # pip unpacks here, so that only the disk of .venv needs space
    output=$(TMPDIR=$here/.venv/tmp .venv/bin/python -m pip install --progress-bar off -r "$requirements" -e . 2>&1 |
             tee "$log" 2>/dev/null | show_progress) || { rm -rf .venv/tmp; explain_failure "$output"; }
    rm -rf .venv/tmp
    if uses_system_torch; then      # its own torchrun starts the Python that has it, without the course's packages
        { printf '#!/bin/sh\nexec "$(dirname "$(readlink -f "$0")")/python" -m torch.distributed.run "$@"\n' >.venv/bin/torchrun &&
          chmod +x .venv/bin/torchrun; } || fail "cannot write into $here/.venv: is the folder yours, and is there space?"
    fi
    # Make garbage collections rarer: otherwise the import of PyTorch has 700, which take a fifth of its time.
    echo 'import gc; gc.set_threshold(20_000, 10, 10)' >"$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/fewer-collections.pth" ||
        fail "cannot write into $here/.venv: is the folder yours, and is there space?"
    # Turn off JupyterLab's question to new users about news of the Jupyter project, which covers a part of the page.
    { mkdir -p .venv/share/jupyter/lab/settings &&
      echo '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}' >.venv/share/jupyter/lab/settings/overrides.json
    } || fail "cannot write into $here/.venv: is the folder yours, and is there space?"
    { printf '%s\n%s\n' "$here" "$(inputs_checksum)" >"$stamp.new" && mv "$stamp.new" "$stamp"; } 2>/dev/null || fail "cannot write $here/$stamp."
    echo "Installed in $SECONDS s." >&2
}

[ "$(what_is_needed)" = nothing ] && exit 0
{ mkdir -p "$(readlink -f .venv)" && : >>.venv/lock; } 2>/dev/null || fail "cannot write into $here/.venv: is the folder yours, and is there space?"
exec 9>>.venv/lock
if command -v flock >/dev/null && ! flock -n 9; then
    echo "Another make is installing into .venv: waiting for it (30 minutes at most)." >&2
    flock -w 1800 9 || fail "another make has been installing into .venv for 30 minutes: end it, then run make again."
fi
needed=$(what_is_needed)            # again: the process that held the lock may have installed everything
[ "$needed" = nothing ] || install_packages
