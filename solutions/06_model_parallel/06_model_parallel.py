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
#
# When one GPU cannot hold the network, several can: the first GPU takes the first layers, the next GPU those behind them. Each such part is a
# *stage*. Activations go from stage to stage in forward, gradients go back in backward. Done naively, one stage works while all others wait:

# %%
from handson.pipelines import simulate

naive = [["F0", "B0"], ["F0", "B0"], ["F0", "B0"]]  # for each stage its operations: forward and backward of micro-batch 0
simulate(naive).picture("3 stages, the batch in one piece")

# %% [markdown]
# If a batch is cut into *micro-batches*, stage 0 can begin with the second one while stage 1 does the first. `F1` is the forward of
# micro-batch 1, `B1` its backward, which here takes twice as long. The idle time that is left is the *bubble*. A stage holds the activations of a
# micro-batch from its forward to its backward.
#
# First without a computer: write the operations of 3 stages for the micro-batches 0 to 3, each stage a list. No stage may be idle longer than it
# must, and stage 0 may hold the activations of three micro-batches at once, stage 1 those of two, stage 2 those of one.

# %%
### BEGIN SOLUTION by_hand: write `by_hand = [[...], [...], [...]]`, three lists of texts such as "F0" and "B0"; the picture shows what they do
by_hand = [
    ["F0", "F1", "F2", "B0", "F3", "B1", "B2", "B3"],
    ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"],
    ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"],
]
### END SOLUTION
timeline = simulate(by_hand)
print("activations held at once by each stage:", timeline.held)
timeline.picture("by hand")

# %% [markdown]
# How large is the bubble of p stages and m micro-batches? The last stage begins p - 1 forwards late, and the first one waits as long for
# the gradients at the end.


# %%
def bubble(stages, micro_batches):
    """The share of the stages' time in which they are idle, if all stages take the same time and no stage waits longer than it must."""
    ### BEGIN SOLUTION bubble: return the share, a number from 0 to 1
    return (stages - 1) / (micro_batches + stages - 1)
    ### END SOLUTION


# %%
print(f"your schedule: {timeline.bubble:.4f} idle; your formula: {bubble(3, 4):.4f}")
for micro_batches in (1, 2, 4, 8, 32):
    print(micro_batches, "micro-batches:", {stages: round(bubble(stages, micro_batches), 3) for stages in (2, 4, 8)})

# %% [markdown]
# Now for any number of stages and micro-batches: fill the gaps of `pytorch/schedules.py`. **GPipe** does all forwards, then all backwards. **1F1B**,
# one forward one backward, begins as early with a backward as it can. Their bubbles are equal. What does 1F1B gain?

# %%
import runpy

schedules = runpy.run_path(f"{FOLDER}/pytorch/schedules.py")


def of_all_stages(name, stages, micro_batches):
    return [schedules[name](stage, stages, micro_batches) for stage in range(stages)]


simulate(of_all_stages("gpipe", 4, 8)).picture("GPipe")

# %%
simulate(of_all_stages("one_forward_one_backward", 4, 8)).picture("1F1B")


# %%
def held_bytes(schedule, stage, stages, micro_batches, activations):
    """The most bytes of activations that a stage holds at once; `schedule` is "gpipe" or "1f1b".

    activations: bytes that the stage holds for one micro-batch, from its forward to its backward.
    """
    ### BEGIN SOLUTION held_bytes: return the bytes; stages are numbered from 0; a stage never holds more than there are micro-batches
    if schedule == "gpipe":
        return micro_batches * activations
    return min(stages - stage, micro_batches) * activations
    ### END SOLUTION


# %% [markdown]
# ## A pipeline of processes
#
# Fill the gaps of `pytorch/pipeline.py`: which layers a stage has, a forward and a backward with their messages. Then fill the gap of
# `pytorch/torch_pipeline.py`, the same with `torch.distributed.pipelining`. The script trains with either; a batch has 8 micro-batches of 8 images.
#
# How many times as fast as one process will two stages be, with 1F1B?

# %%
### BEGIN SOLUTION prediction_pipeline: write `prediction_pipeline = ` and your number: 1 means as fast as one process
prediction_pipeline = 1.6
### END SOLUTION
print(f"I expect {prediction_pipeline} times the throughput; the bubble allows {2 * (1 - bubble(2, 8)):.2f}.")

# %%
TWO_RANKS, FOUR_RANKS = "1:ngpus=2:mpiprocs=2:ompthreads=1", "2:ngpus=2:mpiprocs=2:ompthreads=1"
one_process = run("train_pipeline.py", "one_process", "--method naive --epoch 1")
two_stages = run("train_pipeline.py", "two_stages", "--method all --epoch 1", select=TWO_RANKS)

# %%
from handson.notebook import pipelined

pipelined.throughputs({"one process": one_process["naive"]} | two_stages, {name: 2 * (1 - bubble(2, m)) for name, m in (("naive", 1), ("gpipe", 8), ("1f1b", 8))})

# %% [markdown]
# The script has measured when each operation began and ended, in one step. Do you find your schedules again?

# %%
pipelined.measured(f"{FOLDER}/results/two_stages/gpipe_0").picture("GPipe, measured")

# %%
pipelined.measured(f"{FOLDER}/results/two_stages/1f1b_0").picture("1F1B, measured")

# %% [markdown]
# And the activations, on four stages? Each rank's tensors are counted now. What does your `held_bytes` predict for stage 0 with 1F1B, from what it holds with GPipe?

# %%
four_stages = run("train_pipeline.py", "four_stages", "--method gpipe 1f1b --epoch 1 --gpu-memory unlimited", select=FOUR_RANKS)
pipelined.activations({method: f"{FOLDER}/results/four_stages/{method}_0" for method in ("gpipe", "1f1b")}, held_bytes, stages=4, micro_batches=8)

# %% [markdown]
# 1F1B holds as many micro-batches as there are stages behind, whatever their number: so a batch can be cut into many micro-batches, and the bubble
# becomes small, without more memory.

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
