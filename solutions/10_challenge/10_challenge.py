# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A challenge: a language model on a slow network
#
# Four virtual GPUs on two nodes train one small language model until its loss is low enough. The plain way does not fit into their
# memory, and the network between the nodes is slow. How you train is up to you: shard, cut into stages, compress, let ranks work alone
# for some steps, take another batch or another precision. Whoever reaches the loss first leads the class.
#
# **In about 90 minutes you will**
#
# - see which limit stops the plain way, and what the plain solution costs,
# - predict the seconds of a training before you write it,
# - write a faster one, and measure it against the plain solution.
#
# Words that are new to you are in the [glossary](../docs/glossary.md).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/10_challenge"

# %%
from handson import challenge_limits as challenge
from handson.cluster import slow_network

NETWORK = challenge.NETWORK
if why := slow_network.why_not():
    NETWORK = "none"
    print("The network can't be slowed down here. The challenge is then one of memory and computing alone:", why)

# %% [markdown]
# ## The task
#
# The text is in a language that nobody speaks: its words and sentences are made from a seed. The grader takes another seed, so it has
# another language, and parameters that you have trained before help nobody. A token is a byte.

# %%
from handson.made_text import made_text

print(made_text(seed=0, size=400).decode())

# %% [markdown]
# The network is a transformer like that of the notebook on model parallelism, but each byte sees earlier bytes alone. `Task` is all that
# your function gets.

# %%
import inspect

from handson.pytorch import challenge_task, language

print(inspect.getsource(language))
print(inspect.getsource(challenge_task))

# %%
print(f"{challenge.RANKS} virtual GPUs of {challenge.MEMORY / 2**20:.0f} MB on {challenge.NODES} nodes,", end=" ")
print(f"a network of {challenge.NETWORK} from node to node,")
print(f"a loss of {challenge.LOSS} on text that no rank has seen, in at most {challenge.SECONDS} s")

# %% [markdown]
# ## The plain way
#
# The plain solution averages the gradients of all ranks in each step. To fit, each rank takes its windows of text in two parts.

# %%
from handson.pytorch import plain_training

print(inspect.getsource(plain_training))

# %%
from handson.cluster.follow import JobFailed, follow, submit
from handson.notebook import runs


def run(method):
    """Train on four ranks with one method of train_challenge.py: its result."""
    variables = {"NAME": method, "OPTIONS": f"--method {method}", "HANDSON_NETWORK": NETWORK}
    follow(submit(FOLDER, "-j", "oe", "run_challenge.sh", **variables))
    return runs.of_methods(f"{FOLDER}/results/{method}")[method][-1]


try:
    run("whole-batch")
except JobFailed as error:
    print(error)

# %% [markdown]
# All windows at once do not fit. With micro-batches they do:

# %%
plain = run("plain")

# %% [markdown]
# ## Predict
#
# How long will a training take? In each step a rank computes. In some steps all ranks exchange something by an all-reduce. Of a ring over
# N ranks, 2 (N - 1) messages, each with 1/N of the bytes, leave a node one after the other.


# %%
def training_seconds(steps, compute, exchanges, size, ranks, rate):
    """Seconds of a training: `steps` steps that compute for `compute` seconds each, and `exchanges` all-reduces.

    size: bytes of an all-reduce, over `ranks` ranks; rate: of the network, bytes/s.
    """
    ### BEGIN SOLUTION training_seconds:
    ### return the seconds; nothing overlaps, and a message takes its bytes divided by the rate
    return steps * compute + exchanges * 2 * (ranks - 1) / ranks * size / rate
    ### END SOLUTION


# %%
from handson.scaling import message_times

rate = message_times.rate(challenge.NETWORK)
size = 4 * plain.parameters
of_network = training_seconds(plain_training.STEPS, 0, plain_training.STEPS, size, challenge.RANKS, rate)
compute = max(0, plain.seconds - of_network) / plain_training.STEPS
print(f"The plain solution took {plain.seconds:.1f} s; by your function the network needs {of_network:.1f} s of them.")
print(f"So a step computes for {1000 * compute:.0f} ms, with {plain_training.WINDOWS} windows on each rank.")

# %% [markdown]
# (`python -m handson predict` does the same for ranks with a core of their own: [Will it scale?](../docs/scaling.md). Here four ranks may
# share two cores, and the plain run has measured what that costs.)
#
# What will you change, and what will that save? Half the bytes (bfloat16), an all-reduce in every tenth step, fewer windows in more
# steps? Change the numbers until the prediction is short enough for you. Nobody can compute how many steps a loss takes: plan for some
# more.

# %%
steps, windows, exchanges = 140, 8, 140
predicted = training_seconds(steps, compute * windows / plain_training.WINDOWS, exchanges, size, challenge.RANKS, rate)
print(f"predicted: {predicted:.1f} s, {plain.seconds / predicted:.2f} times as fast as the plain solution")

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("challenge", "training_seconds")

# %% [markdown]
# ## Your solution
#
# Write your prediction into `SPEED_UP` in `pytorch/challenge.py`, then write `train` there. All that it needs has to be in this file. You
# may copy from the plain solution and from the exercises before.

# %%
# !cd {FOLDER} && grep -n "SPEED_UP\|# PUT YOUR CODE" pytorch/challenge.py

# %%
mine = run("challenge")

# %%
for name, result in {"plain": plain, "challenge": mine}.items():
    last = result.log[-1]
    memory = max(sum(account["peak"].values()) for account in result.memory) / 2**20
    print(f"{name:10} {result.seconds:6.1f} s   loss {last['main/loss']:.3f}", end="   ")
    print(f"{last['bytes'] / 1e6:6.1f} MB from node 1   {memory:5.1f} MB on the fullest GPU")
print(f"{plain.seconds / mine.seconds:.2f} times as fast as the plain solution")

# %% [markdown]
# Was your prediction within a factor of two? If not, which of its numbers was wrong: the steps, the computing, or the bytes?
#
# Your own clock does not count. The grader trains with your code itself, on two virtual nodes in a sandbox, with another seed and another
# language. In the same minute it trains with the plain solution. It computes the loss from the network that rank 0 returns. What counts
# on the leaderboard is the ratio of the two times. A run that misses the loss is not on it.
#
# ## Check
#
# The check does what the grader does, and takes a minute. Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("challenge")

# %% [markdown]
# ## What you can do now
#
# - Say which limit stops a training, and choose a method that gets round it.
# - Predict what a method saves before you write it.
