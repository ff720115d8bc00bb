"""The position of this process among the ranks of a run, whichever program started them, and the variables for
PyTorch's rendezvous.

torchrun sets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. If mpiexec or srun started
the ranks, `prepare` sets the same variables, so that ``dist.init_process_group()`` works under all launchers.
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
LAST = 8  # seconds that the rendezvous' torchrun outlives the others, which would print long errors without it


def started_by():
    """Return the launcher that started this process as one of several ranks: "torchrun", "mpiexec" or "srun", or "" for
    a single process.

    torchrun may itself be a rank of mpiexec, so it is checked first. Its variables may remain in the shell from an
    earlier run: only TORCHELASTIC_RUN_ID shows that torchrun started this process.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return "torchrun"
    if under_mpiexec():
        return "mpiexec"
    # a batch script has SLURM_PROCID, too, but belongs to no step that srun started
    if "SLURM_STEP_ID" in os.environ and "SLURM_PROCID" in os.environ:
        return "srun"
    return "torchrun" if {*TORCHRUN[:2], *MEETING} <= os.environ.keys() else ""  # set by hand, like torchrun


def under_mpiexec():
    """Return whether mpiexec started this process."""
    return not os.environ.keys().isdisjoint(MPIEXEC)


def launcher_rank():
    """Return the rank that torchrun, mpiexec or srun gave this process, which is known before MPI starts, or 0 for a
    single process."""
    return _number({"torchrun": ("RANK",), "mpiexec": MPIEXEC, "srun": ("SLURM_PROCID",), "": ()}[started_by()], 0)


def no_restart():
    """Prevent a restart of this rank, which ends because of a mistake that no restart can fix.

    Under ``handson torchrun``, the torchrun of this node then also ends, and is not started again. (torchrun restarts
    its ranks whatever their status.)
    """
    if place := os.environ.get("HANDSON_TORCHRUN"):
        time.sleep(LAST if place == "first" else 0)
        os.kill(os.getppid(), signal.SIGUSR1)  # torchrun does not handle it, and ends silently


def prepare():
    """Set the variables that torchrun sets, if another launcher started this rank; a single process is the only rank.
    gloo uses the loopback interface if all ranks are on one host. All ranks must call it. Raises TrackError."""
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
    """Remove variables of an earlier run from the environment: this process starts its own workers on this host."""
    for name in (*TORCHRUN, *MEETING):
        os.environ.pop(name, None)
    loopback()


def _set(numbers, address, port):
    os.environ.update(zip(TORCHRUN, map(str, numbers)))
    os.environ.update(zip(MEETING, (address, str(port))))


def _srun_address():
    """Return the host of rank 0: the first host of the step, which is not always the host where srun was typed."""
    command = ["scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]]
    first, *others = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return first if others else "127.0.0.1"


def _srun_port():
    """Return a port that probably no other step of this user's jobs uses; all ranks get the same one. Each job has 16
    ports."""
    return job_port() + int(os.environ["SLURM_STEP_ID"]) % 16


def _prepare_by_mpi():
    """Let rank 0 choose a free port on its host, and broadcast it with MPI. Variables of an earlier torchrun in the
    shell are overwritten, except MASTER_PORT, which is respected for sites that open only some ports."""
    from handson.training import mpi

    MPI = mpi.start()
    world = MPI.COMM_WORLD
    promised = _number(("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"), world.size)
    if promised != world.size:
        library = MPI.Get_library_version().splitlines()[0].strip()
        raise TrackError(
            f"mpiexec started {promised} ranks, but each reports rank 0 of 1, because mpi4py uses another MPI"
            f" ({library}): put its mpiexec first on PATH"
        )
    port = problem = None
    if world.rank == 0:
        wish = 0 if "MASTER_ADDR" in os.environ else int(os.environ.get("MASTER_PORT") or 0)
        try:
            port = free_port(wish)
        except OSError:
            problem = f"MASTER_PORT {wish} is in use on {current_node()}: choose another, or unset it to get a free one"
    address, port, problem = world.bcast((meeting_address(world), port, problem))
    if problem:
        raise TrackError(problem, on_all_ranks=True)
    nodes = world.allgather(current_node())
    here = nodes[world.rank]
    _set([world.rank, world.size, nodes[: world.rank].count(here), nodes.count(here)], address, port)


def free_port(wish=0):
    """Return a free TCP port on this host: `wish`, or any. Raises OSError if `wish` is in use."""
    with socket.create_server(("", wish)) as server:
        return server.getsockname()[1]


def loopback():
    """Let gloo use the loopback interface: ranks of one machine need no name resolution and no network."""
    if any(name == "lo" for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def on_virtual_nodes():
    """Return whether this is a job on several virtual nodes of one machine."""
    return len(job_nodes()) > 1


def _number(names, otherwise):
    return next((int(os.environ[name]) for name in names if name in os.environ), otherwise)
