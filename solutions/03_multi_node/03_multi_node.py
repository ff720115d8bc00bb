# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Two nodes
#
# Task 2 of the lecture: two nodes with two GPUs each. Processes on several nodes are started by MPI, and their gradients travel
# through a network.
#
# **In about 60 minutes you will**
#
# - tell rank, intra_rank and inter_rank apart, and let ranks speak to each other by MPI,
# - train on two nodes, and make the scaling table of your own runs,
# - predict what a slow network costs, and measure it,
# - write a data-parallel training from an empty file.
#
# (One hour for the course? Leave out the sections with a star (\*).) Words that are new to you are in the [glossary](../docs/glossary.md).

# %%
TRACK = "pytorch"  # or "chainer"
OPTIONS = (
    ""  # for the training script, such as "--epoch 2"; on a GPU it trains "--model resnet50" unless told otherwise
)
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/03_multi_node"

# %% [markdown]
# ## Ranks
#
# `mpiexec -n 4` starts four processes, and gives each a number: its **rank**. The number on its own node is the **intra_rank**, and
# that of its node the **inter_rank**. These are ChainerMN's names; in PyTorch, the environment variables `RANK`, `LOCAL_RANK` (the
# intra_rank) and `WORLD_SIZE` (the number of ranks) tell each process who it is.

# %%
from handson.notebook import drawings

drawings.nodes(2, per_node=2)

# %% [markdown]
# Which of these numbers must choose the GPU? GPUs are counted on each node from 0.


# %%
def intra_rank(rank, per_node):
    """The number of a rank on its node, where every node has `per_node` ranks."""
    ### BEGIN SOLUTION intra_rank:
    ### return the intra_rank; the first `per_node` ranks are on the first node
    return rank % per_node
    ### END SOLUTION


# %%
print("2 nodes x 2:", [intra_rank(rank, 2) for rank in range(4)])
print("2 nodes x 3:", [intra_rank(rank, 3) for rank in range(6)])

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("multi_node", "intra_rank")

# %% [markdown]
# ## \* Who talks to whom, over which network
#
# Four live ranks, as in `00_start`. Which of them are on the second node, and which local ranks have they?
# (They are PyTorch's. `ranks(4, "chainer")` would give them ChainerMN's communicator `comm`, with `comm.intra_rank`.)

# %%
import handson.notebook

ranks = handson.notebook.ranks(4)

# %%
# %%px
import socket

print(f"local rank {local_rank} on {socket.gethostname()}")

# %% [markdown]
# Ranks of one node reach each other by the *loopback* network `lo`, which does not leave the node. Ranks of different nodes need a real network;
# between virtual nodes it is called `eth0`. The function below counts what a node sends through each while its ranks communicate.

# %%
# %%px
import psutil


def traffic(communicate):
    """Print how much this node sends through each of its networks."""
    before = psutil.net_io_counters(pernic=True)
    dist.barrier()
    communicate()
    dist.barrier()
    for name, after in psutil.net_io_counters(pernic=True).items():
        megabytes = (after.bytes_sent - before[name].bytes_sent) / 1e6
        if megabytes > 0.5:
            print(f"{name}: {megabytes:.1f} MB")


# %% [markdown]
# Rank 0 sends a million numbers, 4 MB, to rank 1, and then to rank 2. Through which network does each message travel?

# %%
# %%px
x = torch.ones(1_000_000)


def send(receiver):
    if rank == 0:
        dist.send(x, receiver)
    if rank == receiver:
        dist.recv(x, 0)


traffic(lambda: send(1))

# %%
# %%px
traffic(lambda: send(2))

# %% [markdown]
# Now an all-reduce of these 4 MB. The ranks form a ring, 0 to 1 to 2 to 3 and back to 0, and each sends 6 MB in all to its right neighbour.
# How much leaves each node?

# %%
# %%px
traffic(lambda: dist.all_reduce(x))

# %% [markdown]
# Only two of the ring's four connections lead from node to node, so 6 MB leave each node and 6 MB stay within it. (If ranks 0 and 2 were on
# one node, and 1 and 3 on the other, all four would lead from node to node. Where all is on one host, everything goes through `lo`.) Why 6? In a ring, each of N ranks sends 2 (N - 1) / N times the
# data: that formula comes back in the section on a slow network.

