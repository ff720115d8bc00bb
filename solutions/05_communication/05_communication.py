# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The network is the limit
#
# On a slow network, two workers can be slower than one. This notebook shows why, and how much of the lost time you win
# back if ranks send while they compute. You implement an all-reduce, then data parallel training with it.
#
# **In about 100 minutes you will**
#
# - implement an all-reduce in three ways, and choose the best one for a message size,
# - measure latency and bandwidth, and use them to predict the time of an all-reduce,
# - implement the core of DistributedDataParallel: all-reduces that start while backward is still running.
#
# Sections with a star (\*) give no points: leave them out if time is short. Words that are new to you are in the
# [glossary](../docs/glossary.md).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/05_communication"
NETWORK = "100mbit"  # network speed between the two virtual nodes, for training
MESSAGES = "350mbit"  # the same, for all-reduces without training

# %%
from handson.cluster import slow_network
from handson.cluster.follow import follow, submit
from handson.notebook import communication, profiled_runs, runs

if why := slow_network.why_not():
    NETWORK = MESSAGES = "none"
    print("The network can't be slowed down here, so the figures show your own network:", why)


def run(script, name, options, network=NETWORK, select="2:ngpus=1:mpiprocs=1:ompthreads=1"):
    """Run a script on two nodes, with its files in results/`name`. Return method -> a Result per seed."""
    variables = {"SCRIPT": script, "NAME": name, "OPTIONS": options, "HANDSON_NETWORK": network}
    job = submit(FOLDER, "-l", f"select={select}", "-j", "oe", "run_script.sh", **variables)
    follow(job, say=runs.folded())  # prints only the last line of each training run's table
    return runs.of_methods(f"{FOLDER}/results/{name}")


# %% [markdown]
# ## An all-reduce from scratch
#
# Every rank has a tensor; afterwards every rank has the sum of all of them. There are three ways to get there, with N ranks and a tensor
# of n bytes:
#
# - **naive**: every rank sends its tensor to rank 0, which adds them up and sends the sum back to every rank;
# - **ring**: each rank sends to its right neighbour only, 1/N of the tensor at a time. After N - 1 steps, each rank has the full sum of
#   *one* part (*reduce-scatter*). After N - 1 more steps, each rank has the full sum of every part (*all-gather*);
# - **doubling**: in round k, each rank exchanges everything with the rank at distance 2^k. After log2 N rounds, all ranks have the sum.
#
# How many bytes does the busiest rank send?


# %%
def bytes_sent(algorithm, n, ranks):
    """Bytes that the busiest rank sends in an all-reduce of n bytes.

    algorithm: "naive", "ring" or "doubling"; ranks: a power of two.
    """
    ### BEGIN SOLUTION bytes_sent:
    ### return the number of bytes for `algorithm`. log2 of `ranks`, a power of two, is
    ### `ranks.bit_length() - 1`
    if algorithm == "naive":
        return (ranks - 1) * n
    if algorithm == "ring":
        return 2 * (ranks - 1) / ranks * n
    return (ranks.bit_length() - 1) * n
    ### END SOLUTION


# %%
print("Sent by the busiest rank, in messages of n bytes:")
print("ranks   naive    ring  doubling")
for ranks in (2, 4, 16, 64):
    naive, ring, doubling = (bytes_sent(name, 1, ranks) for name in ("naive", "ring", "doubling"))
    print(f"{ranks:5} {naive:7} {ring:7.2f} {doubling:9}")

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("communication", "bytes_sent")

# %% [markdown]
# ## A ring by hand
#
# First plan a ring by hand. Three ranks form a ring: rank 0 sends to rank 1, rank 1 to rank 2, and rank 2 to rank 0. Each rank has three
# chunks, numbered 0, 1 and 2. In every step, all ranks send one chunk at the same time. In steps 1 and 2, the receiver adds the chunk that
# arrives to its own chunk with the same number. In steps 3 and 4, the chunk that arrives replaces its own.
#
# Which chunk does each rank send in each step? Replace each `[]` with three chunk numbers, and run the cell after each step. The figure
# shows whose numbers each chunk holds: `01` is the sum of the numbers of ranks 0 and 1. A thick frame marks a chunk that has just arrived.
# Below the figure, a sentence names the first step that goes wrong. (This cell gives no points.)

