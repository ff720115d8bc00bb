# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Why is it not faster?
#
# Two GPUs were not twice as fast as one. A clock says *that* a training is slow; a **profile** says *why*: it notes when each operation
# began and ended, on each GPU. You will read profiles of your own scripts, then find and fix what slows down three others.
#
# **In about 60 minutes you will**
#
# - record a training, and read its timeline: who waits for whom, and why,
# - tell communication from waiting, and find out how much of it is hidden,
# - find the bottleneck of three slow scripts, predict what its removal gains, fix it, and measure.
#
# Words that are new to you are in the [glossary](../docs/glossary.md).

# %%
TRACK = "pytorch"  # or "chainer": of your training scripts; the scripts that are new here are PyTorch's
SIZE = 256  # pixels of an image
FOLDER = "../exercises/04_profiling"

# %% [markdown]
# ## Record
#
# In a terminal, `python -m handson profile -- python train.py` runs a script and records some of its steps: with nvprof on GPUs that it
# knows, with Nsight Systems on newer ones, else with PyTorch's own profiler (for Chainer: with its hooks). Recording takes time itself, so
# the first steps are left out, then a few are recorded.
#
# The job scripts `run_single_gpu_profile.sh` and `run_multi_gpu_profile.sh` do so with your training scripts.

# %%
from handson.notebook import profiled_runs

options = f"--epoch 1 --size {SIZE}"
one_gpu = "../exercises/01_single_gpu"
job = profiled_runs.start(one_gpu, "run_single_gpu_profile.sh", TRACK=TRACK, OPTIONS=options)
single = profiled_runs.of_job(one_gpu, job)

# %% [markdown]
# While the second job runs, look at the GPUs, as with `nvidia-smi`: how busy are they, and how much memory do they use? (A *virtual* GPU is
# a core.) Which utilisation do you expect on two GPUs: higher than on one, or lower? (In a terminal: `python -m handson watch`.)

# %%
two_gpus = "../exercises/02_multi_gpu"
job = profiled_runs.start(two_gpus, "run_multi_gpu_profile.sh", TRACK=TRACK, OPTIONS=options)
profiled_runs.watch(job, interval=2, count=4)

# %%
multi = profiled_runs.of_job(two_gpus, job)

# %% [markdown]
# ## Two timelines at one scale
#
# Below are three steps of each run, with one GPU above, with two below. Dashed lines are where a step ends. Before you run the cell: which
# run has the longer steps? And what will be in them that the other doesn't have?

# %%
profiled_runs.show(single, multi)

# %% [markdown]
# The same in numbers. Every moment of a step belongs to one of these parts:
#
# | part | the device |
# |---|---|
# | compute | works on the network |
# | loading | waits for the next batch, or makes it |
# | copy | copies between host and GPU |
# | communication | exchanges gradients, and computes nothing meanwhile |
# | waiting | is in the all-reduce, but another rank isn't yet |
# | host | does nothing: Python prepares the next operation |
#
# Two more columns are not parts of a step: *busy* is the share of the time in which the device itself works (compute, copy and, on a core,
# loading); *overlap* is the share of all communication that is hidden, because the device computes meanwhile.

# %%
profiled_runs.table(single)
profiled_runs.table(multi)

# %% [markdown]
# On two cores, most of the time is compute in both runs, and each of its operations takes longer with two ranks, for they share the
# memory. On GPUs that are much faster, the other parts weigh more.
#
# Does a table end with *These shares say little*? Then other programs took the cores during that run (a note below the figure says so, too), and
# what this notebook says of it may not hold: record it again when they have ended.
#
# ## Who waits for whom?
#
# For each rank, the profile has the time that it waits for each other one. Who waits the most? And for whom?


# %%
def who_waits(waits):
    """The rank that waits the most, and the rank for which it waits the most.

    waits[rank][other]: the seconds in a step that `rank` waits for `other`.
    """
    ### BEGIN SOLUTION who_waits: return two ranks; the first has the largest sum of waits
    waiter = max(waits, key=lambda rank: sum(waits[rank].values()))
    return waiter, max(waits[waiter], key=waits[waiter].get)
    ### END SOLUTION


# %%
waits = profiled_runs.waits(multi)
for rank, of_rank in waits.items():
    print(f"rank {rank} waits", *(f"{1000 * seconds:.1f} ms for rank {other}" for other, seconds in of_rank.items()))
print("Rank {} waits the most, for rank {}.".format(*who_waits(waits)))

# %% [markdown]
# With equal work, ranks mostly wait in turns: now one is disturbed, now the other. If one rank waits much more than the other, the other has
# more work, or a slower core.

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("profiling", "who_waits")

# %% [markdown]
# ## Communication, or waiting?
#
# An all-reduce that takes long isn't always a slow network: no rank can leave it before the last one has come. How much of the time in
# all-reduces is waiting?


