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
# Train on two nodes with two GPUs each. MPI starts the processes on several nodes, and their gradients travel through a
# network.
#
# **In about 60 minutes you will**
#
# - distinguish rank, intra_rank and inter_rank, and exchange numbers between ranks with MPI,
# - train on two nodes, and make the scaling table of your own runs,
# - predict how a slow network changes the throughput, and measure it,
# - write a data-parallel training script from an empty file.
#
# (Do you have only one hour for the course? Skip the sections with a star (\*).) The [glossary](../docs/glossary.md)
# explains words that are new to you.

# %%
# Device: a GPU if there is one. To use cores instead, first run `%env HANDSON_DEVICE=cpu` in a cell above.
TRACK = "pytorch"  # or "chainer"
OPTIONS = ""  # of the training scripts, such as "--epoch 2 --batchsize 16 --model convnet"
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/03_multi_node"

# %% [markdown]
# ## Ranks
#
# `mpiexec -n 4` starts four processes and gives each process a number: its **rank**. The number of a process on its own
# node is the **intra_rank**. The number of its node is the **inter_rank**. These are ChainerMN's names. In PyTorch,
# each process reads these numbers from environment variables: `RANK`, `LOCAL_RANK` (the intra_rank), and `WORLD_SIZE`
# (the number of ranks).

# %%
from handson.notebook import drawings

drawings.nodes(2, per_node=2)

# %% [markdown]
# Which of these numbers selects the GPU of a process? On each node, the GPUs are counted from 0.


# %%
def intra_rank(rank, per_node):
    """Return the number of a rank on its node; every node has `per_node` ranks."""
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
# ## \* Who communicates with whom, over which network
#
# Start four ranks in this notebook, as in `00_start`. Which of them are on the second node, and what are their local
# ranks? (The ranks use PyTorch in both tracks. `ranks(4, "chainer")` would define ChainerMN's communicator `comm`,
# which has `comm.intra_rank`.)

# %%
import handson.notebook

ranks = handson.notebook.ranks(4)

# %%
# %%px
import socket

print(f"local rank {local_rank} on {socket.gethostname()}")

# %% [markdown]
# Ranks on the same node communicate through the *loopback* network `lo`, which does not leave the node. Ranks on
# different nodes need a real network. Between virtual nodes, this network is called `eth0`. The function below measures
# how many bytes a node sends through each network while its ranks communicate.

# %%
# %%px
import psutil


def traffic(communicate):
    """Print how many MB this node sends through each of its networks."""
    before = psutil.net_io_counters(pernic=True)
    dist.barrier()
    communicate()
    dist.barrier()
    for name, after in psutil.net_io_counters(pernic=True).items():
        megabytes = (after.bytes_sent - before[name].bytes_sent) / 1e6
        if megabytes > 0.5:
            print(f"{name}: {megabytes:.1f} MB")


# %% [markdown]
# Rank 0 sends a million numbers, which are 4 MB, first to rank 1, and then to rank 2. Through which network does each
# message travel?

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
# The next cell runs an all-reduce of these 4 MB. The ranks form a ring: 0 to 1 to 2 to 3, and back to 0. Each rank
# sends 6 MB in total to its right neighbour. How many bytes leave each node?

# %%
# %%px
traffic(lambda: dist.all_reduce(x))

# %% [markdown]
# Two of the four connections of the ring lead from one node to the other. So 6 MB leave each node, and 6 MB stay within
# it. (If ranks 0 and 2 were on one node, and ranks 1 and 3 on the other, all four connections would lead from node to
# node. If all ranks are on one host, everything goes through `lo`.)
#
# Why does each rank send 6 MB? In a ring, each of N ranks sends 2 (N - 1) / N times the size of the data. You will use
# this formula in the section on a slow network.

# %%
ranks.stop()

# %% [markdown]
# ## What several nodes add to the script
#
# | | PyTorch | Chainer |
# |---|---|---|
# | the ranks find each other | `MASTER_ADDR`, `MASTER_PORT`, `dist.init_process_group` | `create_communicator(name)` |
# | the GPU of a rank | `LOCAL_RANK` | `comm.intra_rank` |
# | the shard of a rank | `DistributedSampler`: every rank reads all data | `scatter_dataset`: rank 0 sends the shards |
# | the mean of the gradients | `DistributedDataParallel` | `create_multi_node_optimizer` |
# | evaluation on all ranks | `dist.all_reduce` of the sums | `create_multi_node_evaluator` |
#
# In `02_multi_gpu`, the PyTorch script starts its own processes. On several nodes, a *launcher* starts them: `mpiexec`
# or `torchrun`. `torchrun` sets `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` for each process.
# Under `mpiexec`, the course's `options.parse` sets these variables from MPI's own. So the same script runs under both
# launchers, and `dist.init_process_group` needs no other information.
#
# All ranks run the same script, but only rank 0 prints and writes files. What would the output look like if all ranks
# printed? (It would contain the same table four times, with the lines in any order.)

