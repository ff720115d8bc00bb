# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A network that does not fit
#
# So far each GPU had the whole network, and only the data were divided. What if the network is too large for one GPU? Here the virtual
# GPUs have a memory of a size that you choose. You see when it is full, what helps before anything is split, and three ways to split.
#
# **In about 180 minutes you will**
#
# - say from paper what a training needs: parameters, gradients, optimizer state, activations,
# - save memory on one GPU: gradient accumulation, activation checkpointing,
# - divide the optimizer's state among ranks (ZeRO), then all of it (FSDP),
# - split a network between its layers: a pipeline, and three orders of its work,
# - split a network inside its products: tensor parallelism,
# - do both at once, and say which belongs inside a node.
#
# Words that are new to you are in the [glossary](../docs/glossary.md).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/06_model_parallel"
NETWORK = "80mbit"  # between the two virtual nodes, where it is the lesson

# %%
from handson.cluster import virtual_nodes
from handson.cluster.follow import follow, submit
from handson.notebook import communication

if why := virtual_nodes.why_not():
    NETWORK = "none"
    print("There are no virtual nodes here, so the network can't be slowed down. Everything runs, but bytes cost nothing:", why)


def run(script, name, options, network="none", select="1:ngpus=1:mpiprocs=1:ompthreads=1", track="pytorch"):
    """Run a script, into results/`name`; returns its results: method -> a result for each seed."""
    variables = {"SCRIPT": script, "NAME": name, "OPTIONS": options, "TRACK": track}
    follow(submit(FOLDER, "-V", "-l", f"network={network}", "-l", f"select={select}", "-j", "oe", "run_script.sh", **variables))
    return communication.trainings(f"{FOLDER}/results/{name}")


# %% [markdown]
# ## Does it fit?
#
# The network is a transformer, which today's large networks are. An image is cut into *patches*, each patch becomes a *token* of
# `width` numbers, and every block lets the tokens look at each other. Read it; all sections use it:

# %%
import inspect

from handson.pytorch import transformer

print(inspect.getsource(transformer))

# %% [markdown]
# How many parameters has it? A block of width w has four products of w x w in its attention, and two of w x 4w in its MLP; each has a bias. Each
# of its two norms has 2 w parameters.


# %%
def block_parameters(width):
    """The number of parameters of one Block."""
    ### BEGIN SOLUTION block_parameters: return the number, with all biases and both norms
    attention = 4 * (width * width + width)
    mlp = 4 * width * width + 4 * width + 4 * width * width + width
    norms = 2 * 2 * width
    return attention + mlp + norms
    ### END SOLUTION


# %% [markdown]
# ## Before you split

# %% [markdown]
# ## Split the state

# %% [markdown]
# ## Split between layers

# %% [markdown]
# ## Split in the products

# %% [markdown]
# ## Both at once

# %% [markdown]
# ## Chainer's way

# %% [markdown]
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("model_parallel")

# %% [markdown]
# ## What you can do now
#
# - Say from paper whether a training fits a GPU, and which part fills it.
# - Choose what to do about it: smaller micro-batches, computing again, sharing the state, splitting the network.
# - Write a pipeline, and say what its bubble costs.
# - Split a product over ranks, with one all-reduce in each direction.
# - Say which kind of parallelism belongs inside a node.
