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
# Train the same network on two GPUs at once, with one process for each GPU. How much faster is this, why is it not
# twice as fast, and how does the accuracy change?
#
# **In about 60 minutes you will**
#
# - find out what a single-GPU script lacks for two GPUs, and fill it in,
# - measure the speed-up and the efficiency, and find out what reduces them,
# - find out why two ranks wait for each other forever,
# - see how a bigger batch changes the accuracy, and how the learning rate can compensate for this.
#
# (Do you have only one hour for the course? Skip the sections with a star (\*).) The [glossary](../docs/glossary.md)
# explains words that are new to you.

# %%
# Device: a GPU if there is one. To use cores instead, first run `%env HANDSON_DEVICE=cpu` in a cell above.
TRACK = "pytorch"  # or "chainer"
OPTIONS = ""  # of the training scripts, such as "--epoch 2 --batchsize 16 --model convnet"
SIZE = 256  # side of the images in the measurement of steps, in pixels
SEEDS = 4  # repetitions of the experiment with bigger batches
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/02_multi_gpu"

# %% [markdown]
# ## The fourth step
#
# On one GPU, an iteration is forward, backward, optimize. Data parallel training adds an **all-reduce** before
# optimize. Every GPU runs forward and backward with its own images. Then every GPU receives the mean of all gradients,
# so all GPUs make the same update.
#
# What would happen to the two networks without the all-reduce? (Each network would learn only from its own images.
# After the first step the networks would differ, and you would have two half-trained networks.)

# %%
from handson.notebook import drawings

drawings.four_steps()

# %% [markdown]
# ## A shard of the data for each worker
#
# Each worker receives its own part of the training set, a *shard*. It reads this shard with its own loader (in Chainer:
# an *iterator*). Both tracks split the data **at random**: Chainer once, before the training, and PyTorch again in each
# epoch.
#
# Suppose that the data set were sorted by class and split in the middle. Which digits would rank 0 see?

# %%
import torch
from torch.utils.data import random_split

from handson.notebook import multi_gpu
from handson.training import data

labels = data.load("digits")[0].labels
in_order = labels.sort().values.chunk(2)
at_random = [labels[part.indices] for part in random_split(labels, [0.5, 0.5])]
multi_gpu.classes_of_shards({"sorted, split in the middle": in_order, "split at random": at_random})

# %% [markdown]
# If the sorted data is split in the middle, each rank sees only half of the digits, and the gradients of the two ranks
# point in different directions. If the data is split at random, both ranks see all classes about equally often.
#
# All ranks must run the same number of steps, because an all-reduce waits for every rank. In PyTorch, a
# `DistributedSampler` splits the images. If the images cannot be divided equally among the ranks, how can all ranks
# still get the same number of images?

# %%
from torch.utils.data import DistributedSampler

for ranks in (2, 4, 7):
    images = len(DistributedSampler(labels, ranks, rank=0))
    repeated = ranks * images - len(labels)
    print(f"{len(labels)} images for {ranks} ranks: {images} each, {repeated} repeated")

# %% [markdown]
# The sampler fills the missing places with the first images of the epoch's order. These images are used twice in this
# epoch, so they count twice in the mean. With 7 ranks, 5 of 1,505 images are repeated. This hardly changes the mean,
# and the next epoch repeats other images.
#
# In return, all ranks have the same number of images in each step. So the mean of the ranks' losses is the mean loss of
# all images of the step, and the mean of the ranks' gradients is the gradient of one big batch. (If the ranks had
# different numbers of images, these means would need weights.)
#
# ## \* The mean of the gradients, by hand
#
# Start two ranks in this notebook, as in `00_start`. This time, both ranks are on one node. (They use PyTorch in both
# tracks.)

# %%
import handson.notebook

ranks = handson.notebook.ranks(2, nodes=1)

# %% [markdown]
# Both ranks create the same network. Each rank runs forward and backward with its own half of the images. Will the
# ranks print equal gradients?

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
# Is this the gradient of one big batch? In the next cell each rank computes the gradient of all images. Compare.

# %%
# %%px
model.zero_grad()
cross_entropy(model(images), labels).backward()
print(model.bias.grad[:3])

