"""A real PBS on PATH always wins, and is found without ever running in circles."""

import sys

import pytest
from pbs_harness import COMMANDS, PATIENCE, SERVER
from waiting import run_to_end

from handson.pbs import resources

REAL = """#!/bin/sh
printf 'real <%s>' "$@"
cat
exit 42
"""


def executable(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_real_command_gets_arguments_and_stdin_untouched(pbs, tmp_path, command):
    executable(tmp_path / "real" / command, REAL)
    path = f"{pbs.environment['PATH']}:{tmp_path}/real"
    done = pbs(command, "-Z", "has space", "", stdin="the script", PATH=path)
    assert (done.stdout, done.returncode) == ("real <-Z>real <has space>real <>the script", 42)
    assert not pbs.home.exists()


@pytest.mark.parametrize("words", [["-l", "network=100mbit"], ["-lselect=1,gpu_memory=1gb"]], ids=" ".join)
def test_who_asks_a_real_qsub_for_what_only_the_embedded_pbs_has_reads_so_below_its_words(pbs, tmp_path, words):
    executable(tmp_path / "real" / "qsub", "#!/bin/sh\necho 'qsub: Unknown resource' >&2\nexit 187\n")
    path = f"{pbs.environment['PATH']}:{tmp_path}/real"
    done = pbs("qsub", *words, "a.sh", PATH=path)
    said, hint = done.stderr.splitlines()
    assert (done.returncode, said) == (187, "qsub: Unknown resource") and hint == f"hint: {resources.ONLY_EMBEDDED}"
    assert pbs("qsub", "-l", "select=1", "-v", "HANDSON_NETWORK=1gbit", "a.sh", PATH=path).stderr.count("\n") == 1


def test_what_cannot_be_executed_is_no_command(pbs, tmp_path):
    executable(tmp_path / "real" / "qsub", REAL).chmod(0o644)
    (tmp_path / "folder" / "qsub").mkdir(parents=True)
    executable(tmp_path / "broken" / "qsub", "#!/no/such/interpreter\n")
    path = ":".join(
        [pbs.environment["PATH"], *(str(tmp_path / name) for name in ("real", "folder", "broken", "nosuch"))]
    )
    assert pbs("qsub", "-h", pbs.script("echo\n"), PATH=path).stdout == f"0.{SERVER}\n"


def test_other_copies_of_ours_are_passed_over(pbs, tmp_path):
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "qsub").symlink_to(pbs.bin / "qsub")
    executable(tmp_path / "copy" / "qsub", (pbs.bin / "qsub").read_text())
    executable(
        tmp_path / "pip" / "qsub",
        "#!/bin/sh\n'''exec' /other/venv/bin/python \"$0\" \"$@\"\n' '''\nfrom handson.pbs.qsub import main\n",
    )
    path = ":".join([str(pbs.bin), *(str(tmp_path / name) for name in ("pip", "link", "copy")), "/usr/bin:/bin"])
    assert pbs("qsub", "-h", pbs.script("echo\n"), PATH=path).stdout == f"0.{SERVER}\n"


@pytest.mark.parametrize("how", ["exec ", ""])
def test_a_wrapper_that_leads_back_to_ours_is_no_endless_loop(pbs, tmp_path, how):
    executable(tmp_path / "wrapper" / "qsub", f'#!/bin/sh\n{how}{pbs.bin}/qsub "$@"\n')
    path = f"{tmp_path}/wrapper:{pbs.environment['PATH']}"
    assert pbs("qsub", "-h", pbs.script("echo\n"), PATH=path).stdout == f"0.{SERVER}\n"


def test_nothing_is_imported_before_stepping_aside(pbs, tmp_path):
    executable(tmp_path / "real" / "qsub", REAL)
    code = (
        f"import sys; sys.argv[0] = 'qsub'; sys.path.append({str(pbs.bin)!r}); import handson.pbs.qsub\nprint('sqlite3'"
        " in sys.modules, 'json' in sys.modules)"
    )
    from pbs_harness import ROOT

    done = run_to_end([sys.executable, "-S", "-c", code], cwd=ROOT, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("False False\n", "")
