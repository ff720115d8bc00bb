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
# On a slow network, two workers can be slower than one. This notebook shows why, and how to win the time back. You write an
# all-reduce yourself, then send while computing, send fewer bytes, send seldom, and do without waiting.
#
# **In about 150 minutes you will**
#
# - write an all-reduce in three ways, and say which is the best for which size of message,
# - measure latency and bandwidth, and predict from them,
# - write what DistributedDataParallel does: all-reduces that begin while backward goes on,
# - write communication hooks that send fewer bytes, or send them during the next step,
# - let ranks communicate seldom (local SGD, block momentum), or not wait for each other (a parameter server),
# - judge from seconds to an accuracy whether that pays,
# - kill a node, and let the training end as if nothing had happened.
#
# Words that are new to you are in the [glossary](../docs/glossary.md).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/05_communication"
TRACK = "pytorch"  # or "chainer": of the scripts that both tracks have
NETWORK = "80mbit"  # between the two virtual nodes, for the trainings
MESSAGES = "350mbit"  # for the all-reduces alone
SEEDS, EPOCHS = 2, 6  # each method trains so often, and so long

# %%
from handson.cluster import slow_network

if why := slow_network.why_not():
    NETWORK = MESSAGES = "none"
    print(
        "The network can't be slowed down here. All-reduces show what it is; a method may send less and not win:", why
    )

# %% [markdown]
# ## An all-reduce from scratch
#
# Every rank has a tensor; afterwards every rank has the sum of all of them. Three ways to get there, with N ranks and n bytes:
#
# - **naive**: all send to rank 0, which adds up and sends the sum back to each of them;
# - **ring**: each rank sends to its right neighbour only, 1/N of the tensor at a time. After N - 1 steps each rank has the sum of *one*
#   part (*reduce-scatter*), after N - 1 more each has all sums (*all-gather*);
# - **doubling**: in round k each rank exchanges everything with the rank at distance 2^k. After log2 N rounds all have the sum.
#
# How many bytes does the rank that sends most have to send?


# %%
def bytes_sent(algorithm, n, ranks):
    """Bytes sent by the rank that sends most, in an all-reduce of n bytes; `algorithm` is "naive", "ring" or
    "doubling".

    ranks: a power of two.
    """
    ### BEGIN SOLUTION bytes_sent:
    ### return the bytes, for each of the three algorithms; `ranks.bit_length() - 1` is log2 of a
    ### power of two
    if algorithm == "naive":
        return (ranks - 1) * n
    if algorithm == "ring":
        return 2 * (ranks - 1) / ranks * n
    return (ranks.bit_length() - 1) * n
    ### END SOLUTION


# %%
for ranks in (2, 4, 16, 64):
    print(ranks, "ranks:", {name: bytes_sent(name, 1, ranks) for name in ("naive", "ring", "doubling")}, "times n")

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("communication", "bytes_sent")

# %% [markdown]
# ## Write them
#
# Fill the gaps of `pytorch/all_reduce.py`: `send(tensor, to)` starts to send and returns something to `wait()` for;
# `receive(like, source)` waits for a tensor. `expect(like, source)` only starts to receive; its `wait()` returns the tensor. A rank that
# expects before it sends uses both directions of the network at once.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" pytorch/*.py

# %% [markdown]
# First a prediction. The job below runs them on two nodes with two ranks each, with messages from 64 bytes to 4 MB.

# %%
# From how many bytes on will your ring be faster than your doubling?
### BEGIN SOLUTION prediction_ring: write `prediction_ring = ` and your number of bytes
prediction_ring = 50_000
### END SOLUTION
print(f"I expect the ring to win from {prediction_ring:,} bytes on.")

# %%
from handson.cluster.follow import follow, submit
from handson.notebook import communication, runs

variables = {"OPTIONS": "--largest 4194304 -o results/all_reduce", "HANDSON_NETWORK": MESSAGES}
follow(submit(FOLDER, "-j", "oe", "run_all_reduce.sh", **variables))
measured = communication.all_reduces(f"{FOLDER}/results/all_reduce")
communication.seconds_against_bytes(measured)