# %% [markdown]
# `DistributedDataParallel` does the work of these three lines: when its `backward` ends, the gradients are averaged.

# %%
# %%px
from torch.nn.parallel import DistributedDataParallel

replica = DistributedDataParallel(model)
replica.zero_grad()
cross_entropy(replica(images[mine]), labels[mine]).backward()
print(model.bias.grad[:3])

# %% [markdown]
# Why must all ranks run the same number of steps? In the next cell, rank 0 runs one step more than rank 1. What will
# the notebook print after five seconds?

# %%
# %%px
steps = 3 if rank == 0 else 2
for step in range(steps):
    dist.all_reduce(torch.ones(1))

# %% [markdown]
# You caused this hang on purpose. Later in this notebook, you will find the cause of a hang in a script. Now stop the
# ranks. They occupy the cores of their job, and your next job would have to wait for these cores.

# %%
ranks.stop()

# %% [markdown]
# ## What distribution adds to the script
#
# | | PyTorch | Chainer |
# |---|---|---|
# | a process for each GPU | `mp.spawn(worker, ...)` | `MultiprocessParallelUpdater` |
# | the processes find each other | `MASTER_ADDR`, `MASTER_PORT`, `dist.init_process_group` | `MultiprocessParallelUpdater` |
# | the GPU of a process | `args.gpu[rank]` | `devices={"main": 0, "gpu1": 1}` |
# | the shard of a process | `DistributedSampler` | `split_dataset_n_random` |
# | the mean of the gradients | `DistributedDataParallel` | `MultiprocessParallelUpdater` |
#
# The next cell shows the lines of the new script that are not in your single-GPU script. How many lines do you expect?

# %%
SINGLE = f"{EXERCISES}/01_single_gpu/{TRACK}/train_cifar_single_gpu.py"
MULTI = f"{FOLDER}/{TRACK}/train_cifar_multi_gpu.py"
# !diff {SINGLE} {MULTI} | grep "^>" | cut -c 1-100

# %% [markdown]
# These names in the PyTorch script are new:
#
# - `mp.spawn(worker, arguments, nprocs=2)` starts two processes. Each process calls `worker(rank, *arguments)` with its
#   number, the **rank**.
# - `dist.init_process_group` joins the processes into a group that can communicate. Rank 0 listens on the port
#   `MASTER_PORT` of the host `MASTER_ADDR`, and the other ranks connect to it. `dist.destroy_process_group` ends the
#   group.
# - `DistributedSampler(train_set, seed=args.seed)` shuffles the indices of the images and gives each rank its shard.
#   With the same *seed*, all ranks draw the same random numbers, so they split the data in the same way without sending
#   messages. `sampler.set_epoch(epoch)` passes the number of the epoch to the sampler. Without this call, every epoch
#   has the same order.
# - `DistributedDataParallel(model)` copies rank 0's parameters to all ranks, and averages the gradients during
#   `backward`. In training, the batch normalisation of a rank uses only the images of this rank. In evaluation, it uses
#   *running statistics*. These are rank 0's, because `DistributedDataParallel` copies them to all ranks before each
#   forward pass.
#
# Only rank 0 prints, evaluates, and writes the result. The training loss and the training accuracy that it prints are
# those of its own images.
#
# Fill in the gaps of this script and of `run_multi_gpu_training.sh`: one node, two GPUs, two processes.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" {TRACK}/*.py *.sh

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("multi_gpu", "train_cifar_multi_gpu.py", "run_multi_gpu_training.sh", track=TRACK)

# %% [markdown]
# ## Run it
#
# In a terminal you would type `cd exercises/02_multi_gpu` and `qsub -j oe run_multi_gpu_training.sh`. What throughput
# do you expect?

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
# Compare this run with your last run with one worker under the same conditions. If there is no such run, the next cell
# starts it.

# %%
one = runs.of_one_worker(two, EXERCISES, OPTIONS)
print(f"1 worker:  {one.throughput:6.1f} images/s")
print(f"2 workers: {two.throughput:6.1f} images/s")

# %% [markdown]
# The **speed-up** is how many times as fast several workers are as one worker.