# %%
ranks.stop()

# %% [markdown]
# ## What several nodes add to the script
#
# | | PyTorch | Chainer |
# |---|---|---|
# | the ranks find each other | `MASTER_ADDR`, `MASTER_PORT`, `dist.init_process_group` | `create_communicator(name)` |
# | its GPU | `LOCAL_RANK` | `comm.intra_rank` |
# | its shard | `DistributedSampler`: every rank reads all data | `scatter_dataset`: rank 0 sends the parts |
# | the mean of the gradients | `DistributedDataParallel` | `create_multi_node_optimizer` |
# | evaluation on all ranks | `dist.all_reduce` of the sums | `create_multi_node_evaluator` |
#
# In `02_multi_gpu`, the PyTorch script started its processes itself. On several nodes a *launcher* does it: `mpiexec` or `torchrun`. torchrun
# sets `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` for each process. Under `mpiexec`, `options.parse` sets the same
# variables, from those of MPI. So the same script runs under both, and `dist.init_process_group` needs nothing else.
#
# All ranks run the same script; only rank 0 prints and writes files. What would the output look like otherwise? (Four times the same
# table, line by line, in any order.)

# %% [markdown]
# ## Evaluation on all ranks
#
# In `02_multi_gpu`, rank 0 evaluated the whole test set while the other waited. Now every rank takes a part, and the parts are put together.
# If their sizes differ, the mean of the ranks' accuracies is *not* the accuracy: 1 of 1 and 1 of 3 images make 2 of 4.


# %%
def total_accuracy(correct, images):
    """The accuracy on the whole test set.

    correct: how many images each rank got right; images: how many it had.
    """
    ### BEGIN SOLUTION total_accuracy:
    ### return the accuracy; `correct` and `images` are lists with a number for each rank
    return sum(correct) / sum(images)
    ### END SOLUTION


# %%
print(total_accuracy([1, 1], [1, 3]), "should be 0.5")

# %%
check("multi_node", "total_accuracy")

# %% [markdown]
# ## The same by MPI
#
# Here you had the numbers of all ranks in two lists. In reality each rank knows only its own, and they must be sent. That is what MPI
# is for. A *communicator* such as `MPI.COMM_WORLD` stands for all ranks; on each of them:
#
# | call | returns |
# |---|---|
# | `comm.rank`, `comm.size` | this rank's number; how many ranks there are |
# | `comm.allreduce(number)` | the sum over all ranks, on every rank |
# | `comm.allgather(thing)` | a list of all ranks' things, on every rank |
# | `comm.gather(thing)` | that list on rank 0, `None` on the others |
# | `comm.bcast(thing)` | rank 0's thing, on every rank |
#
# Every rank has to make these calls, in the same order, or they wait for ever. (In the script, after 10 seconds each rank that still waits
# writes where it is, and ends.)
#
# Fill the gap in `mpi_accuracy.py`. What will each of four ranks print?

# %%
# !cd {FOLDER} && mpiexec -n 4 python -m mpi4py mpi_accuracy.py

# %%
check("multi_node", "mpi_accuracy.py")

# %% [markdown]
# ## The scripts
#
# Fill the gaps of the training script, and those of the job script:
#
# - `select=2`: two nodes (*chunks*, as PBS calls them)
# - `ngpus=2`: the GPUs of each
# - `mpiprocs=2`: the MPI processes on each
# - `ompthreads=1`: the threads of each process
# - `place=scatter`: each chunk on a node of its own; else PBS may put two chunks on one node that has room for both
#
# In the Chainer script, only rank 0 has the data: on the other ranks `train_set` and `test_set` are `None`, until `scatter_dataset` has sent
# each rank its part. In the PyTorch script, every rank reads the data and takes its own part of them.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" {TRACK}/*.py *.sh

# %%
check("multi_node", "train_cifar_multi_node.py", "run_multi_node_training.sh", track=TRACK)

# %% [markdown]
# ## Run it
#
# First a prediction. Think of what four workers need, and of what this machine has: on two cores, four virtual GPUs share them.