# %%
from handson import rings

# the chunks that ranks 0, 1 and 2 send
ring_by_hand = [
    [0, 1, 2],  # step 1
    [],  # step 2
    [],  # step 3
    [],  # step 4
]
rings.picture(ring_by_hand)

# %% [markdown]
# ## Write them
#
# Fill the gaps of `pytorch/all_reduce.py`. It imports three functions for communication:
#
# - `send(tensor, to)` starts a send, and returns a handle with a `wait()`;
# - `receive(like, source)` blocks until a tensor with the shape and type of `like` has arrived, and returns it;
# - `expect(like, source)` only starts a receive, and returns a handle whose `wait()` returns the tensor. Call `expect`
#   before `send`, so that both directions of the network are used at the same time.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/all_reduce.py  # the gaps

# %% [markdown]
# First make a prediction. The job below runs the three all-reduces on two nodes with two ranks each, for messages from 64 bytes to 4 MiB.
# It takes about 1 minute, and up to 4 on a busy machine.

# %%
# From which message size on is your ring faster than your doubling?
### BEGIN SOLUTION prediction_ring: write `prediction_ring = ` and your number of bytes
prediction_ring = 50_000
### END SOLUTION
print(f"I expect the ring to win from {prediction_ring:,} bytes on.")

# %%
variables = {"OPTIONS": "--largest 4194304 -o results/all_reduce", "HANDSON_NETWORK": MESSAGES}
follow(submit(FOLDER, "-j", "oe", "run_all_reduce.sh", **variables))
measured = communication.all_reduces(f"{FOLDER}/results/all_reduce")
predicted = globals().get("prediction_ring")  # None if you skipped it
communication.seconds_against_bytes(measured, crossing=predicted)

# %% [markdown]
# All small messages take about the same time: it depends on the *number* of messages that are sent one after another.
# For large messages, it depends on the number of bytes. If your curves jump up and down, other programs were busy: run
# the cell again.
#
# Did the ranks send as many bytes as your formulas predict?

# %%
from functools import partial

formulas = {name: partial(bytes_sent, name, 1) for name in ("naive", "ring", "doubling")}
communication.bytes_sent(measured, formulas)

# %%
check("communication", "prediction_ring", "all_reduce.py")

# %% [markdown]
# ## \* Your ring, step by step
#
# Four live ranks, as in `00_start`, run your `ring` on four numbers each. All numbers of rank r are 10^r: 1, 10, 100 or 1000. So each digit
# of a sum shows whether the number of that rank is part of it.

# %%
import handson.notebook

ranks = handson.notebook.ranks(4)

# %% [markdown]
# The next cell replaces `send` with a function that first copies `x`. This gives one copy per step.

# %%
# %%px
import sys

sys.path.insert(0, "../exercises/05_communication/pytorch")
import all_reduce

from handson.pytorch import messages

x = torch.full((world_size,), 10.0**rank)
copies = []


def send(tensor, to):
    copies.append(x.clone())
    return messages.send(tensor, to)


all_reduce.send = send
all_reduce.ring(x)
copies.append(x.clone())
print(x)

# %% [markdown]
# Which chunk of rank 0 will be complete first, and after which step? The figure shows for each rank whose numbers each chunk holds.

# %%
from handson.notebook import drawings

drawings.chunks(ranks.pull("copies"))

# %% [markdown]
# After three steps (*reduce-scatter*), rank r has *one* complete chunk, number (r + 1) modulo 4. Three more
# (*all-gather*) pass the complete chunks around. In each step, every rank sends one chunk and receives one: all
# connections of the ring are in use all the time. What would the figure of `naive` look like?

# %%
ranks.stop()