# %%
def speed_up(single, several):
    """Return how many times as fast several workers are as one.

    single, several: the throughput of one worker, and of several workers together, in images/s.
    """
    ### BEGIN SOLUTION speed_up: return the speed-up
    return several / single
    ### END SOLUTION


# %% [markdown]
# The **efficiency** is the part of the ideal speed-up that was reached. Ideally, N workers are N times as fast as one.


# %%
def efficiency(single, several, workers):
    """Return the part of the ideal speed-up that was reached: 1 if all of it was reached.

    (A measured efficiency can be above 1.)
    """
    ### BEGIN SOLUTION efficiency:
    ### return the efficiency; `several` is the throughput of `workers` workers
    return several / single / workers
    ### END SOLUTION


# %%
print("speed-up:  ", round(speed_up(one.throughput, two.throughput), 2))
print("efficiency:", round(efficiency(one.throughput, two.throughput, 2), 3))
print("(the lecture from which this course grew, on two GPUs: 1.71 and 0.857)")
multi_gpu.speed_up([one, two])

# %% [markdown]
# Was your prediction in `00_start` right? On two idle cores, a speed-up of 1.4 to 1.9 is usual. If yours is below 1.3,
# find out which other programs are running (`top`), and whether the machine has two cores at all. Then run the job
# again. (If two workers share one GPU, a speed-up of about 1 is right.) If your speed-up is above 2, something slowed
# down the run with one worker.

# %%
check("multi_gpu", "speed_up", "efficiency")

# %% [markdown]
# ## Why two workers are not twice as fast
#
# The next cell runs 20 steps with one worker and 20 steps with two workers, and records when each part of a step begins
# and ends. The figure shows what both ranks did in four of these steps.
#
# (If your OPTIONS choose a network, give it to both calls of `steps`, too, such as `model="convnet"`.)
#
# No rank can leave the all-reduce before the other rank has entered it. Look for the rank that enters it first. What
# does this rank do?

# %%
from handson.notebook import measure

single_steps = measure.steps(workers=1, size=SIZE)
steps = measure.steps(workers=2, size=SIZE)
multi_gpu.ranks(steps)

# %% [markdown]
# The rank that enters first waits for the other one (the dotted parts). The ranks take turns being late, because each
# core also does other work. Both ranks lose time whenever one rank is late.
#
# How long does each rank wait in a step, on average? `arrivals[step, rank]` is the time, in seconds, at which the rank
# enters the all-reduce.


# %%
def waiting(arrivals):
    """Return how many seconds each rank waits for the last rank in a step, on average.

    arrivals: a NumPy array with a row for each step and a column for each rank.
    """
    ### BEGIN SOLUTION waiting: return a list or an array with one number for each rank
    last = arrivals.max(axis=1, keepdims=True)
    return (last - arrivals).mean(axis=0)
    ### END SOLUTION


# %%
for rank, seconds in enumerate(waiting(steps.began("all-reduce"))):
    print(f"rank {rank} waits {1000 * seconds:.1f} ms of {1000 * steps.mean(rank):.1f} ms")

# %% [markdown]
# So a step with two workers takes longer than a step with one worker: the ranks wait, and they communicate. They also
# share the memory of the machine, or even a GPU, which can slow down the computation.

# %%
multi_gpu.steps_compared(single_steps, steps)

# %% [markdown]
# There is another reason why the speed-up of your job is below 2: only rank 0 evaluates the test set, and the other
# rank waits for it.

# %%
check("multi_gpu", "waiting")

# %% [markdown]
# ## A hang
#
# A collective such as the all-reduce ends when *all* ranks have called it. If one rank never calls it, the other ranks
# keep waiting: this is a **deadlock**. For a long time, nothing is printed: NCCL gives up after 10 minutes, gloo after
# 30 minutes, and MPI never.
#
# The script `hanging.py` has a deadlock. Read it. Which line will rank 0 never leave, and which line will rank 1
# never leave? Then start the script with `torchrun`, which starts the number of processes that you ask for, and gives
# each process a rank. After 10 seconds, each rank writes its position in the script (with Python's `faulthandler`),
# and ends.

# %%
command = "OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 hanging.py"
# !cd {FOLDER} && mkdir -p results && {command} 2> results/torchrun.log
# !cd {FOLDER}/results && grep "line" stack_of_rank_0.txt
# !cd {FOLDER}/results && grep "line" stack_of_rank_1.txt

