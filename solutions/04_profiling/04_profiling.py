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
# In `02_multi_gpu`, two GPUs were not twice as fast as one. A clock shows *that* training is slow. A **profile** shows *why*: it records
# when each operation began and ended on each GPU. You will read profiles of your own scripts. Then you will find out
# what slows down three other scripts, and fix it.
#
# **In about 60 minutes you will**
#
# - record a training run, and read its timeline: which rank waits for which, and why,
# - distinguish communication from waiting, and measure how much communication is hidden,
# - find the bottleneck of three slow scripts, predict how much faster a fix makes them, fix them, and measure.
#
# The [glossary](../docs/glossary.md) explains words that are new to you.

# %%
# Device: a GPU if there is one. To use cores instead, first run `%env HANDSON_DEVICE=cpu` in a cell above.
# Network: that of your training scripts. To choose one, add --model convnet to `options` in the next cell.
TRACK = "pytorch"  # or "chainer": the track of your training scripts; the new scripts of this notebook use PyTorch
SIZE = 256  # side of the images, in pixels
FOLDER = "../exercises/04_profiling"

# %% [markdown]
# ## Record
#
# The command `python -m handson profile -- python train.py` runs a script and records some of its steps. It uses nvprof
# on GPUs that nvprof supports, Nsight Systems on newer GPUs, and PyTorch's own profiler otherwise (for Chainer: its
# hooks). The first steps are not typical, so they are not recorded. Recording slows down the run, so only a few steps
# are recorded.
#
# The job scripts `run_single_gpu_profile.sh` and `run_multi_gpu_profile.sh` run this command with your training
# scripts.

# %%
from handson.notebook import profiled_runs

options = f"--epoch 1 --size {SIZE}"
one_gpu = "../exercises/01_single_gpu"
job = profiled_runs.start(one_gpu, "run_single_gpu_profile.sh", TRACK=TRACK, OPTIONS=options)
single = profiled_runs.of_job(one_gpu, job)

# %% [markdown]
# While the second job runs, the next cell shows how busy the GPUs are, and how much memory they use, as `nvidia-smi`
# does. (A *virtual* GPU is a core.) Which utilisation do you expect on two GPUs: higher than on one, or lower? (In a
# terminal, type `python -m handson watch`.)

# %%
two_gpus = "../exercises/02_multi_gpu"
job = profiled_runs.start(two_gpus, "run_multi_gpu_profile.sh", TRACK=TRACK, OPTIONS=options)
profiled_runs.watch(job, interval=2, count=4)

# %%
multi = profiled_runs.of_job(two_gpus, job)

# %% [markdown]
# ## Two timelines at one scale
#
# The figure shows three steps of each run. The run with one GPU is at the top, and the run with two GPUs is below it.
# Dashed lines mark the end of a step. Before you run the cell: which run has the longer steps? And which operations are
# in these steps, but not in those of the other run?

# %%
profiled_runs.show(single, multi)

# %% [markdown]
# The next cell shows the same in numbers. Every moment of a step belongs to one of these parts:
#
# | part | the device |
# |---|---|
# | compute | works on the network |
# | loading | waits for the next batch, or makes it |
# | copy | copies between host and GPU |
# | communication | exchanges gradients, and computes nothing during this time |
# | waiting | is in the all-reduce, but another rank is not there yet |
# | host | does nothing, because Python prepares the next operation |
#
# Two more columns are not parts of a step. The column *busy* is the share of the time in which the device itself works:
# compute, copy, and on a core also loading. The column *overlap* is the share of the communication that is hidden,
# because the device computes during this time.

# %%
profiled_runs.table(single)
profiled_runs.table(multi)

# %% [markdown]
# On two cores, compute takes most of the time in both runs. A step of two ranks also contains communication and
# waiting. Its operations can take longer, too, because the ranks share the memory. On GPUs, which are much faster, the
# other parts take a larger share: when an H200 trained `convnet`, 77 % of a step was *host*.
#
# Does a table end with *These shares are unreliable*? Then other programs used the cores during that run (a note below
# the figure says so, too), and this notebook's explanations may not fit your numbers. Record the run again when these
# programs have ended.
#
# ## Who waits for whom?
#
# For each rank, the profile contains the time for which it waits for each other rank. Which rank waits the most, and
# for which rank?