# %% [markdown]
# ## Latency and bandwidth
#
# A message of n bytes takes about *alpha + n / beta* seconds: alpha is the latency, beta the bandwidth in bytes/s (Hockney 1994). Two
# measurements determine both: insert the smallest and the largest message into the formula, and solve the two equations.


# %%
def alpha_beta(sizes, seconds):
    """alpha in microseconds and beta in MB/s, such that alpha + size / beta is exactly the time of the first and of the
    last message.

    sizes: bytes, increasing; seconds: the time of a message of each size. 1 MB/s is one byte per microsecond.
    """
    ### BEGIN SOLUTION alpha_beta:
    ### return the list `[alpha, beta]`. Write the formula for the first and for the last message,
    ### and solve the two equations
    first, last = 1e6 * seconds[0], 1e6 * seconds[-1]  # microseconds
    beta = (sizes[-1] - sizes[0]) / (last - first)
    alpha = first - sizes[0] / beta
    return [alpha, beta]
    ### END SOLUTION


# %%
sizes, seconds = communication.of(measured, "doubling")
rounds = measured["ranks"].bit_length() - 1
alpha, beta = alpha_beta(sizes, seconds / rounds)  # each round is one message
print(f"alpha = {alpha:.0f} microseconds, beta = {beta:.1f} MB/s = {8 * beta:.0f} Mbit/s")

# %% [markdown]
# NCCL chooses between its algorithms with the same model. Its source contains these values of alpha, for one step of a
# ring with short messages (NCCL's protocol LL). Beta is the rate of the link in one direction:
#
# | link | alpha [microseconds] | beta [MB/s] |
# |---|---|---|
# | NVLink 4 (H100) | 0.6 | 450,000 |
# | PCI Express 5.0, 16 lanes | 1.0 | 64,000 |
# | InfiniBand NDR, 400 Gbit/s | 2.7 | 50,000 |
# | Ethernet, 100 Gbit/s | 2.7 | 12,500 |
#
# From NVLink to InfiniBand, alpha grows by a factor of 4.5, and beta falls by a factor of 9. By which factors do your
# alpha and beta differ from those of InfiniBand?
#
# With alpha and beta you can predict the time of any algorithm. `doubling` sends log2 N messages of n bytes, one after the other. `ring`
# sends 2 (N - 1) messages of n / N bytes. From which size on is the ring faster?


# %%
def ring_wins_from(alpha, beta, ranks):
    """The size in bytes at which ring and doubling take the same time.

    alpha: microseconds; beta: MB/s; ranks: a power of two above 2.
    """
    ### BEGIN SOLUTION ring_wins_from:
    ### return the number of bytes. Set the two times equal, and solve for n
    rounds = ranks.bit_length() - 1
    more_messages = 2 * (ranks - 1) - rounds
    fewer_bytes = rounds - 2 * (ranks - 1) / ranks
    return more_messages * alpha * beta / fewer_bytes
    ### END SOLUTION


# %%
ranks = measured["ranks"]
by_formula = ring_wins_from(alpha, beta, ranks)
print(f"predicted by the formula: {by_formula:,.0f} bytes; by you:", predicted)
model = {
    "ring": lambda n: 2 * (ranks - 1) * (alpha + n / ranks / beta) / 1e6,
    "doubling": lambda n: rounds * (alpha + n / beta) / 1e6,
}
communication.seconds_against_bytes(measured, model, crossing=predicted)

# %% [markdown]
# The measurements deviate from the model, for these reasons. (A single point far above its neighbours comes from other programs.)
#
# - Short messages of the ring can take longer than predicted, or less time. You computed alpha from `doubling`, whose
#   first round stays inside a node. So your alpha is the mean of a fast and a slow connection. In the ring, every step
#   sends a message between the nodes, and all ranks wait for it, which makes it slower. But alpha depends on a single
#   measurement: if this one was disturbed, both predicted curves begin too high.
# - At 64 KB, ring and doubling are usually faster than predicted. The rate limit of a virtual network lets about 22 KB pass
#   at full speed after each pause, and the ring sends this message in parts of 16 KB.
# - For long messages, the model is too simple in two ways. In doubling's second round, both ranks of a node share its network card; in the
#   ring, only one of them sends to the other node, which makes the ring faster. But each of its steps waits for the slowest rank, which
#   makes it slower, above all while other programs use the cores.
#
# The model has a single alpha and a single beta. Real libraries do as you did: they measure, and choose the algorithm by message size.

