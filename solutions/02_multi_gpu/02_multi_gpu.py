# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Two GPUs of one node
#
# Task 1 of the lecture: the same training, on two GPUs at once, a process for each. How much faster is it, why not twice as fast, and
# what becomes of the accuracy?
#
# **In about 60 minutes you will**
#
# - see what a single-GPU script lacks for two GPUs, and fill it in,
# - measure the speed-up and the efficiency, and find out where the missing part went,
# - find the reason why two ranks wait for each other for ever,
# - see what a bigger batch does to the accuracy, and how the learning rate can make up for it.
#
# (One hour for the course? Leave out the sections with a star (\*).) Words that are new to you are in the [glossary](../docs/glossary.md).

# %%
TRACK = "pytorch"  # or "chainer"
OPTIONS = (
    ""  # for the training script, such as "--epoch 2"; on a GPU it trains "--model resnet50" unless told otherwise
)
SIZE = 256  # side of the images in the measurement of steps, in pixels
SEEDS = 4  # repetitions of the experiment with bigger batches
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/02_multi_gpu"

# %% [markdown]
# ## The fourth step
#
# On one GPU, an iteration is forward, backward, optimize. Data parallel training puts an **all-reduce** in between: every GPU does
# forward and backward with images of its own; then all get the mean of their gradients, so that all make the same update.
#
# What would become of the two networks without it? (Each would learn from its own images alone: after the first step they differ, and
# you would have two half-trained networks.)

# %%
from handson.notebook import drawings

drawings.four_steps()

# %% [markdown]
# ## A part of the data for each
#
# Each worker gets a part, a *shard*, of the training set, and goes through it with a loader (in Chainer: an *iterator*) of its own.
# Both tracks cut the data **at random**: Chainer once, before the training, and PyTorch again in each epoch.
#
# Suppose the data set were sorted by class, and cut in the middle instead. Which digits would rank 0 see?

# %%
import torch
from torch.utils.data import random_split

from handson.notebook import multi_gpu
from handson.training import data

labels = data.load("digits")[0].labels
in_order = labels.sort().values.chunk(2)
at_random = [labels[part.indices] for part in random_split(labels, [0.5, 0.5])]
multi_gpu.classes_of_shards({"sorted, cut in the middle": in_order, "cut at random": at_random})

# %% [markdown]
# Cut in the middle, each rank would know half of the digits, and their gradients would pull in different directions. Cut at random, both
# see all classes about equally often.
#
# All ranks must run the same number of steps, because an all-reduce waits for every rank. In PyTorch, a `DistributedSampler` splits the
# images. If the number of ranks does not divide the number of images, how can all ranks get equally many?

# %%
from torch.utils.data import DistributedSampler

for ranks in (2, 4, 7):
    images = len(DistributedSampler(labels, ranks, rank=0))
    repeated = ranks * images - len(labels)
    print(f"{len(labels)} images for {ranks} ranks: {images} each, {repeated} repeated")

# %% [markdown]
# The sampler fills up the last places with the first images of the epoch's order. These images are used twice in this epoch, and count twice
# in the mean. With 7 ranks, they are 5 of 1,505, which changes the mean little, and the next epoch repeats other images. In return, all ranks
# have equally many images in each step. So the mean over the ranks of their mean losses is the mean over all images of the step, and the mean
# of their gradients is the gradient of one big batch. (Ranks with unequal batches would need weights.)
#
# ## \* The mean of the gradients, by hand
#
# Two live ranks, as in `00_start`, this time both on one node. (They are PyTorch's, whichever track you chose.)

# %%
import handson.notebook

ranks = handson.notebook.ranks(2, nodes=1)

# %% [markdown]
# Both ranks make the same network, and each does forward and backward with its own half of the images. Will they print equal gradients?

# %%
# %%px
from torch.nn.functional import cross_entropy

from handson.training import data

digits = data.load("digits")[0]
images, labels = digits.images.flatten(1), digits.labels
mine = slice(rank, None, world_size)  # this rank's shard: every second image