# %%
def who_waits(waits):
    """Return the rank that waits the most, and the rank for which it waits the most.

    waits[rank][other]: the seconds per step for which `rank` waits for `other`.
    """
    ### BEGIN SOLUTION who_waits: return two ranks; the first rank has the largest sum of waits
    waiter = max(waits, key=lambda rank: sum(waits[rank].values()))
    return waiter, max(waits[waiter], key=waits[waiter].get)
    ### END SOLUTION


# %%
waits = profiled_runs.waits(multi)
for rank, of_rank in waits.items():
    print(f"rank {rank} waits", *(f"{1000 * seconds:.1f} ms for rank {other}" for other, seconds in of_rank.items()))
print("Rank {} waits the most, for rank {}.".format(*who_waits(waits)))

# %% [markdown]
# With equal work, the ranks usually take turns waiting: sometimes one is disturbed, and sometimes the other. If the
# same rank waits much more than the other in every run, the other rank has more work or a slower core.

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("profiling", "who_waits")

# %% [markdown]
# ## Communication, or waiting?
#
# A long all-reduce does not always mean a slow network: no rank can leave the all-reduce before the last rank has
# entered it. Which part of the time in all-reduces is waiting?


# %%
def waiting_share(begin, end):
    """Return the part of each rank's time in all-reduces in which it waits for the last rank, from 0 to 1.

    begin, end: when the ranks enter and leave each all-reduce, in seconds; NumPy arrays with a row
    for each all-reduce and a column for each rank.
    """
    ### BEGIN SOLUTION waiting_share:
    ### return an array with one number for each rank: its total waiting time, divided by its total
    ### time in all-reduces
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
# While backward still computes the gradients of the first layers, `DistributedDataParallel` already averages those of
# the last layers. Such communication is *hidden* by computation, and costs no time. (Chainer's updater starts to
# average after backward has ended.) Which part of the communication is hidden?


# %%
def overlap(compute, communication):
    """Return the part of the communication time in which there is also computation, from 0 to 1.

    compute, communication: lists of spans (begin, end) in seconds, sorted by time; the spans of one
    list do not overlap each other.
    """
    ### BEGIN SOLUTION overlap:
    ### add up how long the two spans of each pair overlap; return this sum, divided by the total time
    ### of the communication
    both = sum(max(0, min(end, to) - max(begin, since)) for begin, end in compute for since, to in communication)
    return both / sum(end - begin for begin, end in communication)
    ### END SOLUTION


# %%
print(f"{100 * overlap(*profiled_runs.spans(multi)):.0f} % of the communication is hidden")

# %% [markdown]
# `convnet` is small: all its gradients fit into one message. This message cannot be sent before backward is nearly
# finished. (The 94 MB of `resnet50`, the default on a large GPU, are sent in several messages, most of them during
# backward.)

# %%
check("profiling", "overlap")

# %% [markdown]
# ## Use of the devices
#
# Every run also records how busy its GPUs are. The next figure shows this below the timelines, for the whole runs. The
# grey part is the part that the timelines show. Why does the utilisation change during a run?

# %%
profiled_runs.show(single, multi, usage=True)

# %% [markdown]
# The utilisation is low at the start, while Python starts and loads the data. It falls when an epoch ends, because rank
# 0 evaluates and the other rank waits. (If other programs use the same core, it stays busy: its utilisation includes
# those programs. With NCCL, a GPU that waits is busy, too: it runs the kernel of the all-reduce until the other rank
# arrives.)
#
# The *utilisation* of a GPU is only the share of the time in which a kernel ran, however small this kernel was. The
# *model FLOPs utilisation* (MFU) of `01_single_gpu` shows how much of the device's computing power a training run uses.
# Which of the two is larger?

# %%
from handson.notebook import measure

peak = measure.peak()
for run in (single, multi):
    print(f"{run.name}: MFU {100 * profiled_runs.used(run, peak):.0f} % in the recorded steps")

