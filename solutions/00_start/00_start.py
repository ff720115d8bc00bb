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
# No GPU here? Then a *virtual GPU* stands for one: a process with one thread on a core of its own.

# %% [markdown]
# ## The machine you are on
#
# How many cores can you use? Guess before you run the cell.

# %%
import os

import torch

print(len(os.sched_getaffinity(0)), "cores")
print(torch.cuda.device_count(), "GPUs")

# %% [markdown]
# A cluster is reached through a batch system. `pbsnodes` shows its nodes; on a machine without PBS they are two *virtual nodes*.

# %%
# !pbsnodes -aSj

# %% [markdown]
# ## Your first job
#
# A job script is a shell script. Its `#PBS` lines say what the job needs: a queue, nodes and cores, a group, a time limit, a name.

# %%
# !cat ../exercises/00_start/first_job.sh

# %% [markdown]
# `qsub` hands the script to PBS and prints the job's number; `-j oe` puts output and errors into one file. Which name will that
# file have? The next cell submits the job and shows its output as it comes.

# %%
from handson.follow import follow, submit

folder = "../exercises/00_start"
job = submit(folder, "-j", "oe", "first_job.sh")
print(job)
follow(job, f"{folder}/first_job.o{job.split('.')[0]}")

# %% [markdown]
# `qstat` shows jobs that wait (Q) or run (R), and with `-x` those that have finished (F) too.

# %%
# !qstat -x

# %% [markdown]
# ## Four steps of distributed training
#
# One iteration of ordinary training is *forward*, *backward*, *optimize*. **Data parallel** training runs it on several workers at
# once, each with the same network and its own part of the data, and puts a fourth step in between: the **all-reduce** gives every
# worker the mean of all workers' gradients, so that all optimize alike. **Model parallel** training splits the network itself, where
# it doesn't fit into one GPU.
#
# What do you expect of two workers: twice as many images a second? A bit less? Write it down.
#
# ## Go on
#
# Open `exercises/01_single_gpu` in the file browser on the left. In `pytorch/train_cifar_single_gpu.py` (or `chainer/`, as you like)
# and in `run_single_gpu_training.sh`, look for PUT YOUR CODE. Then, in a terminal:
#
#     cd exercises/01_single_gpu
#     qsub -j oe run_single_gpu_training.sh
#
# and so on with `02_multi_gpu` and `03_multi_node`. At the end, `python -m handson compare */results/*` in `exercises` draws your runs.