torch.manual_seed(0)  # the same parameters on both ranks
model = torch.nn.Linear(64, 10)
cross_entropy(model(images[mine]), labels[mine]).backward()
print(model.bias.grad[:3])

# %% [markdown]
# Three lines make the step data-parallel:

# %%
# %%px
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
    parameter.grad /= world_size
print(model.bias.grad[:3])

# %% [markdown]
# Is that the gradient of one big batch? Let each rank compute it from all images, and compare.

# %%
# %%px
model.zero_grad()
cross_entropy(model(images), labels).backward()
print(model.bias.grad[:3])

# %% [markdown]
# `DistributedDataParallel` has the three lines in it: its `backward` does not end before the gradients are averaged.

# %%
# %%px
from torch.nn.parallel import DistributedDataParallel

replica = DistributedDataParallel(model)
replica.zero_grad()
cross_entropy(replica(images[mine]), labels[mine]).backward()
print(model.bias.grad[:3])

# %% [markdown]
# Why must all ranks make equally many steps? Give rank 0 one more than rank 1. What will the notebook say after five seconds?

# %%
# %%px
steps = 3 if rank == 0 else 2
for step in range(steps):
    dist.all_reduce(torch.ones(1))

# %% [markdown]
# That was a hang, made on purpose; below you find one in a script. Now let the ranks go: they hold the cores of their job, and your next job
# would wait for these.

# %%
ranks.stop()

# %% [markdown]
# ## What distribution adds to the script
#
# | | PyTorch | Chainer |
# |---|---|---|
# | a process for each GPU | `mp.spawn(worker, ...)` | `MultiprocessParallelUpdater` |
# | the processes find each other | `MASTER_ADDR`, `MASTER_PORT`, `dist.init_process_group` | `MultiprocessParallelUpdater` |
# | its GPU | `args.gpu[rank]` | `devices={"main": 0, "gpu1": 1}` |
# | its shard | `DistributedSampler` | `split_dataset_n_random` |
# | the mean of the gradients | `DistributedDataParallel` | `MultiprocessParallelUpdater` |
#
# The next cell shows the lines of the new script that your single-GPU script doesn't have. How many do you expect?

# %%
SINGLE = f"{EXERCISES}/01_single_gpu/{TRACK}/train_cifar_single_gpu.py"
MULTI = f"{FOLDER}/{TRACK}/train_cifar_multi_gpu.py"
# !diff {SINGLE} {MULTI} | grep "^>" | cut -c 1-100

# %% [markdown]
# Some names in the PyTorch script are new:
#
# - `mp.spawn(worker, arguments, nprocs=2)` starts two processes. Each of them calls `worker(rank, *arguments)` with its number, the **rank**.
# - `dist.init_process_group` makes them a group, which can communicate. Rank 0 listens at the port `MASTER_PORT` of the host `MASTER_ADDR`;
#   the other ranks connect to it. `dist.destroy_process_group` ends the group.
# - `DistributedSampler(train_set, seed=args.seed)` shuffles the images' numbers and gives each rank its part. With the same *seed*, all ranks draw
#   the same random numbers, so they split the data in the same way without sending messages. `sampler.set_epoch(epoch)` tells it the number
#   of the epoch: without this call, every epoch has the same order.
# - `DistributedDataParallel(model)` copies rank 0's parameters to all ranks, and averages the gradients during `backward`. The batch normalisation
#   of each rank uses the images of this rank alone; its *running statistics*, which evaluation uses, are those of rank 0, since
#   `DistributedDataParallel` copies them to all ranks before each forward pass.
#
# Only rank 0 prints, evaluates, and writes the result; the loss and the accuracy on the training set are those of its own images.
#
# Fill the gaps of this script, and of `run_multi_gpu_training.sh`: one node, two GPUs, two processes.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" {TRACK}/*.py *.sh

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("multi_gpu", "train_cifar_multi_gpu.py", "run_multi_gpu_training.sh", track=TRACK)

# %% [markdown]
# ## Run it
#
# In a terminal: `cd exercises/02_multi_gpu` and `qsub -j oe run_multi_gpu_training.sh`. What throughput do you expect?