# %% [markdown]
# Small messages take the same time whatever their size: it is the *number* of messages, one after the other, that costs. For large
# ones it is the bytes. Did the ranks send what the formulas say?

# %%
from functools import partial

formulas = {name: partial(bytes_sent, name, 1) for name in ("naive", "ring", "doubling")}
communication.bytes_sent(measured, formulas)

# %%
check("communication", "prediction_ring", "all_reduce.py")

# %% [markdown]
# ## Latency and bandwidth
#
# A message of n bytes takes about *alpha + n / beta* seconds: alpha is the latency, beta the bandwidth in bytes/s (Hockney 1994). Two
# measured points give both: take the smallest message for alpha, and the largest for beta.


# %%
def alpha_beta(sizes, seconds):
    """alpha in microseconds and beta in MB/s, such that alpha + size / beta fits the first and the last message
    exactly.

    sizes: bytes, growing; seconds: how long a message of each size took. A MB/s is a byte per microsecond.
    """
    ### BEGIN SOLUTION alpha_beta:
    ### return the two numbers `[alpha, beta]`; solve the two equations for the first and the last
    ### message
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
# With alpha and beta, the time of any algorithm can be predicted: `doubling` sends log2 N messages of n bytes, one after the other;
# `ring` sends 2 (N - 1) messages of n / N bytes. From which size on does the ring win?


# %%
def ring_wins_from(alpha, beta, ranks):
    """The size in bytes at which ring and doubling take the same time; `ranks` is a power of two above 2.

    alpha: microseconds; beta: MB/s.
    """
    ### BEGIN SOLUTION ring_wins_from: return the bytes; set the two times equal, and solve for n
    rounds = ranks.bit_length() - 1
    more_messages = 2 * (ranks - 1) - rounds
    fewer_bytes = rounds - 2 * (ranks - 1) / ranks
    return more_messages * alpha * beta / fewer_bytes
    ### END SOLUTION


# %%
print(
    f"predicted by the formula: {ring_wins_from(alpha, beta, measured['ranks']):,.0f} bytes; by you: {prediction_ring:,}"
)
ranks = measured["ranks"]
model = {
    "ring": lambda n: 2 * (ranks - 1) * (alpha + n / ranks / beta) / 1e6,
    "doubling": lambda n: rounds * (alpha + n / beta) / 1e6,
}
communication.seconds_against_bytes(measured, model)

# %% [markdown]
# Your ring and the model part at both ends. Short messages take longer than predicted: your alpha is the mean of doubling's two rounds, and the
# first round stays within a node, while each step of the ring has a message from node to node, for which all ranks wait. Long messages take
# less: in doubling's second round, both ranks of a node share its network card; in the ring, only one of them sends to the other node. The
# model knows one alpha and one beta. Real libraries measure, as you did, and switch the algorithm by size.

# %%
check("communication", "alpha_beta", "ring_wins_from")

# %% [markdown]
# ## Data parallel from scratch
#
# What does `DistributedDataParallel` do with an all-reduce? Backward computes the gradients of the *last* layer first. While it
# goes on to the layers before, these gradients can travel already. So four things are needed:
#
# - all ranks begin with the same parameters (a **broadcast**);
# - a **hook** on each parameter: PyTorch calls it as soon as its gradient is complete;
# - **buckets**: each message costs alpha, so the gradients of several layers share one. A bucket whose last gradient is there starts its
#   all-reduce, and backward goes on;
# - before the optimizer, the ranks **wait** for what is still in flight.
#
# Fill the gaps of `pytorch/data_parallel.py`. Then compare the script that uses it with the one that uses DistributedDataParallel:

# %%
# !cd {FOLDER}/pytorch && diff train_hooks.py train_data_parallel.py

# %% [markdown]
# `DeepNet` has 12 equal layers of 148 KB. Which buckets will be the fastest: one for each parameter (`1-KB`), for two layers or for four
# (`300-KB`, `600-KB`), or one bucket for everything?