# %% [markdown]
# The innermost function comes first: rank 0 is in `all_reduce`, and rank 1 is in `barrier`. Both functions are
# collectives, so each rank waits for the other. (If no function is listed, your script no longer hangs.)
#
# These tools help when your own job hangs:
#
# - `TORCH_DISTRIBUTED_DEBUG=DETAIL` makes PyTorch compare the collectives of all ranks and report the difference. The
#   next cell shows this.
# - On real GPUs, NCCL's *flight recorder* keeps the last collectives of each rank, and writes them to files when a
#   collective times out. Set `TORCH_FR_BUFFER_SIZE=2000` (called `TORCH_NCCL_TRACE_BUFFER_SIZE` in older versions of
#   PyTorch) and `TORCH_NCCL_DUMP_ON_TIMEOUT=1`.
# - `py-spy dump --pid PID` shows the stack of a running process. Run it on the node of this process
#   (`pip install py-spy`).
# - `python -m handson doctor`, as a command in a job, tests whether the ranks can reach each other.
#
# The training scripts of this course have a time limit: after two minutes without a finished step (`--patience`),
# they end and print where each rank was.

# %%
# !cd {FOLDER} && TORCH_DISTRIBUTED_DEBUG=DETAIL {command} 2>&1 | grep -o "mean losses.*\|Rank . is running collective: [^)]*OpType=[A-Z_]*"

# %% [markdown]
# Fix `report` in `exercises/02_multi_gpu/hanging.py`, save it, and run the first of the two cells above again. It
# should print the mean losses 2.5, 1.5, and about 1.17. The check also runs the script with three ranks, because some
# wrong solutions give these numbers only with two ranks, or by chance.

# %%
check("multi_gpu", "hanging.py")

# %% [markdown]
# ## \* Where the efficiency went
#
# The 20 steps above were a separate measurement. A *profile* shows more, because it is recorded while your own scripts
# run. `handson explain` compares a profile of one worker with a profile of two workers. It divides the lost efficiency
# into four causes: communication that is not hidden by computation, imbalance (a rank waits for another rank), the
# overhead of each step, and contention (two ranks share the memory and the cores of one machine, or a GPU). Which cause
# will be the largest here?

# %%
from handson.notebook import profiled_runs

variables = {"TRACK": TRACK, "OPTIONS": f"{OPTIONS} --epoch 1 --size {SIZE}"}
single = profiled_runs.of_one_worker(EXERCISES, **variables)
double = profiled_runs.of_job(FOLDER, profiled_runs.start(FOLDER, "run_multi_gpu_profile.sh", **variables))
profiled_runs.explained(single, double)

# %% [markdown]
# On two cores of one machine, both ranks share the memory, so the same operators can take longer: this is contention.
# It is negative if the same operators took longer in the run of one worker, which other programs can cause. They also
# increase imbalance, because whenever one rank is disturbed, the other rank waits for it. Communication, imbalance and
# overhead are often about equally large here, and which of them is the largest can change from run to run. On two GPUs,
# communication is usually the largest cause. (When two workers shared one H200 and trained `convnet`, communication and
# overhead cost 26 points of efficiency each.) Repeat the cell before you believe small differences. You will read such
# profiles in `04_profiling`.
#
# ## \* What the bigger batch changes
#
# Each of N workers uses 32 images per step, so each update uses N x 32 images. The *total* batch is bigger, and an
# epoch has fewer updates. At the end of an epoch, both tracks make an update from the remaining images, even if they do
# not fill the batch.