# %% [markdown]
# ## Evaluation on all ranks
#
# In `02_multi_gpu`, rank 0 evaluates the whole test set, and the other rank waits. Here, every rank evaluates a part of
# the test set, and the results are combined. If the parts have different sizes, the mean of the ranks' accuracies is
# *not* the accuracy of the whole test set. For example, if one rank has 1 correct of 1 image, and another rank has 1
# correct of 3 images, the accuracy is 2 of 4.


# %%
def total_accuracy(correct, images):
    """Return the accuracy on the whole test set.

    correct: how many images each rank classified correctly; images: how many images it had.
    """
    ### BEGIN SOLUTION total_accuracy:
    ### return the accuracy; `correct` and `images` are lists with one number for each rank
    return sum(correct) / sum(images)
    ### END SOLUTION


# %%
print(total_accuracy([1, 1], [1, 3]), "should be 0.5")

# %%
check("multi_node", "total_accuracy")

# %% [markdown]
# ## The same with MPI
#
# In the previous section, you had the numbers of all ranks in two lists. In a real run, each rank knows only its own
# numbers, and the ranks must exchange them. MPI does this. A *communicator* such as `MPI.COMM_WORLD` represents all
# ranks. Every rank can use it:
#
# | call | returns |
# |---|---|
# | `comm.rank`, `comm.size` | this rank's number, and the number of ranks |
# | `comm.allreduce(number)` | the sum of all ranks' numbers, on every rank |
# | `comm.allgather(value)` | the list of all ranks' values, on every rank |
# | `comm.gather(thing)` | this list on rank 0, and `None` on the other ranks |
# | `comm.bcast(thing)` | rank 0's thing, on every rank |
#
# All ranks must make these calls in the same order. Otherwise they wait for each other forever. (In this script, a rank
# that still waits after 10 seconds prints its position in the script, and ends.)
#
# Fill in the gap in `mpi_accuracy.py`. What will each of the four ranks print?

# %%
# !cd {FOLDER} && mpiexec -n 4 python -m mpi4py mpi_accuracy.py

# %%
check("multi_node", "mpi_accuracy.py")

# %% [markdown]
# ## The scripts
#
# Fill in the gaps of the training script and of the job script:
#
# - `select=2`: two nodes (PBS calls them *chunks*)
# - `ngpus=2`: two GPUs on each node
# - `mpiprocs=2`: two MPI processes on each node
# - `ompthreads=1`: one thread in each process
# - `place=scatter`: each chunk on a different node; otherwise, PBS may put both chunks on one node
#
# In the Chainer script, only rank 0 reads the data. On the other ranks, `train_set` and `test_set` are `None` until
# `scatter_dataset` has sent each rank its shard. In the PyTorch script, every rank reads all data and uses its own
# shard.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" {TRACK}/*.py *.sh

# %%
check("multi_node", "train_cifar_multi_node.py", "run_multi_node_training.sh", track=TRACK)

# %% [markdown]
# ## Run it
#
# First make a prediction. Think of the cores or GPUs that four workers need, and of those that this machine has. For
# example, on two cores, the four virtual GPUs share these cores.

# %%
# Which efficiency will four workers reach here? (1 is ideal.)
### BEGIN SOLUTION prediction_efficiency: write `prediction_efficiency = ` and your number
prediction_efficiency = 0.4
### END SOLUTION
print(f"I expect four workers to be {4 * prediction_efficiency:.2f} times as fast as one.")

# %% [markdown]
# In a terminal you would type `cd exercises/03_multi_node` and `qsub -j oe run_multi_node_training.sh`.

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
# The table compares your runs with one, two and four workers under the same conditions. If one of these runs is
# missing, the next cell starts it.

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
# The lecture from which this course grew reports 51.1, 87.6 and 172.1 images/s on 1, 2 and 4 GPUs. These are speed-ups
# of 1.71 and 3.37, and efficiencies of 0.857 and 0.842. Make such a table of your own runs. (If you skipped the
# prediction, the figure is drawn without it.)


# %%
def scaling(throughputs):
    """Return rows [workers, images/s, speed-up, efficiency], sorted by the number of workers.

    throughputs: workers -> images/s; one of its keys is 1 worker.
    """
    ### BEGIN SOLUTION scaling:
    ### return a list of such rows; speed-up and efficiency are relative to 1 worker
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
predicted = globals().get("prediction_efficiency")  # None if you skipped it
print("predicted efficiency of 4 workers:", predicted)

# %%
for line in compare.remarks(results):
    print(line)