# %%
BUCKETS = "1-KB 300-KB 600-KB one-bucket torch-ddp"
### BEGIN SOLUTION prediction_bucket:
### write `prediction_bucket = ` and the size in KB that you expect to be the fastest; 1800 is all
### in one bucket
prediction_bucket = 600
### END SOLUTION
print(f"I expect buckets of {prediction_bucket} KB to be the fastest.")


# %%
def run(script, name, options, network=NETWORK, select="2:ngpus=1:mpiprocs=1:ompthreads=1", track="pytorch"):
    """Run a script on two nodes, into results/`name`; returns its results: method -> a result for each seed."""
    variables = {"SCRIPT": script, "NAME": name, "OPTIONS": options, "TRACK": track, "HANDSON_NETWORK": network}
    follow(submit(FOLDER, "-l", f"select={select}", "-j", "oe", "run_script.sh", **variables))
    return runs.of_methods(f"{FOLDER}/results/{name}")


# where all gradients take longer to send than backward takes to compute
SLOWER = "none" if NETWORK == "none" else "100mbit"
communication.buckets(
    run("train_data_parallel.py", "data_parallel", f"--method {BUCKETS} --epoch 1 --batchsize 50", SLOWER)
)

# %% [markdown]
# Small buckets pay alpha too often. One bucket can only leave when backward has ended, so nothing is hidden. In between is the best
# size; PyTorch's is 25 MB, for networks that are much larger.
#
# The timeline shows it. Before you run the cell: where in the step will the all-reduces be?

# %%
from handson.notebook import profiled_runs

hidden = [
    profiled_runs.of_method(FOLDER, "train_data_parallel.py", SLOWER, method, "--epoch 1 --batchsize 50")
    for method in ("one-bucket", "600-KB")
]
profiled_runs.show(*hidden, steps=2)

# %% [markdown]
# In a terminal, `python -m handson timeline ../exercises/05_communication/results/train_data_parallel_*_profile` draws the same.

# %%
check("communication", "prediction_bucket", "data_parallel.py")

# %% [markdown]
# ## Send less, or send meanwhile
#
# Now a training in which the network is the limit. `WideNet` has 136,000 parameters, nearly all in one dense layer: 545 KB of
# gradients for each step of 64 images a rank. A core computes a step in 20 to 40 ms. At 80 Mbit/s, the gradients take 55 ms. Only this ratio
# counts: a network with a thousand times the parameters on GPUs and 10 Gbit/s has the same problem.
#
# `DistributedDataParallel` lets a *communication hook* decide what is sent for each bucket of gradients. You write four:
#
# - `half`: float16 or bfloat16 in place of float32;
# - `one_bit`: the sign of each gradient. What a sign can't say is not lost: it is added to the next gradients (**error feedback**);
# - `top_k`: the largest gradients only, also with error feedback;
# - `late`: **double buffering**. The all-reduce goes on while the next step computes; each step uses the mean of the step before.
#
# `one_bit` and `top_k` are in `pytorch/hooks.py`. `half` and `late` are in `half_and_late.py` of your track: ChainerMN has both as options.
#
# How many bytes does each rank hand over for the gradients of one step?


# %%
def hook_bytes(method, parameters):
    """Bytes of gradients that a rank hands over in a step; `method` is "plain", "float16", "1-bit" or "top-1-percent".

    1-bit: also 4 bytes for the scale. top-1-percent: 4 bytes for each value and 4 for its place.
    """
    ### BEGIN SOLUTION hook_bytes:
    ### return the bytes; `parameters` is a multiple of 800, so nothing has to be rounded
    return {
        "plain": 4 * parameters,
        "float16": 2 * parameters,
        "1-bit": parameters / 8 + 4,
        "top-1-percent": 8 * parameters / 100,
    }[method]
    ### END SOLUTION


# %%
for method in ("plain", "float16", "1-bit", "top-1-percent"):
    sent = hook_bytes(method, 136_000)
    print(f"{method:14} {sent:12,.0f} bytes, {8 * sent / 80e6:.4f} s at 80 Mbit/s")