# %%
from handson.cluster.follow import follow, submit

job = submit(FOLDER, "-j", "oe", "run_multi_gpu_training.sh", TRACK=TRACK, OPTIONS=OPTIONS)
follow(job)

# %%
from handson.notebook import runs

two = runs.of_job(FOLDER, job)
runs.show(two)

# %% [markdown]
# ## Speed-up and efficiency
#
# To compare with: your last run with one worker under the same conditions. If there is none, it is made now.

# %%
one = runs.of_one_worker(two, EXERCISES, OPTIONS)
print(f"1 worker:  {one.throughput:6.1f} images/s")
print(f"2 workers: {two.throughput:6.1f} images/s")

# %% [markdown]
# The **speed-up** says how many times as fast several workers are as one.


# %%
def speed_up(single, several):
    """How many times as fast; `single` and `several` are throughputs in images/s."""
    ### BEGIN SOLUTION speed_up: return the speed-up
    return several / single
    ### END SOLUTION


# %% [markdown]
# The **efficiency** says which part of the ideal speed-up that is. Ideally, N workers are N times as fast.


# %%
def efficiency(single, several, workers):
    """The part of the ideal speed-up that was reached: 1 is all of it. (Measured, it can be more.)"""
    ### BEGIN SOLUTION efficiency:
    ### return the efficiency; `workers` is the number of workers in `several`
    return several / single / workers
    ### END SOLUTION


# %%
print("speed-up:  ", round(speed_up(one.throughput, two.throughput), 2))
print("efficiency:", round(efficiency(one.throughput, two.throughput, 2), 3))
print("(the lecture, on two GPUs: 1.71 and 0.857)")
multi_gpu.speed_up([one, two])

# %% [markdown]
# Was your prediction in `00_start` right? On two cores that do nothing else, 1.6 to 1.8 is usual. If yours is below 1.3, look at what else the
# machine does (`top`), or whether it has two cores at all, and run the job again. (Two workers on one GPU share it: there, about 1 is right.)
# If it is above 2, something slowed down the run with one worker.

# %%
check("multi_gpu", "speed_up", "efficiency")

# %% [markdown]
# ## Why two workers are not twice as fast
#
# The next cell makes 20 steps with one worker, and 20 with two, and notes when each part begins and ends. The figure shows what both
# ranks did in four of the steps.
#
# No rank can leave the all-reduce before the other has come to it. Look for the rank that comes first: what does it do?

# %%
from handson.notebook import measure

single_steps = measure.steps(workers=1, size=SIZE)
steps = measure.steps(workers=2, size=SIZE)
multi_gpu.ranks(steps)

# %% [markdown]
# The rank that comes first waits (the dotted parts). No rank is slower by design here: now this one is late, now the other, because
# a core also does other things. Both lose time whenever one is late.
#
# How long does each rank wait in a step, on average? `arrivals[step, rank]` is the moment, in seconds, when the rank came to the
# all-reduce.


# %%
def waiting(arrivals):
    """The mean seconds that each rank waits in a step for the last one.

    arrivals: a NumPy array with a row for each step, and a column for each rank.
    """
    ### BEGIN SOLUTION waiting: return a list or an array with a number for each rank
    last = arrivals.max(axis=1, keepdims=True)
    return (last - arrivals).mean(axis=0)
    ### END SOLUTION


# %%
for rank, seconds in enumerate(waiting(steps.began("all-reduce"))):
    print(f"rank {rank} waits {1000 * seconds:.1f} ms of {1000 * steps.mean(rank):.1f} ms")

# %% [markdown]
# So a step with two workers is longer than one with a single worker: by waiting, by communication, and, because both share the memory
# of the machine, mostly also by computation.

# %%
multi_gpu.steps_compared(single_steps, steps)

# %% [markdown]
# One more thing kept your job from a speed-up of 2: rank 0 alone evaluates the test set, and the other rank waits for it.

# %%
check("multi_gpu", "waiting")