compare.picture(results, {4: 4 * predicted} if predicted else None)

# %% [markdown]
# On two cores, two workers can be twice as fast as one, but four workers cannot be faster than that. The dotted line
# shows this limit. So an efficiency below 0.5 with four workers does not mean that your script is wrong. It means that
# there are only two cores, on which 0.35 to 0.45 is usual. (Four workers that share one GPU are hardly faster than one:
# their efficiency is near 0.25.) If you have a core or a GPU for each worker and your efficiency is still below 0.7,
# look at the network and at the slowest rank.
#
# If there are several runs with the same number of workers, the row shows their median. The number after ± shows how
# much the runs differ. A cross marks a run during which other programs used a large part of the machine. Repeat such a
# run, and delete its folder in `results/`.

# %%
check("multi_node", "scaling")

# %% [markdown]
# ## \* Where did the efficiency go?
#
# Profiles of one worker and of four workers show this, as in `02_multi_gpu`. Which cause was the largest there? Which
# cause will be the largest now, when four workers share the cores and communicate over a network?

# %%
from handson.notebook import profiled_runs

recorded = {"TRACK": TRACK, "OPTIONS": f"{OPTIONS} --epoch 1"}
single = profiled_runs.of_one_worker(EXERCISES, **recorded)
several = profiled_runs.of_job(FOLDER, profiled_runs.start(FOLDER, "run_multi_node_profile.sh", **recorded))
profiled_runs.explained(single, several)

# %% [markdown]
# If four workers share two cores, each operator takes up to twice as long: this contention is then the largest cause.
# If each worker has its own core or GPU, the other causes are usually larger than contention.
#
# How many GPUs should you use? With more GPUs you have the result sooner, but you use each GPU less efficiently. A
# computing centre may require a minimum efficiency. Read from a table how many workers such a minimum allows.