# %%
def waiting_share(begin, end):
    """For each rank, the part of its time in all-reduces that it waits for the last rank, from 0 to 1.

    begin, end: when the ranks came, and when they left, in seconds: NumPy arrays with a row for each
    all-reduce and a column for each rank.
    """
    ### BEGIN SOLUTION waiting_share:
    ### return an array with a number for each rank; divide sums over all all-reduces
    waiting = begin.max(axis=1, keepdims=True) - begin
    return waiting.sum(axis=0) / (end - begin).sum(axis=0)
    ### END SOLUTION


# %%
for rank, share in enumerate(waiting_share(*profiled_runs.meetings(multi))):
    print(f"rank {rank}: {100 * share:.0f} % of its time in all-reduces is waiting")

# %%
check("profiling", "waiting_share")

# %% [markdown]
# ## Hidden communication
#
# `DistributedDataParallel` begins to average the gradients of the last layers while backward still computes those of the first. Such
# communication is *hidden* by computation, and costs nothing. (Chainer's updater begins when backward has ended.) Which part is hidden?


# %%
def overlap(compute, communication):
    """The part of the communication's time during which there is computation, too, from 0 to 1.

    compute, communication: lists of spans (begin, end) in seconds, in the order of time; those of one list don't
    overlap each other.
    """
    ### BEGIN SOLUTION overlap:
    ### for each pair of spans, add up how long both last at once; return this divided by all
    ### communication
    both = sum(max(0, min(end, to) - max(begin, since)) for begin, end in compute for since, to in communication)
    return both / sum(end - begin for begin, end in communication)
    ### END SOLUTION


# %%
print(f"{100 * overlap(*profiled_runs.spans(multi)):.0f} % of the communication is hidden")

# %% [markdown]
# This network is small: all its gradients fit into one message, which can't leave before backward is nearly over.

# %%
check("profiling", "overlap")

# %% [markdown]
# ## Use of the devices
#
# Runs record how busy their GPUs are, too. Under the timelines you see it for the whole runs; the grey part is what the timelines show.
# Why is the utilisation not the same all the time?

# %%
profiled_runs.show(single, multi, usage=True)

# %% [markdown]
# It is low at the start, while Python starts and loads the data, and falls when an epoch ends: rank 0 evaluates, and the other rank waits.
# (A core that other programs use, too, stays busy: its utilisation counts them.)
#
# *Utilisation* only says that something was going on: on a GPU, that a kernel ran, however small. The *model FLOPs utilisation* of
# `01_single_gpu` says how much of the device a training uses. Which of the two is larger?

# %%
from handson.notebook import measure

peak = measure.peak()
for run in (single, multi):
    print(f"{run.name}: MFU {100 * profiled_runs.used(run, peak):.0f} % in the recorded steps")

# %% [markdown]
# The MFU is much smaller. Do two workers have less of it than one? Each computes as many FLOPs as before, and its step is longer: the time
# of the all-reduce counts, too.
#
# ## Mark the four steps
#
# From here on, all scripts are PyTorch's, on both tracks: in Chainer, an updater makes the four steps of an iteration out of your sight.
#
# A profile knows operators, not what you meant by them. So you give names to parts of your script:
# `with record_function("forward"):` puts what is below it into a *range* of that name (for nvprof and Nsight Systems, it becomes a range
# of NVTX).
#
# `pytorch/train_steps.py` in `exercises/04_profiling` has all four steps of an iteration in the open, the all-reduce, too. Mark them.
#
# Which of the four takes longest? And which the shortest time?

# %%
# !cd {FOLDER} && grep -n -A 2 "# PUT YOUR CODE" pytorch/train_steps.py

# %%
options = f"--epoch 2 --size {SIZE}"
marked = profiled_runs.of_script(FOLDER, "train_steps.py", "marked", options)
profiled_runs.show_ranges(marked)

# %%
for name, of_ranks in profiled_runs.ranges(marked).items():
    print(f"{name:12}", *(f"rank {rank}: {1000 * seconds:6.1f} ms  " for rank, seconds in enumerate(of_ranks)))

# %% [markdown]
# Backward takes longest here too, and optimize the shortest time. The all-reduce looks long on the rank that comes first: its range includes the
# waiting.

# %%
check("profiling", "train_steps.py")

# %% [markdown]
# ## Three slow scripts
#
# Each of the next scripts trains as it should, but slower than it could. For each of them: read the script and **predict** what is
# slow, **profile** it, **name** what the profile shows, **fix** the script at the gap, and profile again. The first profile is
# kept in `results/`, so that you can run all cells again.
#
# ### 1. Images in files
#
# `slow_loading.py` trains with images as they are mostly stored: compressed, and larger than the network wants them. Is that slow? Isn't
# it done while the GPU computes?

# %%
files = f"--epoch 6 --size {SIZE}"
before = profiled_runs.of_script(FOLDER, "slow_loading.py", "before", files, keep=True)
profiled_runs.show(before)

# %%
profiled_runs.table(before)

# %%
# Which part of the step can the script do without: "compute", "loading", "copy", "communication", "waiting" or "host"?
### BEGIN SOLUTION bottleneck: write `bottleneck = ` and the part, in quotes
bottleneck = "loading"
### END SOLUTION
print("In slow_loading.py I would look at:", bottleneck)