# %% [markdown]
# ## A hang
#
# A collective such as the all-reduce ends when *all* ranks have called it. If one never calls it, the others wait: a **deadlock**.
# For a long time nothing is printed: NCCL gives up after 10 minutes, gloo after 30, and MPI never.
#
# `hanging.py` has one. Read it: which line will rank 0 never leave, and which line rank 1? Then start it, with `torchrun`, which starts as many
# processes as you ask for, and gives each a rank. After 10 seconds each rank writes where it is (by Python's `faulthandler`), and ends.

# %%
command = "OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 hanging.py"
# !cd {FOLDER} && mkdir -p results && {command} 2> results/torchrun.log
# !cd {FOLDER}/results && grep "line" stack_of_rank_0.txt
# !cd {FOLDER}/results && grep "line" stack_of_rank_1.txt

# %% [markdown]
# The innermost function comes first: rank 0 is in `all_reduce`, rank 1 in `barrier`. Both are collectives, and both ranks wait for the other.
# (Nothing is listed? Then your script does not hang any more.)
#
# More tools, for the day when it is your own job that hangs:
#
# - `TORCH_DISTRIBUTED_DEBUG=DETAIL` lets PyTorch compare the collectives of all ranks, and say which differ: see the next cell.
# - On real GPUs, NCCL's *flight recorder* keeps the last collectives of each rank, and writes them to files at a time-out: set
#   `TORCH_FR_BUFFER_SIZE=2000` and `TORCH_NCCL_DUMP_ON_TIMEOUT=1`.
# - `py-spy dump --pid PID` shows the stack of a process that runs already, on its node (`pip install py-spy`).
# - `python -m handson doctor` in a job finds out whether the ranks can reach each other at all.
#
# The course's own training scripts have a limit: after two minutes without a finished step (`--patience`) they end, and say where each rank was.

# %%
# !cd {FOLDER} && TORCH_DISTRIBUTED_DEBUG=DETAIL {command} 2>&1 | grep -o "mean losses.*\|Rank . is running collective: [^)]*OpType=[A-Z_]*"

# %% [markdown]
# Fix `report` in `exercises/02_multi_gpu/hanging.py`, save it, and run the first of the two cells again: it should print the mean losses, 2.5, 1.5
# and about 1.17. The check runs it with three ranks, too: some calls give these numbers with two ranks alone, or by chance.

# %%
check("multi_gpu", "hanging.py")

# %% [markdown]
# ## \* Where the efficiency went
#
# A *profile* of a training says more than 20 steps of ours: it is recorded while your own scripts run. From one with one worker and one
# with two, `handson explain` splits what is lost into communication that nothing hides, imbalance (a rank waits for another), what
# each step costs anew, and contention (two share the memory and the cores of one machine). Which will be the largest here?

# %%
from handson.notebook import profiled_runs

variables = {"TRACK": TRACK, "OPTIONS": f"{OPTIONS} --epoch 1 --size {SIZE}"}
single = profiled_runs.of_one_worker(EXERCISES, **variables)
double = profiled_runs.of_job(FOLDER, profiled_runs.start(FOLDER, "run_multi_gpu_profile.sh", **variables))
profiled_runs.explained(single, double)

# %% [markdown]
# On two cores of one machine, contention is mostly the largest: both share the memory, so the same operators take longer. If the machine is busy
# with something else, imbalance grows: whichever rank is disturbed, the other waits for it. On two GPUs, communication comes first. Repeat
# the cell before you believe small differences. You will read such profiles in `04_profiling`.
#
# ## \* What the bigger batch does
#
# Each of N workers takes 32 images, so an update is made from N x 32: the *total* batch is bigger, and there are fewer updates in an
# epoch. Both tracks make an update from the last images of an epoch, too, even if they are fewer.