# %%
def updates(images, batchsize, workers, epochs):
    """Return the number of updates in `epochs` epochs; `batchsize` is the batch size of each worker."""
    ### BEGIN SOLUTION updates:
    ### return a whole number; the last update of each epoch may use fewer images
    total = batchsize * workers
    return -(-images // total) * epochs
    ### END SOLUTION


# %%
for workers in (1, 2, 4, 8):
    print(f"{workers} x 32 images:", updates(1500, 32, workers, epochs=6), "updates in 6 epochs")

# %% [markdown]
# The next experiment uses small images (16 pixels). It follows a figure in [Train longer, generalize
# better](https://arxiv.org/abs/1705.08741). It trains with the total batch of 8 workers twice: for as many *epochs* as
# one worker, and for as many *updates* as one worker.
#
# (The second cell below trains 12 networks, which takes one or two minutes. A bar shows the progress.)
#
# After 6 epochs, one worker misclassifies about 9 % of the test images. What do you expect of 8 workers after 6 epochs?
# (If you skip this prediction, the figure is drawn without it.)

# %%
# What percentage of the test images will 8 workers misclassify after 6 epochs?
### BEGIN SOLUTION prediction_error: write `prediction_error = ` and your number, from 0 to 100
prediction_error = 25
### END SOLUTION
print(f"I expect 8 workers to misclassify {prediction_error} % of the test images.")

# %%
from handson.notebook.multi_gpu import Plan

RATE = 0.002  # the learning rate, here the same for all plans
equal_epochs = updates(1500, 32, 8, epochs=6)
equal_updates = updates(1500, 32, 1, epochs=6)
plans = {
    "1 worker": Plan(32, [RATE] * equal_updates),
    "8 workers, equal epochs": Plan(256, [RATE] * equal_epochs),
    "8 workers, equal updates": Plan(256, [RATE] * equal_updates),
}
curves = multi_gpu.train(plans, SEEDS)
predicted = globals().get("prediction_error")  # None if you skipped it
multi_gpu.equal_epochs_and_updates(curves, predicted)

# %% [markdown]
# Each line is the mean of several runs with different seeds. Its band reaches from the best run to the worst.
#
# With equal updates, the bigger batch is as good as the small one, or better, because it has used eight times as many
# images. But then the 8 workers have saved no time. With equal epochs, the bigger batch has made too few updates.

# %%
check("multi_gpu", "updates", "prediction_error")

# %% [markdown]
# ## \* Longer steps
#
# [Accurate, large minibatch SGD](https://arxiv.org/abs/1706.02677) has a remedy: for a batch that is N times as big,
# use N times the learning rate, because each update replaces N small updates. (This rule is for SGD. With Adam, the
# square root of N is the usual factor.) Such high rates can do harm in the first updates. So start with the old rate,
# and let it rise linearly: this is a **warm-up**.


# %%
def learning_rate(update, base, workers, warmup):
    """Return the learning rate of update number `update`, counted from 0.

    It rises linearly from `base` in update 0 to `workers` times `base` in update `warmup`,
    and then stays the same.
    """
    ### BEGIN SOLUTION learning_rate: return the rate; after the warm-up it stays the same
    progress = min(1, update / warmup)
    return base * (1 + (workers - 1) * progress)
    ### END SOLUTION


# %% [markdown]
# Which of these will be best after 6 epochs: the old rate, 8 times the old rate from the start, or 8 times the old rate
# after a warm-up of one epoch?

# %%
warmup = updates(1500, 32, 8, epochs=1)
rising = [learning_rate(update, RATE, 8, warmup) for update in range(equal_epochs)]
plans = {"8 workers, 8 x rate": Plan(256, [8 * RATE] * equal_epochs), "8 workers, with warm-up": Plan(256, rising)}
same_rate = {"1 worker": curves["1 worker"], "8 workers, same rate": curves["8 workers, equal epochs"]}
multi_gpu.rates_and_errors(same_rate | multi_gpu.train(plans, SEEDS))

# %% [markdown]
# The higher rate compensates for most of the accuracy that the bigger batch lost. Whether the warm-up also helps
# depends on the rate. Try `RATE = 0.004`, and run the cells from there again. (There is a limit: with a `RATE` of 0.004 to
# 0.02, 8 workers misclassify nearly twice as many images as one worker, even with a warm-up.)
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
# - Turn a single-GPU script into a script for all GPUs of a node: processes, shards, the mean of the gradients.
# - Measure the speed-up and the efficiency, and name what limits them: waiting, communication, shared memory, shared
#   cores.
# - Find out where the ranks of a hanging job wait.
# - Explain how the bigger batch of N workers changes the accuracy, and why linear scaling and a warm-up help.
#
# Continue with the next notebook. The file browser on the left lists the notebooks in order.
