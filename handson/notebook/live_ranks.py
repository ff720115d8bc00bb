"""Ranks that run the cells of a notebook: ``ranks = handson.notebook.ranks(4)``, then cells with ``%%px``.

The ranks are ipyparallel's engines, and ``%px``, ``%%px --targets 0,2`` and ``ranks.pull("x")`` are ipyparallel's own.
This module starts the engines, shows their output, and ends cells that hang. The code that runs in each rank is in
rank_of_notebook.
"""

import atexit
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path

import ipyparallel
from ipyparallel.client.magics import ParallelMagics
from IPython import get_ipython
from IPython.display import HTML, display
from IPython.paths import get_ipython_dir
from traitlets.config import Config

from handson.cluster import engine_jobs
from handson.cluster import site as sites
from handson.cluster.follow import OF_COURSE
from handson.errors import OneSentence
from handson.language import marked, translated
from handson.notebook import rank_of_notebook
from handson.training import dump_stacks, launch
from handson.words import counted

LOOK = 0.1  # seconds between checks of a cell's ranks
HANGING = 5  # seconds after which waiting ranks are asked for their stacks
ANSWER = 1.0  # seconds in which they write them
FREED = 10  # seconds in which a rank ends its cell after it was freed
MEETING = 300  # seconds in which ranks import their libraries and form their group, on a busy machine
PROFILE = "handson-ranks-"
ENGINES = """import os

os.environ |= {variables}  # before `import handson`, which applies them
from handson.training.launch import launcher_rank

c = get_config()
c.IPEngine.id = launcher_rank()  # an engine's number is its rank
c.IPEngine.max_heartbeat_misses = 20  # seconds without a controller, after which its job ends
"""
SHORT = 60  # longest path of a folder that may contain sockets, in bytes: see engine_jobs.LONGEST
WALLTIME = "01:00:00"  # the ranks' job requests this time if the site has no rule
_mine = None  # the Ranks of this notebook, once they have started


class RanksError(OneSentence, RuntimeError):
    """An error on the ranks, in a sentence. A notebook shows it without a traceback of this module."""

    def _render_traceback_(self):
        return [translated(str(self))]


def ranks(number=4, track="pytorch", nodes=None):
    """Start `number` ranks on which ``%%px`` cells run, and return them as a `Ranks`. They replace the ranks of an
    earlier call.

    Cells can use `rank`, `local_rank`, `world_size` and `device`; in the track "pytorch" also `torch`, `dist` and a
    process group; in the track "chainer" also `chainer`, `chainermn` and a communicator `comm`. The ranks are a job of
    the site's batch system on `nodes` nodes, by default two nodes if `number` is even and otherwise one. If the
    notebook itself runs in a job, they are a second job, which waits until enough cores are free. Raises ClusterError
    and TrackError.
    """
    global _mine
    if _mine is not None:
        _mine.stop()
    _mine = Ranks(number, track, nodes or (2 if number % 2 == 0 else 1))
    _mine.restart()
    return _mine


class Ranks:
    """The ranks of a notebook. `view` is ipyparallel's DirectView of all of them."""

    def __init__(self, number, track, nodes):
        self.number, self.track, self.nodes = number, track, nodes
        self.cluster = self.client = self.view = self.folder = None
        atexit.register(self.stop)

    def restart(self):
        """Start the ranks. Existing ranks end, and their variables are lost."""
        begin = time.monotonic()
        found = self._begin()
        _say_where_they_are(sorted(found), time.monotonic() - begin)

    def _begin(self):
        """Start new ranks instead of the existing ones. Return the (rank, node) of each."""
        self.stop()
        site = sites.load()
        if site.batch == "embedded" and not site.strict:  # its nodes share this machine's /tmp
            short = len(tempfile.gettempdir()) < SHORT
            self.folder = Path(tempfile.mkdtemp(prefix=PROFILE, dir=None if short else "/tmp"))
        else:  # a folder on the file system that all nodes share
            self.folder = Path(get_ipython_dir(), f"profile_{PROFILE}{uuid.uuid4().hex[:8]}")
            self.folder.mkdir(parents=True, mode=0o700)
        try:
            self.cluster, self.client = _started(self.folder, self.number, self.nodes)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.view = self.client[:]
        self.view.block = True
        if shell := get_ipython():
            shell.register_magics(RankMagics(shell, self))
        met = self.view.apply_async(rank_of_notebook.begin, str(self.folder), self.track)
        try:
            return met.get(MEETING)
        except TimeoutError:
            self.stop()
            raise RanksError(
                f"The ranks have not connected within {MEETING} s. `ranks.restart()` tries again."
            ) from None

    def stop(self):
        """End the ranks."""
        if self.cluster is None:
            return
        with suppress(Exception):  # remaining processes end with this one: see die_with_parent
            self.client.close()
            self.cluster.stop_cluster_sync()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.cluster = self.client = self.view = None

    def pull(self, name):
        """Return a list of a variable's values on all ranks."""
        return self.view.pull(name, block=True)

    def let_go(self, working):
        """Free ranks from the collective in which they wait, and form a new process group. Return whether they kept
        their variables; if not, all ranks are new. working() returns the ranks that still run a cell."""
        if self.track == "pytorch":
            Path(self.folder, rank_of_notebook.LET_GO).touch()
            end = time.monotonic() + FREED
            while working() and time.monotonic() < end:
                time.sleep(LOOK)
            if not working():
                port = self.client[0].apply_sync(launch.free_port)
                self.view.apply_sync(rank_of_notebook.meet, port)
                return True
        self._begin()
        return False