# %%
check("communication", "hook_bytes", "hooks.py", "half_and_late.py")

# %% [markdown]
# ## What float16 cannot hold
#
# The largest float16 is 65,504; the smallest above 0 is 0.00000006. What does that do to gradients?

# %%
import torch

of_two_ranks = torch.tensor([40_000.0, 40_000.0])
print("added as float16, then divided:", of_two_ranks.half().sum().item() / 2)
print("divided, then added as float16:", (of_two_ranks / 2).half().sum().item())

# %% [markdown]
# So `half` divides first. But small gradients become 0, and more of them the more ranks you divide by. **Loss scaling** prevents that: multiply
# the loss by 1,024, and with it all gradients; divide by 1,024 when they are float32 again. These are the gradients of a real step:

# %%
gradients = communication.some_gradients()
for ranks in (1, 8, 512):
    for scale in (1, 1024):
        sent = (gradients * scale / ranks).half()
        lost = (sent == 0) & (gradients != 0)
        share, largest = lost.double().mean().item(), sent.abs().max().item()
        print(f"{ranks:3} ranks, loss times {scale:4}: {share:6.2%} become 0; the largest is {largest:.3g}")

# %% [markdown]
# bfloat16 has the range of float32, so it needs neither; but it has only 8 bits of precision, float16 has 11.
#
# ## Which method wins?
#
# In which order will these methods reach an accuracy of 0.91, the first at the left? Fewer bytes make steps faster; worse gradients make
# more steps necessary. `powersgd` is PyTorch's own hook: two thin matrices in place of each matrix of gradients (Vogels et al. 2019).

# %%
HALF_AND_LATE = "float16 double-buffering float16-double-buffering"
HOOKS = "plain 1-bit 1-bit-without-feedback top-1-percent powersgd" + f" {HALF_AND_LATE}" * (TRACK == "pytorch")
### BEGIN SOLUTION prediction_order:
### write `prediction_order = ` and a text with the names of `plain`, `float16`, `1-bit`,
### `top-1-percent` and `double-buffering`, each once
prediction_order = "1-bit top-1-percent double-buffering float16 plain"
### END SOLUTION
print("I expect this order:", prediction_order)

# %%
### BEGIN SOLUTION prediction_sooner:
### write `prediction_sooner = ` and your number: 2 for the best method in half of plain's seconds
prediction_sooner = 3
### END SOLUTION
print(f"I expect the best method to be there {prediction_sooner} times sooner than plain.")

# %%
slow = run("train_hooks.py", "slow", f"--method {HOOKS} --seeds {SEEDS} --epoch {EPOCHS}")
fast = run("train_hooks.py", "fast", f"--method plain --seeds {SEEDS} --epoch {EPOCHS}", "none")

# %% [markdown]
# First the speed alone. The right side shows what really left a node, counted at its network interface.

# %%
communication.throughputs(slow | {"plain, no limit": fast["plain"]})

# %% [markdown]
# Each method sends all bits in the first two steps (a *warm start*), so the bytes of the whole run do not fall
# as far as your formula says. And what is learned? A sign is a poor gradient. See what error feedback makes of it:

# %%
communication.losses(slow, ("plain", "1-bit", "1-bit-without-feedback"))

# %% [markdown]
# Without feedback, the loss stays several times as high: what a sign cannot say is lost in each step, and a gradient of 0 is sent as a positive one.

# %%
check("communication", "prediction_order", "prediction_sooner")

# %% [markdown]
# ## Half the bytes, a step late
#
# With ChainerMN, these are two options. `float16-double-buffering` is what the report on ChainerMN in the cloud used: there, 1.84 iterations
# a second became 4.03. A step of Chainer takes longer to compute, so its network is slower here.

# %%
if TRACK == "chainer":
    at = "none" if NETWORK == "none" else "20mbit"
    of_track = run("train_hooks.py", "chainer", f"--method plain {HALF_AND_LATE} --epoch {EPOCHS}", at, track="chainer")