# %%
# Which efficiency will four workers reach here, as a part of 1?
### BEGIN SOLUTION prediction_efficiency: write `prediction_efficiency = ` and your number
prediction_efficiency = 0.4
### END SOLUTION
print(f"I expect four workers to be {4 * prediction_efficiency:.2f} times as fast as one.")

# %% [markdown]
# In a terminal: `cd exercises/03_multi_node` and `qsub -j oe run_multi_node_training.sh`.

# %%
from handson.cluster.follow import follow, submit

job = submit(FOLDER, "-j", "oe", "run_multi_node_training.sh", TRACK=TRACK, OPTIONS=OPTIONS)
follow(job)

# %%
from handson.notebook import runs
from handson.training.results import read

four = runs.of_job(FOLDER, job)
runs.show(four)

# %%
check("multi_node", "prediction_efficiency")

# %% [markdown]
# ## The scaling table
#
# Your runs on one, two and four workers under the same conditions belong together. If one is missing, it is made now.

# %%
runs.of_one_worker(four, EXERCISES, OPTIONS)
if not [run for run in runs.like(four, EXERCISES) if run.workers == 2]:
    folder = f"{EXERCISES}/02_multi_gpu"
    follow(submit(folder, "-j", "oe", "run_multi_gpu_training.sh", TRACK=TRACK, OPTIONS=OPTIONS))

# %%
from handson import compare

results = runs.like(four, EXERCISES)
throughputs = {row.workers: row.throughput for row in compare.table(results)}
print({workers: round(rate, 1) for workers, rate in throughputs.items()}, "images/s")

# %% [markdown]
# The lecture reports 51.1, 87.6 and 172.1 images/s on 1, 2 and 4 GPUs: speed-ups of 1.71 and 3.37, efficiencies of 0.857 and 0.842.
# Make such a table of yours.


# %%
def scaling(throughputs):
    """Rows [workers, images/s, speed-up, efficiency], by the number of workers.

    throughputs: workers -> images/s, with 1 worker among them.
    """
    ### BEGIN SOLUTION scaling: return a list of such rows; both are against 1 worker
    rows = []
    for workers, rate in sorted(throughputs.items()):
        speed_up = rate / throughputs[1]
        rows.append([workers, rate, speed_up, speed_up / workers])
    return rows
    ### END SOLUTION


# %%
print("workers  images/s  speed-up  efficiency")
for workers, rate, speed_up, efficiency in scaling(throughputs):
    print(f"{workers:7}  {rate:8.1f}  {speed_up:8.2f}  {efficiency:10.3f}")
print("predicted efficiency of 4 workers:", prediction_efficiency)

# %%
for line in compare.remarks(results):
    print(line)
compare.picture(results, {4: 4 * prediction_efficiency})

# %% [markdown]
# On two cores, two workers can be twice as fast as one, and four workers not faster than that: the dotted line. So an efficiency below 0.5
# with four workers says nothing bad about your script, only that there are two cores; 0.35 to 0.45 is usual there. If you have a core or
# a GPU for each worker and are still below 0.7, the network or the slowest rank is what to look at.
#
# A row with several runs has their median; the number behind ± is how much they differ. A cross marks a run during which other programs took
# much of the machine: repeat it, and delete its folder in `results/`.

# %%
check("multi_node", "scaling")

# %% [markdown]
# ## \* Where did the efficiency go?
#
# Profiles of one worker and of four show it, as in `02_multi_gpu`. What takes the place of what was largest there, when four workers share the
# cores, and a network lies between them?

# %%
from handson.notebook import profiled_runs

recorded = {"TRACK": TRACK, "OPTIONS": f"{OPTIONS} --epoch 1"}
single = profiled_runs.of_one_worker(EXERCISES, **recorded)
several = profiled_runs.of_job(FOLDER, profiled_runs.start(FOLDER, "run_multi_node_profile.sh", **recorded))
profiled_runs.explained(single, several)

# %% [markdown]
# With four workers on two cores, each operator takes about twice as long: contention. With a core or a GPU for each, communication and
# imbalance remain.
#
# How many GPUs should one take? More give the result sooner, but each is used worse. A computing centre may ask that an efficiency is
# kept. Read from a table how many workers that allows.