def _started(folder, number, nodes):
    """Return (Cluster, Client) of `number` engines on `nodes` nodes, whose controller ends with this process."""
    config = Config()
    tied = [sys.executable, "-m", "handson.cluster.die_with_parent", str(os.getpid()), str(folder)]
    config.ControllerLauncher.controller_cmd = [*tied, "ipyparallel.controller"]
    variables = {name: os.environ[name] for name in OF_COURSE if name in os.environ}
    (folder / "ipengine_config.py").write_text(ENGINES.format(variables=variables))
    walltime = sites.load().walltime or WALLTIME
    return engine_jobs.start(
        engines=number, nodes=nodes, walltime=walltime, say=_say_why_they_wait, config=config, folder=folder
    )


def _say_why_they_wait(line):
    """Print a line of engine_jobs only if it explains why the job has not started."""
    if line.startswith("It waits"):
        print(translated(f"The job with the ranks has not started yet. {line}"))


def _say_where_they_are(found, seconds):
    nodes = {}
    for rank, node in found:
        nodes.setdefault(node, []).append(rank)
    places = "; ".join(marked(f"{named(ranks)} on {node}") for node, ranks in nodes.items())
    print(translated(f"{counted(len(found), 'rank')} ({places}), ready after {seconds:.1f} s."))


def named(ranks):
    """Return "rank 2", "ranks 0 to 3" or "ranks 0, 1 and 3"."""
    ranks = sorted(ranks)
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    *others, last = map(str, ranks)
    return f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"


class RankMagics(ParallelMagics):
    """ipyparallel's magics with other output: each rank's output follows its name, and equal outputs are shown once.
    Cells that hang end."""

    def __init__(self, shell, ranks):
        self.ranks = ranks
        super().__init__(shell, ranks.view)

    def parallel_execute(self, cell, block=None, groupby="type", save_name=None, **options):
        """Run a cell on the view's ranks. Raises RanksError."""
        if block is False or not self.view.block and block is None:
            return super().parallel_execute(cell, block, groupby, save_name, **options)
        if self.ranks.cluster is None or len(self.ranks.client.ids) < self.ranks.number:
            raise RanksError("The ranks have ended: `ranks.restart()` starts new ones.")
        result = self.view.execute(cell, silent=False, block=False)
        self.last_result = result
        if save_name:
            self.shell.user_ns[save_name] = result
        waiting = Waiting(self.ranks, result, self._targets())
        stopped = waiting.until_done()
        with suppress(Exception):
            result.wait_for_output(1)
        show(result, waiting.targets)
        if stopped:
            print(translated(stopped))
        if failed := waiting.failed if stopped else waiting.errors():
            raise RanksError(failed)

    def _targets(self):
        """Return the ranks on which cells of the view run."""
        targets = self.view.targets
        return self.ranks.client.ids if targets == "all" else [targets] if isinstance(targets, int) else list(targets)


