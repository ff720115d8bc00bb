# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Start here
#
# In this course you train one network three times: on one GPU, on the two GPUs of a node, and on two nodes with two
# GPUs each. You fill in gaps in training scripts and job scripts, submit the jobs with `qsub`, and find out how much
# faster more GPUs are.
#
# **In about 15 minutes you will**
#
# - find out which machine you are on, and submit your first batch job,
# - learn the two ways to use several GPUs, and what an all-reduce is,
# - fill in your first gap, and check it.
#
# The [glossary](../docs/glossary.md) explains words that are new to you.
#
# The scripts of a notebook are in the folder with the same number in `exercises/`. These are the notebooks, in order:

# %%
from handson.notebook import contents

contents.show()

# %% [markdown]
# **Do you have only one hour?** Do this notebook, then `02_multi_gpu` and `03_multi_node`, and skip the sections that
# are marked with a star (\*).
#
# ## How it works
#
# 1. **Read** a cell, and **predict** what it will show. Then run it with Shift-Enter. A wrong prediction teaches more
#    than no prediction.
# 2. **Fill in** the gaps. These are the places marked `PUT YOUR CODE`, in the notebooks and in the scripts in
#    `exercises/`.
# 3. **Submit** the scripts with `qsub`, and look at their output and their figures.
# 4. **Check** your work with `check(...)` at the end of each notebook. The check reports what is right, what is wrong,
#    and where to look. You can check as often as you like, even if you have not filled in all gaps.
#
# The scripts come in two tracks, *PyTorch* and *Chainer*. Choose PyTorch, unless you have a reason for Chainer: its
# developer ended its development in December 2019, and has only maintained it since. (Chainer is the framework of the
# lecture from which this course grew.) If you fill in both tracks, the better one counts.

# %% [markdown]
# ## The machine you are on
#
# How many cores can you use, and how many GPUs? Guess before you run the cell.

# %%
from handson.cluster import doctor

doctor.summary()

# %% [markdown]
# If there is no GPU, a *virtual GPU* replaces it: a process with one thread on one core. If there are more virtual GPUs
# than cores, several of them share a core, and each of them is slower. In the same way, workers share a real GPU if
# there are too few: two workers on one GPU are hardly faster than one. ([GPUs](../docs/gpus.md) explains how to choose
# between real and virtual GPUs, and which notebooks need virtual ones.)

# %% [markdown]
# You use a cluster through a batch system. The command `pbsnodes` lists the nodes of the cluster. On a machine without
# a batch system, the course uses its own small PBS, and the nodes are *virtual nodes*.

# %%
# !pbsnodes -aSj

# %% [markdown]
# ## Your first job
#
# A job script is a shell script. Its `#PBS` lines state what the job needs: a queue, nodes and cores, a group, a time
# limit, and a name.

# %%
# !cat ../exercises/00_start/first_job.sh

# %% [markdown]
# `qsub` passes the script to PBS and prints the job's id. The option `-j oe` writes output and errors to one file. In a
# notebook, `submit` does the same as `qsub`.
#
# What will be the name of the output file? Will the file be there immediately?

# %%
from handson.cluster.follow import follow, submit

job = submit("../exercises/00_start", "-j", "oe", "first_job.sh")
print(job)

# %% [markdown]
# `qstat` lists the jobs that wait (Q) or run (R). With `-x`, it also lists the jobs that have finished (F).

# %%
# !qstat -x | tail -n 3

# %% [markdown]
# `follow` prints what a job waits for, and then the job's output. (The square button stops `follow`. The job
# continues.)

# %%
follow(job)

# %%
# !ls ../exercises/00_start

# %% [markdown]
# The name of the output file consists of the job's name (`#PBS -N`), `.o`, and the job's number. For job 12, it is
# `first_job.o12`. The file is complete when the job has ended. On a busy cluster this can take hours, because the queue
# decides when a job starts.
#
# ## Two ways to use several GPUs
#
# **Data parallel**: every GPU has the whole network and its own part of the data. After the backward pass, the GPUs
# average their gradients, so they all make the same update. This shortens the training time.

# %%
from handson.notebook import drawings

drawings.data_parallel()

# %% [markdown]
# **Model parallel**: the network itself is split into parts, one part for each GPU, and all GPUs see the same data.
# This makes it possible to train networks that are too big for one GPU.

# %%
drawings.model_parallel()