# %%
# By which factor will a step become faster at most, if this part is gone?
### BEGIN SOLUTION prediction_faster:
### write `prediction_faster = ` and your number; the table has the part's share of a step
prediction_faster = 2.5
### END SOLUTION
print("I expect a factor of", prediction_faster)

# %% [markdown]
# Now fix `pytorch/slow_loading.py`, save it, and see whether it is gone. (An idea: which work is done in each epoch, though its result is the
# same each time?)

# %%
after = profiled_runs.of_script(FOLDER, "slow_loading.py", "after", files)
profiled_runs.show(before, after)

# %%
print(f"{before.result.throughput:.0f} images/s before, {after.result.throughput:.0f} after")
profiled_runs.faster(before, after, prediction_faster)

# %% [markdown]
# Is the factor of the whole run smaller than that of a step? Then your script does work before the first step that it did in the steps before.
# The clock of the run counts it (that of the profile does not), and with more epochs it weighs less.
#
# Where the data doesn't fit into memory, `DataLoader(num_workers=...)` decodes in processes of its own, while the GPU computes. That
# helps if there are cores that have nothing else to do.

# %%
check("profiling", "bottleneck", "prediction_faster", "slow_loading.py")

# %% [markdown]
# On a GPU there is one more way to go: from the host's memory into its own. A GPU fetches by itself what lies in *pinned* memory, which the
# system may not move; everything else is copied there before. `DataLoader(pin_memory=True)` makes pinned batches, and
# `images.to(device, non_blocking=True)` then doesn't wait for the copy. The cell measures steps with batches of full-size images. Which way
# will be as fast as no copy at all?

# %%
from handson.notebook import device_ways

copies = device_ways.copies(size=SIZE)
for way, seconds in copies.items():
    print(f"{way:30} {1000 * seconds:7.2f} ms a step")
if not copies:
    print("There is no GPU here, so nothing is copied.")

# %% [markdown]
# If the GPU has enough to do, `non_blocking` hides the copy behind the kernels of the step before.
#
# ### 2. A faster GPU
#
# `uneven_work.py` was written for a machine with a newer GPU and an older one. What will this machine make of it?

# %%
before = profiled_runs.of_script(FOLDER, "uneven_work.py", "before", options, keep=True)
profiled_runs.show(before)

# %%
profiled_runs.table(before)

# %%
# For which rank do the others wait?
### BEGIN SOLUTION slow_rank: write `slow_rank = ` and the rank
slow_rank = 0
### END SOLUTION
print(f"The others wait for rank {slow_rank}.")

# %% [markdown]
# Fix `pytorch/uneven_work.py`.

# %%
after = profiled_runs.of_script(FOLDER, "uneven_work.py", "after", options)
profiled_runs.show(before, after)

# %%
print(f"{before.result.throughput:.0f} images/s before, {after.result.throughput:.0f} after")

# %% [markdown]
# With equal shares no rank waits for long. The speed-up is at most 4/3 here: rank 0 had 2 of 3 images, and now has 1 of 2. Shares should fit
# the speed of the devices *that are there*: measure it, don't believe it.

# %%
check("profiling", "slow_rank", "uneven_work.py")

# %% [markdown]
# ### 3. In step
#
# `waiting_every_step.py` reports the mean loss of all ranks. Its images are small, so that a step takes only a few milliseconds. How
# often do the ranks have to meet in a step?

# %%
small = "--epoch 2 --size 32"
before = profiled_runs.of_script(FOLDER, "waiting_every_step.py", "before", small, keep=True)
profiled_runs.show(before)

# %%
profiled_runs.table(before)
profiled_runs.collectives(before)

# %%
# How many collectives are there in a step, the all-reduce of the gradients included?
### BEGIN SOLUTION collectives:
### write `collectives = ` and the number of calls, of all names together
collectives = 3
### END SOLUTION
print(f"The ranks meet {collectives} times in a step.")

# %% [markdown]
# Fix `pytorch/waiting_every_step.py`: once is enough.

# %%
after = profiled_runs.of_script(FOLDER, "waiting_every_step.py", "after", small)
profiled_runs.show(before, after)

# %%
profiled_runs.collectives(after)
print(f"{before.result.throughput:.0f} images/s before, {after.result.throughput:.0f} after")

# %% [markdown]
# Each meeting costs the wait for whichever rank is late this time, so two meetings less make small steps much faster, and long steps hardly.
#
# On a real GPU there is more to win: `loss.item()` waits until the GPU has finished all it was told to do, which then idles until Python
# has told it more. A process that never asks can be many operations ahead. A profile shows such a wait as `cudaStreamSynchronize`: an H200 that
# trained the small network with 32 images was at work for 23 % of a step, with five such waits in it.
#
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("profiling")

# %% [markdown]
# `python -m handson timeline FOLDERS... --export trace.json` writes any of these profiles for <https://ui.perfetto.dev>, where you can zoom in to
# single operators.
#
# ## What you can do now
#
# - Record a training with one command, and read its timeline.
# - Tell a slow network from a slow rank, and a slow rank from slow loading.
# - Predict what fixing a bottleneck can gain at most, and check it by measurement.
#
# If there is a next notebook, the file browser on the left has it.