# %% [markdown]
# The MFU is much smaller. With two workers, each worker computes as many FLOPs as before, but its step is longer
# because it includes the all-reduce. So the MFU per worker falls by the same factor as the efficiency. Check this with
# your numbers.
#
# ## Mark the four steps
#
# From here on, all scripts use PyTorch, in both tracks, because Chainer's updater hides the four steps of an iteration.
#
# A profile contains operators, but it does not know which part of your script they belong to. So you give names to
# these parts: `with record_function("forward"):` puts the operations in its block into a *range* with that name. (For
# nvprof and Nsight Systems, it becomes an NVTX range.)
#
# The script `pytorch/train_steps.py` in `exercises/04_profiling` contains all four steps of an iteration, including the
# all-reduce. Mark them.
#
# Which of the four steps takes the longest time, and which the shortest?

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
# On cores, backward takes the longest time, and optimize the shortest. The all-reduce looks long on the rank that
# enters it first, because its range includes the waiting. On a GPU, a range is the time in which Python launches
# kernels. If ranks share a GPU, the all-reduce can then be the longest range, because gloo waits for the kernels of
# backward.

# %%
check("profiling", "train_steps.py")

# %% [markdown]
# ## Three slow scripts
#
# Each of the next three scripts trains correctly, but more slowly than necessary. For each script: read it and
# **predict** which part is slow, **profile** it, **name** the part that the profile shows, **fix** the script at the
# gap, and profile it again. The first profile is kept in `results/`, so you can run all cells again.
#
# ### 1. Images in files
#
# `slow_loading.py` reads images in the form in which they are usually stored: compressed, and larger than the network
# needs them. Is this slow? Or does it happen while the GPU computes?

# %%
files = f"--epoch 6 --size {SIZE}"
before = profiled_runs.of_script(FOLDER, "slow_loading.py", "before", files, keep=True)
profiled_runs.show(before)

# %%
profiled_runs.table(before)

# %% [markdown]
# The table gives the mean of the recorded steps. The last line of the job's output gives their median, which is longer
# here: every fourth step has a batch of only 4 images, the remainder of an epoch.

# %%
# Which part of the step can the script avoid: "compute", "loading", "copy", "communication", "waiting" or "host"?
### BEGIN SOLUTION bottleneck: write `bottleneck = ` and the part, in quotes
bottleneck = "loading"
### END SOLUTION
print("In slow_loading.py I would look at:", bottleneck)

# %%
# How many times as fast will a step be if this part is gone?
### BEGIN SOLUTION prediction_faster:
### write `prediction_faster = ` and your number; the table shows the part's share of a step
prediction_faster = 2.5
### END SOLUTION
print("I expect a factor of", prediction_faster)

# %% [markdown]
# Now fix `pytorch/slow_loading.py`, save it, and see whether this part is gone. (An idea: which work is repeated in
# each epoch, although its result is always the same? If you skipped the prediction, the next figure is drawn without
# it.)

# %%
after = profiled_runs.of_script(FOLDER, "slow_loading.py", "after", files)
profiled_runs.show(before, after)

# %%
print(f"{before.result.throughput:.0f} images/s before, {after.result.throughput:.0f} after")
predicted = globals().get("prediction_faster")  # None if you skipped it
profiled_runs.faster(before, after, predicted)

# %% [markdown]
# A step can gain more than the share of its loading: if one rank needs longer to load, the other ranks wait for it, and
# without loading they no longer do.
#
# Is the speed-up of the whole run smaller than the speed-up of a step? Then your script now does work before the first
# step that it did during the steps before. The time of the run includes this work, but the recorded steps do not. With
# more epochs, this work matters less.
#
# If the data does not fit into memory, `DataLoader(num_workers=...)` decodes the images in separate processes while the
# GPU computes. This helps if there are idle cores.

# %%
check("profiling", "bottleneck", "prediction_faster", "slow_loading.py")

# %% [markdown]
# On a GPU, the data has one more way to go: from the host's memory to the GPU's memory. A GPU can itself fetch data
# from *pinned* memory, which the operating system may not move. All other data must first be copied to pinned memory.
# `DataLoader(pin_memory=True)` creates batches in pinned memory. Then `images.to(device, non_blocking=True)` returns
# before the copy has ended. The next cell measures steps with batches of full-size images. Which way will come
# closest to no copy at all?

