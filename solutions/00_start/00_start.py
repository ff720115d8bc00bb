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
# In this course you train one network three times: on one GPU, on the two GPUs of a node, and on two nodes of two GPUs each.
# You fill gaps in training scripts and job scripts, submit the jobs with `qsub`, and find out what more GPUs bring.
#
# **In about 15 minutes you will**
#
# - see which machine you are on, and submit your first batch job,
# - know the two ways to use several GPUs, and what an all-reduce is,
# - fill your first gap, and check it.
#
# Words that are new to you are in the [glossary](../docs/glossary.md).
#
# Each notebook has a folder of the same name in `exercises/`, with its scripts. These are the notebooks, in order:

# %%
from handson.notebook import contents

contents.show()

# %% [markdown]
# **You have one hour only?** Do this notebook, then `02_multi_gpu` and `03_multi_node`, and leave out their sections with a star (\*).
#
# ## How it works
#
# 1. **Read** a cell, and **predict** what it will show, before you run it with Shift-Enter. A wrong prediction teaches more than none.
# 2. **Fill** the gaps: places marked `PUT YOUR CODE`, in these notebooks and in the scripts in `exercises/`.
# 3. **Submit** the scripts with `qsub`, and look at what they print and draw.
# 4. **Check** your work with `check(...)` at the end of each notebook: it says what is right, what is not, and where to look.
#    You can check as often as you like, also in between.
#
# The scripts come in two tracks, *PyTorch* and *Chainer*. Choose one; where both are filled, the better one counts.

# %% [markdown]
# ## The machine you are on
#
# How many cores can you use, and how many GPUs? Guess before you run the cell.

# %%
from handson.cluster import doctor

doctor.summary()

# %% [markdown]
# No GPU? Then a *virtual GPU* stands for one: a process with one thread on one core. Everything in this course works the same way with
# both. Where there are more virtual GPUs than cores, several share a core, and none of them gets all of it.

# %% [markdown]
# A cluster is reached through a batch system. `pbsnodes` shows its nodes; on a machine without a batch system, the course brings a
# small PBS, and the nodes are *virtual nodes*.

# %%
# !pbsnodes -aSj

# %% [markdown]
# ## Your first job
#
# A job script is a shell script. Its `#PBS` lines say what the job needs: a queue, nodes and cores, a group, a time limit, a name.

# %%
# !cat ../exercises/00_start/first_job.sh

# %% [markdown]
# `qsub` hands the script to PBS and prints the job's number; `-j oe` puts output and errors into one file. `submit` does the same
# from a notebook.
#
# Which name will the output file have? Will it be there at once?

# %%
from handson.cluster.follow import follow, submit

job = submit("../exercises/00_start", "-j", "oe", "first_job.sh")
print(job)

# %% [markdown]
# `qstat` shows jobs that wait (Q) or run (R), and with `-x` those that have finished (F) too.

# %%
# !qstat -x | tail -n 3

# %% [markdown]
# `follow` says what a job waits for, and shows its output while it runs. (The square button ends the following; the job goes on.)

# %%
follow(job)

# %%
# !ls ../exercises/00_start

# %% [markdown]
# The output file is named after the job (`#PBS -N`) and its number: `first_job.o` and the number. It is complete when the job has ended.
# On a busy cluster that can take hours: the queue decides, not you.
#
# ## Two ways to use several GPUs
#
# **Data parallel**: every GPU has the whole network and its own part of the data. After the backward pass, all put their gradients
# together, and all make the same update. This shortens the training.

# %%
from handson.notebook import drawings

drawings.data_parallel()

# %% [markdown]
# **Model parallel**: the network itself is cut into parts, a part for each GPU, and all see the same data. This makes networks
# possible that are too big for one GPU.

# %%
drawings.model_parallel()

# %% [markdown]
# In the drawing above, GPU 1 can't begin before GPU 0 has finished. Which of the two ways would you choose for a network that fits
# into one GPU?
#
# This course takes the first: the network fits into one GPU, and all GPUs are busy all the time.
#
# The workers are numbered from 0: the number of a worker is its **rank**, and the worker itself is called "rank 0", too. What makes data
# parallel training work is the **all-reduce**: every rank brings its gradients, and every rank gets the mean of all.

# %%
drawings.all_reduce()

# %% [markdown]
# ## Four ranks in this notebook \*
#
# Jobs run while you wait. To play with ranks, let this notebook have four of its own: they are a job, too, with two ranks on each of two
# nodes, and stay for an hour, or until you end them. (On two cores that do nothing else they are there after about five seconds, on a
# busy machine it can take a minute. Each takes about 180 MB of memory.)

# %%
import handson.notebook

ranks = handson.notebook.ranks(4)

# %% [markdown]
# A cell that begins with `%%px` runs on all ranks. `rank`, `local_rank` (the number on its own node), `world_size`, `torch` and
# `dist` (`torch.distributed`) are there. Predict what each rank prints, then run the cell.

# %%
# %%px
x = torch.ones(2) * rank
print(f"one of {world_size}, local rank {local_rank}: {x}")

# %% [markdown]
# Now the all-reduce, which adds up by default. What is `x` on rank 0 afterwards, and what on rank 3? Equal lines of several ranks are
# shown once.

# %%
# %%px
dist.all_reduce(x)
print(x)

# %% [markdown]
# Variables stay. A data-parallel step takes the mean: divide by the number of ranks.

# %%
# %%px
gradient = torch.tensor([1.0 + rank])
dist.all_reduce(gradient)
gradient /= world_size
print(gradient)

# %% [markdown]
# An all-reduce ends when all ranks have called it. Here one does not. What will happen?

# %%
# %%px
if rank != 2:
    dist.all_reduce(x)

# %% [markdown]
# After some seconds the notebook says who waits where, and frees the ranks; the square button does so at once. The ranks keep their
# variables: try `%px x`. (A tensor whose all-reduce was broken off may hold part of a sum on some ranks.) Break something else. Then say
# in your own words what an all-reduce does, and when it ends. (Each rank brings a tensor, and each gets the sum of all. It ends when all
# ranks have called it.) Last, end the ranks: they hold the job's nodes, for which your next job would wait.

# %%
ranks.stop()

# %% [markdown]
# ## Your first gap
#
# A job asks for its resources in a line such as `#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=1`: two nodes, and on each of them two
# GPUs, two processes (one for each GPU), and one thread a process.
#
# How many workers train together in such a job?


# %%
def workers(select, mpiprocs):
    """The number of processes in a job with `-l select=SELECT:mpiprocs=MPIPROCS`."""
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
# One GPU takes a certain time for an epoch. How many times as fast will two GPUs be? Any number that you have a reason for will do;
# in the second notebook you measure it.

# %%
# How many times as fast as one worker will two workers be?
### BEGIN SOLUTION prediction: write `prediction = ` and your number
prediction = 1.7
### END SOLUTION
print(f"I expect two workers to be {prediction} times as fast as one.")

# %% [markdown]
# ## Your first check
#
# Save the notebook (Ctrl-S) and run the cell. A check looks at what your code does, not at how it is written.

# %%
from grader import check

check("start")

# %% [markdown]
# ## What you can do now
#
# - Submit a batch job, follow it, and find its output.
# - Read from a job script how many processes it starts, and on how many nodes.
# - Say what happens in an all-reduce.
#
# Go on with the next notebook; the file browser on the left has them in order.