# %%
def most_workers(table, least):
    """The largest number of workers whose efficiency is at least `least`.

    table: what `scaling` returns, rows [workers, images/s, speed-up, efficiency].
    """
    ### BEGIN SOLUTION most_workers: return a number of workers
    return max(workers for workers, _, _, efficiency in table if efficiency >= least)
    ### END SOLUTION


# %%
lecture = scaling({1: 51.1, 2: 87.6, 4: 172.1})
for least in (0.95, 0.85, 0.8):
    most = most_workers(lecture, least), most_workers(scaling(throughputs), least)
    print(f"efficiency {least}, most workers: {most[0]} in the lecture, {most[1]} here")

# %%
check("multi_node", "most_workers")

# %% [markdown]
# ## \* A slow network
#
# Virtual nodes have a network of their own, which can be slowed down. In a ring all-reduce, each of N ranks sends
# 2 (N - 1) / N times the size of the gradients, and each number takes 4 bytes. How long does that take?


# %%
def allreduce_seconds(parameters, workers, megabits):
    """The seconds of a ring all-reduce, with a gradient for each of `parameters`.

    megabits: what a rank can send, in Mbit/s.
    """
    ### BEGIN SOLUTION allreduce_seconds:
    ### return the seconds; a byte has 8 bits, and Mbit/s are a million bits a second
    sent = 2 * (workers - 1) / workers * 4 * parameters
    return 8 * sent / (megabits * 1e6)
    ### END SOLUTION


# %%
PARAMETERS = 71_706
for megabits in (10_000, 1_000, 100, 20):
    print(f"{megabits:6} Mbit/s: {1000 * allreduce_seconds(PARAMETERS, 4, megabits):7.2f} ms")

# %% [markdown]
# Compare that with the time of a step. At which rate does the network matter? The next cell trains for an epoch at three rates. Between
# real nodes, the network is as fast as it is: there, the cell measures it, and trains a small and a large network.

# %%
from handson.cluster import slow_network
from handson.notebook import measured_network

rates = ("none", "100mbit", "20mbit")
models = {}
if why := slow_network.why_not():
    rates = ()
    print("The network can't be slowed down here:", why)
if slow_network.between_real_nodes():
    measured_megabits = measured_network.megabits(FOLDER)
    models = measured_network.of_models(FOLDER, TRACK, ("convnet", "resnet50"))
for rate in rates:
    variables = {"TRACK": TRACK, "OPTIONS": f"{OPTIONS} -e 1 -o results/slow/{rate}", "HANDSON_NETWORK": rate}
    print(f"\nNetwork: {rate}")
    follow(submit(FOLDER, "-j", "oe", "run_multi_node_training.sh", **variables))

# %% [markdown]
# The marks are what your function predicts from the run at full speed (between real nodes: from the run on one node, whose ranks need no
# network), if nothing is computed during the all-reduce.

# %%
from handson import figures

measured, predicted = {}, {}
for rate in rates:
    run = read(f"{FOLDER}/results/slow/{rate}")
    measured[rate] = run.images / run.train_seconds
    if rate != "none":
        step = 4 * run.batchsize / measured["none"]
        megabits = int(rate.removesuffix("mbit"))
        slow_step = step + allreduce_seconds(PARAMETERS, 4, megabits)
        predicted[rate] = 4 * run.batchsize / slow_step
for model, (step, throughput) in models.items():
    parameters = {"convnet": PARAMETERS, "resnet50": 23_528_522}[model]
    slow_step = step + allreduce_seconds(parameters, 4, measured_megabits)
    measured[model], predicted[model] = throughput, 4 * 32 / slow_step
figures.bar_chart(measured, "throughput of four workers [images/s]", predicted) if measured else None

# %% [markdown]
# The measured throughput is mostly below the mark, since the formula counts bytes alone. It leaves out that every message has a delay, that the
# ranks of a step don't begin to send at the same moment, and that a slow line loses packets when its queue is full: TCP then waits, up to
# 0.2 s, before it sends them again. So the formula gives the best case and the order of magnitude. If your bars are *above* the marks,
# the all-reduce is hidden behind the backward pass.

# %%
check("multi_node", "allreduce_seconds")