else:
    of_track = {method: slow[method] for method in ("plain", *HALF_AND_LATE.split())}
communication.throughputs(of_track)

# %% [markdown]
# A late gradient points downhill from where the parameters no longer are. The further a step goes, the worse. With a learning rate of 0.1, and of
# 0.03:

# %%
low = run(
    "train_hooks.py", "low_rate", f"--method plain double-buffering --epoch {EPOCHS} --lr 0.03", "none", track=TRACK
)
rates = {"plain": of_track["plain"], "double-buffering": of_track["double-buffering"]}
rates |= {f"{method}, rate 0.03": seeds for method, seeds in low.items()}
communication.accuracies(rates, list(rates))

# %% [markdown]
# ## Communicate seldom
#
# Must the ranks communicate in every step? **Local SGD**: each rank makes H steps by itself, then all take the mean of their
# *parameters*. It sends 1/H of the bytes. The larger H is, the further the ranks have drifted apart.
#
# The mean of N ranks also moves less than one rank that had made all N * H steps. **Block momentum** makes up for that: it treats what a
# block has changed as a gradient, with a momentum of its own (Chen and Huo 2016; CNTK's `block_momentum_distributed_learner`).
#
# Fill the gaps of `pytorch/local_sgd.py`. An epoch has 12 steps here.

# %% [markdown]
# How many bytes does a rank send?


# %%
def block_bytes(parameters, steps, period, ranks):
    """Bytes that a rank sends in `steps` steps of local SGD with an average after every `period` of them, by a ring
    all-reduce of float32."""
    ### BEGIN SOLUTION block_bytes:
    ### return the bytes; a block that the training does not finish sends nothing
    blocks = steps // period
    return blocks * 2 * (ranks - 1) / ranks * 4 * parameters
    ### END SOLUTION


# %%
PERIODS = "local-sgd-1 local-sgd-4 local-sgd-12 local-sgd-36 block-momentum-4 block-momentum-12"
### BEGIN SOLUTION prediction_period:
### write `prediction_period = ` and the largest H, from 1 to 36, whose accuracy at the end is less
### than 0.02 below that of H = 1
prediction_period = 12
### END SOLUTION
print(f"I expect that {prediction_period} steps between two averages cost less than 0.02 of accuracy.")

# %%
periods = run("train_local_sgd.py", "local_sgd", f"--method {PERIODS} --epoch 3")
communication.periods(periods, lambda period: block_bytes(136_000, 36, period, 2))

# %%
communication.throughputs(periods)

# %% [markdown]
# The bytes, counted at a node's network interface, fall as 1/H. The accuracy falls little on these easy images; after so few steps the seeds differ by about as much
# (`--seeds 3` shows the spread). A momentum needs several blocks to build up, and three epochs have only three blocks of 12 steps. The
# throughput stops to rise where the network is no longer the limit: from there on, a larger H costs accuracy and gains nothing.

# %%
check("communication", "block_bytes", "prediction_period", "local_sgd.py")

# %% [markdown]
# ## Don't wait
#
# An all-reduce waits for the slowest rank, in every step. A **parameter server** need not: rank 0 keeps the parameters, the
# other ranks (*workers*) send it gradients and get new parameters back. When it makes a step with each gradient as it comes, no
# worker waits for another one. The price: meanwhile others have made steps, so a gradient is **stale**, computed with parameters that are
# some steps old.
#
# Fill the gaps of `pytorch/parameter_server.py`. Below, rank 0 serves three workers, two ways: `synchronous` waits for all three
# and takes the mean; `asynchronous` is yours. In the runs with a slow worker, the last one sleeps 0.2 s in each step.

# %%
### BEGIN SOLUTION prediction_staleness:
### write `prediction_staleness = ` and the staleness that you expect most often, with three equally
### fast workers
prediction_staleness = 2
### END SOLUTION
print(f"I expect most gradients to be {prediction_staleness} steps old.")