# %%
from handson.notebook import device_ways

copies = device_ways.copies(size=SIZE)
for way, seconds in copies.items():
    print(f"{way:30} {1000 * seconds:7.2f} ms a step")
if not copies:
    print("There is no GPU here, so nothing is copied.")

# %% [markdown]
# Without `non_blocking`, Python waits for each copy, and the GPU then waits for Python to launch the next kernels. With
# it, Python launches them during the copy. The copy itself still takes its time: it is in the same queue (*stream*) as
# the kernels, and runs between those of two steps. To run during the kernels, it needs a stream of its own.
#
# ### 2. A faster GPU
#
# `uneven_work.py` was written for a machine with one newer GPU and one older GPU. How will the script run on this
# machine? (It trains `convnet`, whose kernels are so short that a fast GPU takes as long for 16 images as for 32. If
# this machine has GPUs, run `%env HANDSON_DEVICE=cpu` in a new cell: the next jobs then use cores.)

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
# Now fix `pytorch/uneven_work.py`, and save it.

# %%
after = profiled_runs.of_script(FOLDER, "uneven_work.py", "after", options)
profiled_runs.show(before, after)

# %%
print(f"{before.result.throughput:.0f} images/s before, {after.result.throughput:.0f} after")

# %% [markdown]
# With equal shares, it is no longer always the same rank that waits. (In the few recorded steps, one rank can still
# wait more often, because the other one was disturbed.) By the shares alone, the speed-up is at most 4/3: rank 0 used 2
# of 3 images before, and now it uses 1 of 2. The shares should fit the speed of the devices *that the machine has*.
# Measure this speed, do not assume it.

# %%
check("profiling", "slow_rank", "uneven_work.py")

# %% [markdown]
# ### 3. Too many collectives
#
# `waiting_every_step.py` reports the mean loss of all ranks. Its images are small, and a batch has only 4 of them, so a
# step takes only about 10 milliseconds on a core. How many collectives does a step need? (The title of the figure names
# the part that takes the most time, apart from computation. The cell after the figure counts the collectives.)

# %%
small = "--epoch 2 --size 32 --batchsize 4"
before = profiled_runs.of_script(FOLDER, "waiting_every_step.py", "before", small, keep=True)
profiled_runs.show(before)

# %%
profiled_runs.table(before)
profiled_runs.collectives(before)

# %%
# How many collectives does a step have, including the all-reduce of the gradients?
### BEGIN SOLUTION collectives:
### write `collectives = ` and the number of calls in a step, of all names together
collectives = 3
### END SOLUTION
print(f"A step has {collectives} collectives.")

# %% [markdown]
# Fix `pytorch/waiting_every_step.py`: a step needs only one collective. Save the script.

# %%
after = profiled_runs.of_script(FOLDER, "waiting_every_step.py", "after", small)
profiled_runs.show(before, after)

# %%
profiled_runs.collectives(after)
print(f"{before.result.throughput:.0f} images/s before, {after.result.throughput:.0f} after")

# %% [markdown]
# In each collective, all ranks wait for the rank that is late this time. So leaving out two collectives
# makes these short steps faster, but hardly changes long steps. Is the throughput not higher now? Then other programs
# probably took more of the cores during the second run: repeat it.
#
# On a real GPU, there is more to gain. `loss.item()` waits until the GPU has finished all queued operations. Then the
# GPU is idle until Python has queued new operations. Without `loss.item()`, a process can queue many operations in
# advance. A profile shows such a wait as `cudaStreamSynchronize`. For example, an H200 trained the small network with
# 32 images and five such waits in each step, and it was busy for only 23 % of a step.
#
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("profiling")

# %% [markdown]
# The command `python -m handson timeline FOLDERS... --export trace.json` writes any of these profiles to a file for
# <https://ui.perfetto.dev>. There you can zoom in on single operators.
#
# ## What you can do now
#
# - Record a training run with one command, and read its timeline.
# - Distinguish a slow network, a slow rank, and slow loading.
# - Predict how much faster a step becomes if you remove its bottleneck, and check this by measurement.
#
# Continue with `05_communication`.