# %%
check("communication", "alpha_beta", "ring_wins_from")

# %% [markdown]
# ## Data parallel from scratch
#
# How does `DistributedDataParallel` use all-reduces? Backward computes the gradients of the *last* layer first. While backward continues
# with the earlier layers, these gradients can already be sent. This needs four things:
#
# - all ranks start with the same parameters (a **broadcast**);
# - a **hook** on each parameter: PyTorch calls it as soon as its gradient is complete;
# - **buckets**: each message costs alpha, so the gradients of several layers share one. As soon as a bucket's last gradient is ready, its
#   all-reduce starts, and backward continues;
# - before the optimizer step, the ranks **wait** for the all-reduces that are still in flight.
#
# Fill the gaps of `pytorch/data_parallel.py`. `pytorch/train_data_parallel.py` trains with your functions:

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/data_parallel.py  # the gaps
# !cd {FOLDER} && sed -n '/^def train/,/report/p' pytorch/train_data_parallel.py

# %% [markdown]
# `DeepNet` has 12 equal layers of 148 KB. Which bucket size is the fastest: one parameter per bucket (`1-KB`), two or four layers per
# bucket (`300-KB`, `600-KB`), or everything in one bucket? The job also trains with PyTorch's own `DistributedDataParallel`.

# %%
BUCKETS = "1-KB 300-KB 600-KB one-bucket torch-ddp"
### BEGIN SOLUTION prediction_bucket:
### write `prediction_bucket = ` and the size in KB that you expect to be the fastest. With 1800,
### everything is in one bucket
prediction_bucket = 600
### END SOLUTION
print(f"I expect buckets of {prediction_bucket} KB to be the fastest.")


# %%
options = f"--method {BUCKETS} --epoch 1 --batchsize 50"
of_sizes = run("train_data_parallel.py", "data_parallel", options)
predicted = globals().get("prediction_bucket")  # None if you skipped it
communication.buckets(of_sizes, expected=predicted)

# %% [markdown]
# Small buckets pay alpha too often. A single bucket can only be sent after backward, so no communication is hidden. The best size lies in
# between. PyTorch's default is 25 MiB, for much larger networks.
#
# All five methods end with the same loss, so all of them compute the same updates. (On a GPU, the losses differ: on an
# H200, they were 1.06 to 1.19. Its convolutions add up numbers in a varying order.) The accuracy is that of guessing,
# because training stops after 15 steps: by then, the running statistics of the batch normalisations, which the
# evaluation uses, are still far from the statistics of the data.

# %%
check("communication", "prediction_bucket", "data_parallel.py")

# %% [markdown]
# ## \* See it in the timeline
#
# Predict before you run the cell: where in the step will the all-reduces be?

# %%
hidden = [
    profiled_runs.of_method(FOLDER, "train_data_parallel.py", NETWORK, method, "--epoch 1 --batchsize 50")
    for method in ("one-bucket", "600-KB")
]
profiled_runs.show(*hidden, steps=2)

# %% [markdown]
# In a terminal, `python -m handson timeline ../exercises/05_communication/results/train_data_parallel_*_profile` draws the same figure.

# %% [markdown]
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("communication", "05_communication.ipynb", "all_reduce.py", "data_parallel.py")

# %% [markdown]
# ## What you can do now
#
# - Predict the time of an all-reduce from two measured numbers.
# - Implement a ring all-reduce, and say for which messages another algorithm is better.
# - Implement a minimal DistributedDataParallel in four functions, and choose the size of its buckets.
#
# Continue with `05b_communication`.