# %%
FOUR_RANKS = "2:ngpus=2:mpiprocs=2:ompthreads=1"
served = run("train_parameter_server.py", "parameter_server", "--method all --epoch 3", select=FOUR_RANKS)
communication.staleness({method: served[method] for method in ("asynchronous", "asynchronous-slow-worker")})

# %% [markdown]
# Between two gradients of a worker, each of the others has sent about one. A slow worker misses many steps, so its gradients are the
# stale ones at the right; the fast workers then wait for nobody. See the throughput:

# %%
communication.throughputs(served)

# %% [markdown]
# And what it costs? All runs take the same number of images. The asynchronous server makes three times as many steps, each with the
# gradient of one worker, which points where the parameters no longer are.

# %%
communication.accuracies(served, list(served))

# %% [markdown]
# With a lower learning rate (`--lr 0.03`), the parameters move less meanwhile, and the two servers are nearly as accurate.

# %%
check("communication", "prediction_staleness", "parameter_server.py")

# %% [markdown]
# ## In CNTK's words
#
# Microsoft's CNTK had gradients of one bit and block momentum in 2016, as *distributed learners* around a local one. CNTK itself no longer
# runs; `handson.cntk` gives its vocabulary over PyTorch and MPI. Its data are a stream: a *map file* names the images, and each worker
# reads its partition of each minibatch from their files, so that data may be larger than the memory. Fill the gaps of
# `pytorch/train_cntk.py`, and write the images into files:

# %%
# !python -m handson images digits

# %% [markdown]
# Three runs on a network of 20 Mbit/s: all bits; one bit, after a warm start of 1,500 samples in which every worker trains alone on all of
# them (`distributed_after`); and block momentum, which sends nothing but models, once in 750 samples.

# %%
# How many images will block momentum train on for each image with all bits, in the same time?
### BEGIN SOLUTION prediction_blocks: write `prediction_blocks = ` and your number, 1 for as many
prediction_blocks = 3
### END SOLUTION
print(f"I expect {prediction_blocks} times as many images per second.")

# %%
from handson.training.results import read

RUNS = {"all bits": "--bits 32", "1 bit": "--bits 1 --warm-up 1500", "block momentum": "--block-size 750"}
SLOW = "none" if NETWORK == "none" else "20mbit"
for name, options in RUNS.items():
    variables = {"SCRIPT": "train_cntk.py", "NAME": f"cntk_{name.replace(' ', '_')}", "OPTIONS": f"-e 3 {options}"}
    follow(submit(FOLDER, "-j", "oe", "run_script.sh", **variables, HANDSON_NETWORK=SLOW))
trained = {name: read(f"{FOLDER}/results/cntk_{name.replace(' ', '_')}") for name in RUNS}
communication.sessions(trained)

# %%
ratio = trained["block momentum"].throughput / trained["all bits"].throughput
print(f"predicted: {prediction_blocks} times as many images per second; measured: {ratio:.1f}")

# %% [markdown]
# With all bits, every step waits for the network. One bit hardly does, and block momentum trains alone for twelve steps. What both pay is
# a loss that falls later.
# In the same words, `--by-hand` runs your loop with `next_minibatch` in place of the session.

# %%
check("communication", "prediction_blocks", "train_cntk.py")

# %% [markdown]
# ## A node dies
#
# A training on many nodes meets failures. It goes on from a *checkpoint*, and should end exactly as if nothing had happened. For that, the
# checkpoint needs all that the next step depends on: also what each rank still owes (its residuals), its random numbers, and how many
# images of the epoch are behind it. Fill the two gaps of `pytorch/train_restarts.py`; it trains with your `one_bit`.
#
# First a run that nothing interrupts, then one whose second node dies after the first checkpoint (`KILL_NODE`). There,
# `torchrun --max-restarts` starts all ranks again.

# %%
import shutil

for name in ("whole", "killed"):  # the script would go on from the checkpoint of an earlier run
    shutil.rmtree(f"{FOLDER}/results/{name}", ignore_errors=True)
