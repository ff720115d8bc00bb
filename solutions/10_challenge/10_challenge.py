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
# Four virtual GPUs on two nodes train a small language model until its loss is low enough. A whole batch does not fit
# into their memory, and the network between the nodes is slow. You choose how to train: shard the network, split it
# into stages, compress the gradients, let the ranks run some steps without communication, change the batch or the
# precision. The fastest solution leads the class.
#
# **In about 90 minutes you will**
#
# - find the limit that stops training with whole batches, and measure the plain solution,
# - predict the seconds of a training run before you write it,
# - write a faster solution, and measure it against the plain one.
#
# New words are in the [glossary](../docs/glossary.md).
#
# This notebook is written for virtual GPUs. On a machine with real ones, first run `%env HANDSON_DEVICE=cpu` in a new
# cell above the next one ([the reason](../docs/gpus.md#which-notebooks-use-gpus)).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/10_challenge"

# %%
from handson import challenge_limits as challenge
from handson.cluster import slow_network

NETWORK = challenge.NETWORK
if why := slow_network.why_not():
    NETWORK = "none"
    print("The network cannot be slowed down here, so the challenge is only about memory and computing:", why)

# %% [markdown]
# ## The task
#
# The text is in an invented language: its words and sentences are generated from a seed. The grader uses another seed,
# so its text is in another language, and parameters from your earlier runs do not help. A token is a byte.

# %%
from handson.made_text import made_text

print(made_text(seed=0, size=400).decode())

# %% [markdown]
# The network is a transformer like in the notebooks on model parallelism, but each byte sees only itself and earlier
# bytes. Your function gets one argument, a `Task`.

# %%
import inspect

from handson.pytorch import challenge_task, language

print(inspect.getsource(language))
print(inspect.getsource(challenge_task))

# %%
print(f"{challenge.RANKS} virtual GPUs of {challenge.MEMORY / 2**20:.0f} MiB on {challenge.NODES} nodes,", end=" ")
print(f"a network of {challenge.NETWORK} between the nodes,")
print(f"a loss of {challenge.LOSS} on text that no rank has seen, in at most {challenge.SECONDS} s")

# %% [markdown]
# ## The plain solution
#
# The plain solution averages the gradients of all ranks in each step. To fit into the memory, each rank processes its
# windows of text in two micro-batches.

# %%
from handson.pytorch import plain_training

print(inspect.getsource(plain_training))

# %%
from handson.cluster.follow import JobFailed, follow, submit
from handson.notebook import challenge_figure, runs


def run(method):
    """Train on four ranks with one method of train_challenge.py, and return its result."""
    variables = {"NAME": method, "OPTIONS": f"--method {method}", "HANDSON_NETWORK": NETWORK}
    follow(submit(FOLDER, "-j", "oe", "run_challenge.sh", **variables))
    return runs.of_methods(f"{FOLDER}/results/{method}")[method][-1]


try:
    run("whole-batch")
except JobFailed as error:
    print(error)

# %% [markdown]
# All windows at once do not fit. Two micro-batches do:

# %%
plain = run("plain")

# %% [markdown]
# ## Predict
#
# How long will a training run take? Each step computes. In some steps, the ranks also exchange numbers with an
# all-reduce. In a ring of N ranks, 2 (N - 1) messages leave a node one after the other, and each message has 1/N of the
# bytes.


# %%
def training_seconds(steps, compute, exchanges, size, ranks, rate):
    """Return the seconds of a training run with `steps` steps, each of `compute` seconds, and `exchanges` all-reduces.

    size: bytes of an all-reduce among `ranks` ranks; rate: bytes/s of the network.
    """
    ### BEGIN SOLUTION training_seconds:
    ### return the seconds. Nothing overlaps, and a message takes its bytes divided by the rate
    return steps * compute + exchanges * 2 * (ranks - 1) / ranks * size / rate
    ### END SOLUTION


# %%
from handson.scaling import message_times

rate = message_times.rate(challenge.NETWORK)
size = 4 * plain.parameters
of_network = training_seconds(plain_training.STEPS, 0, plain_training.STEPS, size, challenge.RANKS, rate)
compute = max(0, plain.seconds - of_network) / plain_training.STEPS
print(
    f"The plain solution took {plain.seconds:.1f} s; your function attributes {of_network:.1f} s of them to the network."
)
print(f"So a step computes for {1000 * compute:.0f} ms, with {plain_training.WINDOWS} windows on each rank.")

# %% [markdown]
# (The command `python -m handson predict`, explained in [Will it scale?](../docs/scaling.md), assumes a core for each
# rank. Here, four ranks may share two cores. Your estimate contains this cost, because `compute` comes from the plain
# run.)
#
# What will you change, and how much time will it save? Options are half the bytes (bfloat16), an all-reduce in every
# tenth step, or fewer windows in more steps. Change the numbers until the prediction is short enough for you. Nobody
# can compute how many steps it takes to reach the loss, so plan for some extra steps.

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
# Write your prediction into `SPEED_UP` in `pytorch/challenge.py`, then write `train` there. This file must contain all
# of your code. You may copy from the plain solution and from earlier exercises.

# %%
# !cd {FOLDER} && grep -n "SPEED_UP\|# PUT YOUR CODE" pytorch/challenge.py

# %%
mine = run("challenge")

# %%
for name, result in {"plain": plain, "challenge": mine}.items():
    print(f"{name:10} {result.seconds:6.1f} s   loss {result.log[-1]['main/loss']:.3f}")
print(f"{plain.seconds / mine.seconds:.2f} times as fast as the plain solution")
expected = globals().get("predicted")  # None if you skipped it
challenge_figure.picture({"plain": plain, "challenge": mine}, {"challenge": expected} if expected else None)

# %% [markdown]
# Was your prediction within a factor of two? If not, which number was wrong: the steps, the computing time, or the
# bytes?
#
# The times above do not count. The grader runs your code itself, on two virtual nodes in a sandbox, with another seed
# and another language. Right after that, it trains with the plain solution. It computes the loss from the network that
# rank 0 returns. The leaderboard ranks the ratio of the two times. A run that does not reach the loss is not on it.
#
# ## Check
#
# The check does the same as the grader. It takes about a minute on idle cores. Save the notebook (Ctrl-S) and run the
# cell.

# %%
from grader import check

check("challenge")

# %% [markdown]
# ## What you can do now
#
# - Find the limit that stops a training run, and choose a method that avoids it.
# - Predict the savings of a method before you write it.