# %% [markdown]
# ## \* From an empty file
#
# Until now the process group, the training loop and the start were given. Now write them yourself: `from_scratch.py` describes at its top what
# it should do, and has no line of it. You need from PyTorch: `dist.init_process_group`, `DistributedSampler`, `DataLoader`,
# `DistributedDataParallel` and an optimizer. The PyTorch script of this unit shows all of them.
#
# `torchrun` starts it. It needs no MPI and no job: it starts the processes of this node, and sets the variables that tell each process its
# rank and where the ranks meet (the *rendezvous*). In a job on several nodes, it is started once on each; `docs/launching.md` has the lines.
#
# (On a machine with a single GPU, two ranks cannot have one each: put `HANDSON_DEVICE=cpu` before both `torchrun`, and they use cores.)

# %%
# !cd {FOLDER} && OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 1 from_scratch.py
# !cd {FOLDER} && OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 from_scratch.py

# %% [markdown]
# Two runs of a few seconds: don't be surprised by a speed-up that is worse than that of your jobs. The images are small here (64 pixels), so a
# step is short, and what each step costs anew weighs more.
#
# # For the fast
#
# Nothing below, up to the check, has points.

# %%
check("multi_node", "from_scratch.py")

# %% [markdown]
# ## One node
#
# The multi-node script also runs on one node with two GPUs, as the multi-GPU script does. Which will be faster there?

# %%
from pathlib import Path

select = "select=1:ngpus=2:mpiprocs=2:ompthreads=1"
variables = {"TRACK": TRACK, "OPTIONS": f"{OPTIONS} -o results/fast/one_node"}
follow(submit(FOLDER, "-l", select, "-j", "oe", "run_multi_node_training.sh", **variables))

# %%
one_by_two = read(f"{FOLDER}/results/fast/one_node").throughput
names = {"multi-GPU script": throughputs[2], "multi-node script, 1 x 2": one_by_two}
figures.bar_chart(names, "throughput of two workers [images/s]")

# %% [markdown]
# The two differ little, because the gradients take the same way within a node. The multi-node script also adds up the evaluation of all ranks,
# which costs a message once an epoch; in return, the ranks share the work of the evaluation.
#
# ## Communicators
#
# ChainerMN's `create_communicator` knows several ways to bring gradients together: `naive`, `flat`, `hierarchical`, `two_dimensional`,
# `single_node`, `non_cuda_aware`, `pure_nccl`. Most need GPUs; the first line of a job's output says which one runs instead. What helps on a
# slow network: gradients as *float16* (half the bytes), and *double buffering* (communicate the last gradients while computing the next).
#
# Which will be fastest on the slowest of the networks above? (This needs the script of the Chainer track.)

# %%
variants = {
    "hierarchical": "--communicator hierarchical",
    "float16": "--communicator hierarchical --allreduce-grad-dtype float16",
    "float16, double buffering": "--allreduce-grad-dtype float16 --double-buffering",
}
script = Path(FOLDER, "chainer/train_cifar_multi_node.py").read_text()
if "raise NotImplementedError" in script:
    variants = {}
    print("Nothing to compare yet: the Chainer script is still to be filled.")
slowest = rates[-1] if rates else "none"
for number, option in enumerate(variants.values()):
    variables = {"TRACK": "chainer", "OPTIONS": f"{OPTIONS} -e 1 {option} -o results/fast/{number}"}
    print(f"\n{option}")
    follow(submit(FOLDER, "-j", "oe", "run_multi_node_training.sh", **variables, HANDSON_NETWORK=slowest))

# %%
found = [read(f"{FOLDER}/results/fast/{number}") for number in range(len(variants))]
names = {name: run.images / run.train_seconds for name, run in zip(variants, found)}
figures.bar_chart(names, "throughput of four workers [images/s]") if variants else None

# %% [markdown]
# Where the network is what limits, double buffering gains most: the all-reduce then costs nothing as long as it is shorter than the computation.
# But each update uses gradients that are one step old, which can cost accuracy.
#
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("multi_node")

# %% [markdown]
# ## What you can do now
#
# - Run a training on several nodes by MPI or `torchrun`, and let each rank use its own GPU.
# - Make a scaling table, name its limit, and decide how many GPUs are worth it.
# - Estimate from the number of parameters what a network costs in each step.
# - Write a data-parallel training from an empty file.
#
# Go on with the next notebook; the file browser on the left has them in order.