follow(submit(FOLDER, "-j", "oe", "run_restarts.sh", OPTIONS="-e 3 -o results/whole"))

# %%
follow(submit(FOLDER, "-j", "oe", "run_restarts.sh", OPTIONS="-e 3 -o results/killed", KILL_NODE="yes"))

# %% [markdown]
# `torch.distributed.checkpoint` writes the checkpoints: each is a folder, to which each rank adds its part. A run can go on with another
# number of ranks, too. What is the same on all ranks is then simply loaded. What each rank has for itself needs a rule: each of the new
# ranks begins with the mean of all old residuals, so that what the ranks owe together, divided by their number, stays the same. Their
# random numbers begin anew.
#
# Do both end with the same numbers? This compares all that is in the two last checkpoints:

# %%
from handson.pytorch import checkpoints

for part, difference in checkpoints.differences(f"{FOLDER}/results/whole", f"{FOLDER}/results/killed").items():
    print(f"{part:20} differs by {difference:g}")

# %% [markdown]
# How often should a checkpoint be written? Each one takes time. But after a failure, what was done since the last one is done again: half
# an interval on average.


# %%
def lost_share(interval, checkpoint, between):
    """The share of the time that is lost, if a checkpoint is written every `interval` seconds and takes `checkpoint`
    seconds.

    between: seconds between two failures, on average; much longer than `interval`.
    """
    ### BEGIN SOLUTION lost_share:
    ### return the share: what checkpoints take of an interval, and what failures cost of the time
    ### between them
    return checkpoint / interval + interval / 2 / between
    ### END SOLUTION


# %%
communication.lost_shares(lost_share, checkpoint=30, betweens=(6 * 3600, 24 * 3600, 7 * 24 * 3600))

# %% [markdown]
# The best interval is the square root of 2 x *checkpoint* x *between* (J. W. Young, "A first order approximation to the optimum
# checkpoint interval", 1974). Twice the nodes fail twice as often.

# %%
check("communication", "lost_share", "train_restarts.py")

# %% [markdown]
# ## Seconds to an accuracy
#
# What counts in the end: the time until the network is good enough. Three methods of the last sections now train as long as the others. The
# asynchronous server has three workers, on the same two nodes. In which order will these methods and `1-bit` be there?

# %%
### BEGIN SOLUTION prediction_last:
### write `prediction_last = ` and a text with the names of `1-bit`, `local-sgd-4`,
### `block-momentum-4` and `asynchronous`, each once, the first at the left
prediction_last = "1-bit local-sgd-4 block-momentum-4 asynchronous"
### END SOLUTION
print("I expect this order:", prediction_last)

# %%
seldom = run("train_local_sgd.py", "seldom", f"--method local-sgd-4 block-momentum-4 --seeds {SEEDS} --epoch {EPOCHS}")
server = run(
    "train_parameter_server.py", "server", f"--method asynchronous --seeds {SEEDS} --epoch {EPOCHS}", select=FOUR_RANKS
)
print("predicted orders:", prediction_order, "and", prediction_last, sep="\n  ")
print(f"predicted: {prediction_sooner} times sooner than plain")
communication.to_accuracy(slow | seldom | server, 0.91, fast)

# %% [markdown]
# On so slow a network the methods that send least win, and a bit for each gradient is enough if nothing is forgotten. A white bar is a method
# that did not get there with every seed. A bar that ends left of the dashed line is no wonder of the network: signs move all parameters by
# the same amount, which happens to help in the first epochs here, with or without a limit. **Measure first** what the limit is.

# %% [markdown]
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("communication")

# %% [markdown]
# ## What you can do now
#
# - Predict the time of an all-reduce from two measured numbers.
# - Write a ring, DistributedDataParallel in four functions, and a communication hook for it.
# - Say what it costs to communicate seldom, or with stale gradients.
# - Say from a figure whether a method that saves bytes pays.
# - Train from a stream of files, and in CNTK's words.
# - Write a checkpoint that loses nothing, and say how often.