# %% [markdown]
# In the drawing above, GPU 1 cannot start before GPU 0 has finished. Which of the two ways would you choose for a
# network that fits into one GPU?
#
# This course starts with data parallel training: the network fits into one GPU, and all GPUs are busy all the time.
#
# The workers are numbered from 0. The number of a worker is its **rank**. The worker itself is also called by its rank,
# for example "rank 0". Data parallel training needs the **all-reduce**: every rank contributes its gradients, and every
# rank receives the mean of all gradients.

# %%
drawings.all_reduce()

# %% [markdown]
# ## Four ranks in this notebook \*
#
# To experiment with ranks without a job script, start four ranks in this notebook. These ranks are a job, too, with two
# ranks on each of two nodes. They run for an hour, or until you stop them. (On two idle cores, the ranks start in five
# to eight seconds. On a busy machine, the start can take a minute. Without a GPU, each rank needs about 180 MB of
# memory.)

# %%
import handson.notebook

ranks = handson.notebook.ranks(4)

# %% [markdown]
# A cell that begins with `%%px` runs on all ranks. In such a cell you can use `rank`, `local_rank` (the rank's number
# on its own node), `world_size` (the number of ranks), `torch`, and `dist` (which is `torch.distributed`). Predict what
# each rank prints, then run the cell.

# %%
# %%px
x = torch.ones(2) * rank
print(f"one of {world_size}, local rank {local_rank}: {x}")

# %% [markdown]
# The next cell runs an all-reduce. By default, an all-reduce computes the sum. What is `x` on rank 0 afterwards, and
# what is it on rank 3? (If several ranks print the same line, the notebook shows it once.)

# %%
# %%px
dist.all_reduce(x)
print(x)

# %% [markdown]
# The ranks keep their variables from cell to cell. A data-parallel step needs the mean of the gradients, so it divides
# the sum by the number of ranks.

# %%
# %%px
gradient = torch.tensor([1.0 + rank])
dist.all_reduce(gradient)
gradient /= world_size
print(gradient)

# %% [markdown]
# An all-reduce ends when all ranks have called it. In the next cell, one rank does not call it. What will happen?

# %%
# %%px
if rank != 2:
    dist.all_reduce(x)

# %% [markdown]
# After a few seconds, the notebook prints which ranks wait and where, and interrupts them. The square button interrupts
# them immediately. The ranks keep their variables: try `%px x`. (If an all-reduce was interrupted, its tensor may
# contain a partial sum on some ranks.)
#
# Try other mistakes, too. Then explain in your own words what an all-reduce does, and when it ends. (Every rank
# contributes a tensor, and every rank receives the sum of all tensors. The all-reduce ends when all ranks have called
# it.)
#
# Finally, stop the ranks. They occupy the nodes of their job, and your next job would have to wait for these nodes.

# %%
ranks.stop()

# %% [markdown]
# ## Your first gap
#
# A job requests its resources with a line such as `#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=1`. This line
# requests two nodes, and on each node two GPUs, two processes (one for each GPU), and one thread per process.
#
# How many workers train together in such a job?


# %%
def workers(select, mpiprocs):
    """Return the number of processes in a job with `-l select=SELECT:mpiprocs=MPIPROCS`."""
    ### BEGIN SOLUTION workers: return the number of processes on all nodes together
    return select * mpiprocs
    ### END SOLUTION


# %%
print("select=1:mpiprocs=1 ->", workers(1, 1))
print("select=2:mpiprocs=2 ->", workers(2, 2))
print("select=8:mpiprocs=4 ->", workers(8, 4))

# %% [markdown]
# ## Your first prediction
#
# One GPU needs a certain time for an epoch. How many times as fast will two GPUs be? Write any number for which you
# have a reason. You will measure the right number in the notebook `02_multi_gpu`.

# %%
# How many times as fast as one worker will two workers be?
### BEGIN SOLUTION prediction: write `prediction = ` and your number
prediction = 1.7
### END SOLUTION
print(f"I expect two workers to be {prediction} times as fast as one.")

# %% [markdown]
# ## Your first check
#
# Save the notebook (Ctrl-S) and run the cell. A check tests what your code does, not how it is written.

# %%
from grader import check

check("start")

# %% [markdown]
# ## What you can do now
#
# - Submit a batch job, follow it, and find its output.
# - Read from a job script how many processes it starts, and on how many nodes.
# - Explain what happens in an all-reduce.
#
# Continue with the next notebook. The file browser on the left lists the notebooks in order.
