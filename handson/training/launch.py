"""Who this process is among the ranks of a run, whoever started them; and the variables by which PyTorch's ranks meet.

torchrun sets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. `prepare` sets the same ones
where mpiexec or srun started the ranks, so that ``dist.init_process_group()`` works under all of them.
"""

import os
import signal
import socket
import subprocess
import time

from handson.cluster.nodes import current_node, job_nodes, job_port, meeting_address
from handson.errors import TrackError

# rank, ranks, rank on the node, ranks on the node
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
MPIEXEC = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")  # MPICH, Open MPI
SRUN = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")
MEETING = ("MASTER_ADDR", "MASTER_PORT")
LAST = 8  # seconds that the torchrun at which all meet outlives the others, which would speak at length of its end


def started_by():
    """Who started this process as one of several ranks: "torchrun", "mpiexec" or "srun"; "" for a process of its own.

    torchrun may itself be a rank of mpiexec's, so it is asked first. Variables of its kind that a shell still has from
    an earlier run are nobody's: only torchrun sets TORCHELASTIC_RUN_ID.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "torchrun"
    if under_mpiexec():
        return "mpiexec"
    # a batch script has SLURM_PROCID, too, but belongs to no step that srun started
    if "SLURM_STEP_ID" in os.environ and "SLURM_PROCID" in os.environ:
        return "srun"
    return "torchrun" if {*TORCHRUN[:2], *MEETING} <= os.environ.keys() else ""  # by hand, in torchrun's manner


def under_mpiexec():
    """Whether an mpiexec started this process."""
    return not os.environ.keys().isdisjoint(MPIEXEC)


def launcher_rank():
    """The rank that torchrun, mpiexec or srun gave this process, known before MPI starts; 0 for a process of its
    own."""
    return _number({"torchrun": ("RANK",), "mpiexec": MPIEXEC, "srun": ("SLURM_PROCID",), "": ()}[started_by()], 0)


def no_restart():
    """Call it before this rank ends by a mistake that no restart can mend. Under ``handson torchrun``, the torchrun of
    this node then ends, too, and is not started again. torchrun itself starts its ranks again whatever their status."""
    if place := os.environ.get("HANDSON_TORCHRUN"):
        time.sleep(LAST if place == "first" else 0)
        os.kill(os.getppid(), signal.SIGUSR1)  # torchrun does not handle it, and ends without a word


def prepare():
    """Give this rank the variables that torchrun sets, if anything else started it; a process of its own is the only
    rank. gloo uses the loopback interface where all ranks are on one host. All ranks call it. Raises TrackError."""
    by = started_by()
    if by == "mpiexec":
        _prepare_by_mpi()
    elif by == "srun":
        on_each = os.environ[SRUN[3]].split(",")[0].split("(")[0]  # "2(x3)": two on each of three nodes
        _set([os.environ[name] for name in SRUN[:3]] + [on_each], _srun_address(), _srun_port())
    elif by == "":
        _set("0101", "127.0.0.1", free_port())
    if os.environ["MASTER_ADDR"] == "127.0.0.1" or os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        loopback()


def forget():
    """Forget the variables of an earlier run that a shell still has: this process starts its workers itself, on this
    host."""
    for name in (*TORCHRUN, *MEETING):
        os.environ.pop(name, None)
    loopback()


def _set(numbers, address, port):
    os.environ.update(zip(TORCHRUN, map(str, numbers)))
    os.environ.update(zip(MEETING, (address, str(port))))


def _srun_address():
    """The host of rank 0: the step's first one, which is not always that where srun was typed."""
    command = ["scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]]
    first, *others = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return first if others else "127.0.0.1"


def _srun_port():
    """A port that no other step of this user's jobs is likely to have; all ranks find the same one. Each job has 16."""
    return job_port() + int(os.environ["SLURM_STEP_ID"]) % 16


def _prepare_by_mpi():
    """Rank 0 chooses a free port of its host, and MPI tells all ranks. What a shell still has of an earlier torchrun is
    overwritten; MASTER_PORT alone is a wish, for sites that keep ports free."""
    from handson.training import mpi

    MPI = mpi.start()
    world = MPI.COMM_WORLD
    promised = _number(("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"), world.size)
    if promised != world.size:
        library = MPI.Get_library_version().splitlines()[0].strip()
        raise TrackError(
            f"mpiexec started {promised} ranks, but each is alone, since mpi4py uses another MPI ({library}): put its"
            " mpiexec first on PATH"
        )
    port = problem = None
    if world.rank == 0:
        wish = 0 if "MASTER_ADDR" in os.environ else int(os.environ.get("MASTER_PORT") or 0)
        try:
            port = free_port(wish)
        except OSError:
            problem = (
                f"MASTER_PORT {wish} is in use on {current_node()}: choose another, or unset it to be given a free one"
            )
    address, port, problem = world.bcast((meeting_address(world), port, problem))
    if problem:
        raise TrackError(problem, on_all_ranks=True)
    nodes = world.allgather(current_node())
    here = nodes[world.rank]
    _set([world.rank, world.size, nodes[: world.rank].count(here), nodes.count(here)], address, port)


def free_port(wish=0):
    """A TCP port that is free on this host now: `wish`, or any. Raises OSError if `wish` is in use."""
    with socket.create_server(("", wish)) as server:
        return server.getsockname()[1]


def loopback():
    """Let gloo use the loopback interface: ranks of one machine need no name resolution and no network."""
    if any(name == "lo" for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def on_virtual_nodes():
    """Whether this is a job on several virtual nodes of one machine, which share its GPUs."""
    return len(job_nodes()) > 1


def _number(names, otherwise):
    return next((int(os.environ[name]) for name in names if name in os.environ), otherwise)