# %%
def most_workers(table, least):
    """Return the largest number of workers whose efficiency is at least `least`.

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
# Virtual nodes have their own network, and this network can be slowed down. In a ring all-reduce, each of N ranks sends
# 2 (N - 1) / N times the size of the gradients, and each number takes 4 bytes. How long does this take?


# %%
def allreduce_seconds(parameters, workers, megabits):
    """Return the seconds that a ring all-reduce takes, with a gradient for each of `parameters`.

    megabits: the rate at which a rank can send, in Mbit/s.
    """
    ### BEGIN SOLUTION allreduce_seconds:
    ### return the seconds; a byte has 8 bits, and 1 Mbit/s is a million bits per second
    sent = 2 * (workers - 1) / workers * 4 * parameters
    return 8 * sent / (megabits * 1e6)
    ### END SOLUTION


# %%
PARAMETERS = 71_706
for megabits in (10_000, 1_000, 100, 20):
    print(f"{megabits:6} Mbit/s: {1000 * allreduce_seconds(PARAMETERS, 4, megabits):7.2f} ms")

# %% [markdown]
# Compare these times with the time of a step. At which rate does the network matter? The next cell trains `convnet` for
# one epoch at each of three rates. A network between real nodes cannot be slowed down. There, the cell measures the
# rate of the network, and trains a small and a large neural network.

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
    variables = {"TRACK": TRACK, "HANDSON_NETWORK": rate}
    variables["OPTIONS"] = f"{OPTIONS} --model convnet -e 1 -o results/slow/{rate}"
    print(f"\nNetwork: {rate}")
    follow(submit(FOLDER, "-j", "oe", "run_multi_node_training.sh", **variables))

# %% [markdown]
# In the next figure, the marks are the predictions of your function. They take the time of a step from the run at full
# speed, add your time of an all-reduce, and assume that nothing is computed during the all-reduce. (Between real nodes,
# they start from the run on one node, whose ranks need no network.)

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
label = "throughput of four workers, without the evaluation [images/s]"
figures.bar_chart(measured, label, predicted) if measured else None

# %% [markdown]
# The formula gives the order of magnitude, because it only counts bytes. Three things make the measured throughput
# lower. Every message has a latency. The ranks do not start to send at the same moment. A slow link loses packets when
# its queue is full, and TCP then waits up to 0.2 s before it sends them again. Two things make it higher. A part of the
# all-reduce can run during the backward pass. And if several ranks share a core, a rank can compute while another rank
# waits for the network. At 20 Mbit/s, the bar is usually below its mark. At 100 Mbit/s, it can be above or below.

# %%
check("multi_node", "allreduce_seconds")

# %% [markdown]
# ## \* From an empty file
#
# In the earlier scripts, the process group, the training loop and the start were given. Now write them yourself. The
# text at the top of `from_scratch.py` describes the task, and the script has no code for it yet. You need these parts
# of PyTorch: `dist.init_process_group`, `DistributedSampler`, `DataLoader`, `DistributedDataParallel`, and an
# optimizer. The PyTorch script of this unit uses all of them.
#
# `torchrun` starts the script. It needs neither MPI nor a job. It starts the processes of this node, and sets the
# variables that give each process its rank and the address at which the ranks find each other (the *rendezvous*). In a
# job on several nodes, you start `torchrun` once on each node. `docs/launching.md` has the commands.
#
# (On a machine with a single GPU, the two ranks cannot have one GPU each. Then put `HANDSON_DEVICE=cpu` before both
# `torchrun` commands, and the ranks use cores.)

# %%
# !cd {FOLDER} && OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 1 from_scratch.py
# !cd {FOLDER} && OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 from_scratch.py

# %% [markdown]
# The speed-up is usually lower than that of your jobs. The images are small here (64 pixels): a step takes only some
# milliseconds, and its all-reduce is a large part of it. Other programs also change such short runs more: two ranks can
# be slower than one rank, or seem to be more than twice as fast, if the run of one rank was the disturbed one.

# %%
check("multi_node", "from_scratch.py")

# %% [markdown]
# # Optional experiments
#
# The sections from here to the last check have no points.
#
# ## One node
#
# The multi-node script also runs on one node with two GPUs, like the multi-GPU script. Which of the two scripts will be
# faster there?

# %%
from pathlib import Path

multi_gpu = f"{EXERCISES}/02_multi_gpu"
select = "select=1:ngpus=2:mpiprocs=2:ompthreads=1"
variables = {"TRACK": TRACK, "OPTIONS": f"{OPTIONS} -o results/fast/one_node"}
follow(submit(multi_gpu, "-j", "oe", "run_multi_gpu_training.sh", **variables))
follow(submit(FOLDER, "-l", select, "-j", "oe", "run_multi_node_training.sh", **variables))

# %%
folders = {"multi-GPU script": multi_gpu, "multi-node script, 1 x 2": FOLDER}
names = {name: read(f"{folder}/results/fast/one_node").throughput for name, folder in folders.items()}
figures.bar_chart(names, "throughput of two workers [images/s]")

# %% [markdown]
# Within a node, the gradients of both scripts take the same path. The multi-node script can be some percent faster,
# because its ranks share the work of the evaluation. (It adds up their results, which needs one message per epoch.) But
# two runs of the same script can differ by more than that. A large difference has another cause, such as other programs
# on this machine: run the two cells again.
#
# ## Communicators
#
# ChainerMN's `create_communicator` supports several ways to average gradients: `naive`, `flat`, `hierarchical`,
# `two_dimensional`, `single_node`, `non_cuda_aware`, `pure_nccl`. Most of them need GPUs. If the chosen one cannot run,
# the first line of the job's output names the one that runs instead. Two options help on a slow network: gradients as
# *float16* (half the bytes), and *double buffering* (the ranks communicate the last gradients while they compute the
# next ones).
#
# Which combination will be fastest on a network of 10 Mbit/s? (This section needs the script of the Chainer
# track.)

# %%
variants = {
    "hierarchical": "--communicator hierarchical",
    "float16": "--communicator hierarchical --allreduce-grad-dtype float16",
    "float16, double buffering": "--allreduce-grad-dtype float16 --double-buffering",
}
script = Path(FOLDER, "chainer/train_cifar_multi_node.py").read_text()
if "raise NotImplementedError" in script:
    variants = {}
    print("Nothing to compare yet: fill in the gaps of the Chainer script first.")
slow = "10mbit" if rates else "none"
for number, option in enumerate(variants.values()):
    variables = {"TRACK": "chainer", "OPTIONS": f"{OPTIONS} -e 1 {option} -o results/fast/{number}"}
    print(f"\n{option}")
    follow(submit(FOLDER, "-j", "oe", "run_multi_node_training.sh", **variables, HANDSON_NETWORK=slow))

# %%
found = [read(f"{FOLDER}/results/fast/{number}") for number in range(len(variants))]
names = {name: run.images / run.train_seconds for name, run in zip(variants, found)}
figures.bar_chart(names, label) if variants else None

# %% [markdown]
# If the network is the bottleneck, both options together are fastest. float16 halves the bytes. Double buffering hides
# the all-reduce behind the computation: the all-reduce costs no time if it is shorter. But each update uses gradients
# that are one step old, which can reduce the accuracy.
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
# - Train on several nodes with MPI or `torchrun`, so that each rank uses its own GPU.
# - Make a scaling table, name the bottleneck, and decide how many GPUs are worth using.
# - Estimate from the number of parameters how much time a network adds to each step.
# - Write a data-parallel training script from an empty file.
#
# Continue with the next notebook. The file browser on the left lists the notebooks in order.