class Waiting:
    """Wait for a cell that runs on ranks, and detect ranks that deadlock."""

    def __init__(self, ranks, result, targets):
        self.ranks, self.result, self.targets = ranks, result, targets
        self.of = dict(zip(targets, result.split()))  # rank -> its own result
        self.failed = ""  # the errors before the ranks were stopped, because stopping raises errors on waiting ranks

    def working(self):
        """Return the ranks that still run the cell."""
        return [rank for rank, one in self.of.items() if not one.ready()]

    def until_done(self):
        """Wait until no rank runs the cell. Return why the ranks were stopped, in words, or None if they were not.
        Raises RanksError if ranks have died."""
        look = time.monotonic() + HANGING
        try:
            while self.working():
                self.result.wait(LOOK)
                self._look_for_deaths()
                if time.monotonic() > look:
                    if problem := self._hang():
                        return problem + self._let_go()
                    look = time.monotonic() + HANGING
        except KeyboardInterrupt:
            return self._interrupt()
        self._look_for_deaths()
        return None

    def _look_for_deaths(self):
        there = self.ranks.client.ids
        dead = [rank for rank in range(self.ranks.number) if rank not in there]
        if not dead:
            return
        if len(dead) == self.ranks.number:
            raise RanksError("A rank died, so all ranks have ended: `ranks.restart()` starts new ones.")
        raise RanksError(f"{named(dead).capitalize()} died: `ranks.restart()` starts new ones.")

    def _hang(self):
        """Return which ranks wait where, if this is a deadlock: they wait in a collective that others do not enter, or
        in different collectives. Otherwise return None."""
        places = self._places(self.working())
        working = [rank for rank in self.working() if rank in places]
        idle = [rank for rank in range(self.ranks.number) if rank not in working]
        if not working or not all(places[rank][0] for rank in working):
            return None
        at = {}
        for rank in working:
            at.setdefault(_place(*places[rank]), []).append(rank)
        if not idle and len(at) == 1:
            return None  # a large message may take long
        words = [f"{named(ranks)} wait{'s' * (len(ranks) == 1)} in {place}" for place, ranks in at.items()]
        if idle:
            words.append(marked(f"{named(idle)} {'is' if len(idle) == 1 else 'are'} idle"))
        self.failed = self.errors()
        return "; ".join(words).capitalize() + "."

    def _places(self, ranks):
        """Return rank -> (the collective in which it waits, "" for none; (file, line) of its own code, or None)."""
        files = {rank: rank_of_notebook.stack_file(self.ranks.folder, rank) for rank in ranks}
        for file in files.values():
            os.truncate(file, 0)
        self.ranks.client.send_signal(signal.SIGUSR1, targets=ranks, block=True)
        end = time.monotonic() + ANSWER
        while time.monotonic() < end and not all(file.stat().st_size for file in files.values()):
            time.sleep(LOOK)
        time.sleep(LOOK)  # a rank may still be writing
        return {
            rank: dump_stacks.where(file.read_text().lstrip("\0"), dump_stacks.is_own_code)
            for rank, file in files.items()
        }

    def errors(self):
        """Return the errors of the ranks that have ended the cell, or "". Equal errors are shown once, with the
        traceback of the first rank."""
        found = {}
        for rank, one in self.of.items():
            error = one.get(return_exceptions=True) if one.ready() else None
            error = error[0] if isinstance(error, list) else error
            if isinstance(error, ipyparallel.error.RemoteError):
                found.setdefault((error.ename, error.evalue), ([], error.traceback))[0].append(rank)
        return "\n".join(f"{named(ranks).capitalize()}:\n{traceback}" for ranks, traceback in found.values())

    def _let_go(self):
        kept = self.ranks.let_go(self.working)
        return " " + ("The ranks have a new process group, and their variables." if kept else "All ranks are new.")

    def _interrupt(self):
        """Handle Ctrl-C and the stop button: end the cell on all ranks."""
        places = self._places(self.working())
        self.ranks.client.send_signal(signal.SIGINT, targets=list(places), block=True)
        where = "; ".join(f"rank {rank} was in {_place(*place)}" for rank, place in places.items())
        end = time.monotonic() + 1
        while self.working() and time.monotonic() < end:
            time.sleep(LOOK)
        freed = self._let_go() if self.working() or any(collective for collective, _ in places.values()) else ""
        return f"Interrupted: {where or 'no rank ran the cell'}.{freed}"


def _place(collective, own):
    """Return, for example, "all_reduce, line 2"."""
    line = ""
    if own:
        name = os.path.basename(own[0])
        line = marked(f"line {own[1]}") if "ipykernel" in own[0] else f"{name}, line {own[1]}"
    return ", ".join(filter(None, (collective, line))) or "code of a library"


def show(result, targets):
    """Print what each of the ranks `targets` has printed and returned, after its name. Equal texts are printed once;
    figures are side by side."""
    texts, figures = {}, []
    parts = result.stdout, result.stderr, result.execute_result, result.outputs
    if len(targets) == 1 and not isinstance(result.stdout, list):
        parts = [[part] for part in parts]
    for rank, out, err, value, outputs in zip(targets, *parts):
        texts[rank] = out + err + (value["data"].get("text/plain", "") if value else "")
        for output in outputs:
            if image := output["data"].get("image/png"):
                figures.append((rank, image))
            else:
                texts[rank] += output["data"].get("text/plain", "") + "\n"
    for text, ranks in _alike(texts):
        if "\n" in text:
            print(f"{translated(named(ranks))}:\n{text}")
        elif text:
            print(f"{translated(named(ranks))}: {text}")
    if figures:
        parts = (
            f'<figure style="margin: 0"><img alt="figure of rank {rank}" src="data:image/png;base64,{image}">'
            f"<figcaption>rank {rank}</figcaption></figure>"
            for rank, image in figures
        )
        display(HTML(f'<div style="display: flex; flex-wrap: wrap">{"".join(parts)}</div>'))


def _alike(texts):
    """Return [(text, ranks)], in the order of the first rank of each text. texts: rank -> text."""
    found = {}
    for rank, text in sorted(texts.items()):
        found.setdefault(text.rstrip("\n"), []).append(rank)
    return found.items()