# %%
def updates(images, batchsize, workers, epochs):
    """How often the parameters are updated in `epochs` epochs; `batchsize` is that of each worker."""
    ### BEGIN SOLUTION updates:
    ### return a whole number; in each epoch, the last update may have fewer images
    total = batchsize * workers
    return -(-images // total) * epochs
    ### END SOLUTION


# %%
for workers in (1, 2, 4, 8):
    print(f"{workers} x 32 images:", updates(1500, 32, workers, epochs=6), "updates in 6 epochs")

# %% [markdown]
# Now an experiment with small images (16 pixels), after a figure in [Train longer, generalize better](https://arxiv.org/abs/1705.08741):
# the batch of 8 workers, at first for as many *epochs* as with one worker, then for as many *updates*.
#
# (The next but one cell trains 12 networks: a minute or two. A bar shows how far it is.)
#
# After 6 epochs, the single worker misreads about 9 % of the test images. And 8 workers after 6 epochs?

# %%
# Which part of the test images do 8 workers misread after 6 epochs, in percent?
### BEGIN SOLUTION prediction_error: write `prediction_error = ` and your number, from 0 to 100
prediction_error = 25
### END SOLUTION
print(f"I expect 8 workers to misread {prediction_error} % of the test images.")

# %%
from handson.notebook.multi_gpu import Plan

RATE = 0.002  # the learning rate, for now the same for all
equal_epochs = updates(1500, 32, 8, epochs=6)
equal_updates = updates(1500, 32, 1, epochs=6)
plans = {
    "1 worker": Plan(32, [RATE] * equal_updates),
    "8 workers, equal epochs": Plan(256, [RATE] * equal_epochs),
    "8 workers, equal updates": Plan(256, [RATE] * equal_updates),
}
curves = multi_gpu.train(plans, SEEDS)
multi_gpu.equal_epochs_and_updates(curves, prediction_error)

# %% [markdown]
# The line is the mean of several runs with other seeds, the band reaches from the best to the worst.
#
# With equal updates, the bigger batch is as good as the small one, or better: it has seen eight times as many images. But then
# nothing was gained in time. With equal epochs, it has simply not gone far enough.

# %%
check("multi_gpu", "updates", "prediction_error")

# %% [markdown]
# ## \* Longer steps
#
# The remedy of [Accurate, large minibatch SGD](https://arxiv.org/abs/1706.02677): with N times the batch, take N times the learning
# rate, since each update stands for N small ones. Rates so high can do harm in the first updates; so begin with the old rate and let
# it rise in a straight line: a **warm-up**.


# %%
def learning_rate(update, base, workers, warmup):
    """The learning rate of update number `update`, counted from 0.

    It rises in a straight line from `base` in update 0 to `workers` times `base`
    in update `warmup`, and stays there.
    """
    ### BEGIN SOLUTION learning_rate: return the rate; mind what comes after the warm-up
    progress = min(1, update / warmup)
    return base * (1 + (workers - 1) * progress)
    ### END SOLUTION


# %% [markdown]
# What will be better after 6 epochs: the rate as it was, 8 times the rate at once, or with a warm-up of one epoch?

# %%
warmup = updates(1500, 32, 8, epochs=1)
rising = [learning_rate(update, RATE, 8, warmup) for update in range(equal_epochs)]
plans = {"8 workers, 8 x rate": Plan(256, [8 * RATE] * equal_epochs), "8 workers, with warm-up": Plan(256, rising)}
same_rate = {"1 worker": curves["1 worker"], "8 workers, same rate": curves["8 workers, equal epochs"]}
multi_gpu.rates_and_errors(same_rate | multi_gpu.train(plans, SEEDS))

# %% [markdown]
# The scaled rate makes up for most of what the bigger batch has lost. Whether the warm-up helps, too, depends on the rate: try
# `RATE = 0.004`, and run the last cells again. (There is a limit: with 8 x 0.02, no warm-up saves it.)
#
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("multi_gpu")

# %% [markdown]
# ## What you can do now
#
# - Turn a single-GPU script into one for all GPUs of a node: processes, shards, the mean of the gradients.
# - Measure speed-up and efficiency, and name what limits them: waiting, communication, shared memory, shared cores.
# - Find out where the ranks of a job that hangs are waiting.
# - Say what the bigger batch of N workers does to the accuracy, and what linear scaling and a warm-up are for.
#
# Go on with the next notebook; the file browser on the left has them in order.
