# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Will it scale?
#
# You have two cores. What would 512 workers do? This notebook builds a prediction from a few measured steps, part by part, and compares it
# with runs and with tables that others published.
#
# **In about 60 minutes you will**
#
# - say what a part of the work that cannot be divided costs (Amdahl), and when it does not matter (Gustafson),
# - compute how long the slowest of N workers takes,
# - compare a ring with a tree,
# - predict the step of 16 workers, then run it,
# - explain the tables of a report from the cloud, row by row,
# - decide which machines to order.
#
# Words that are new to you are in the [glossary](../docs/glossary.md).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/08_scaling"
NETWORK = "50mbit"  # of each of the two virtual nodes
STEPS = 20  # of each run

# %%
from handson.cluster import slow_network
from handson.notebook import measured_network

if why := slow_network.why_not():
    NETWORK = "none"
    print("The network can't be slowed down here, so it is measured:", why)
    measured_megabits = measured_network.megabits(FOLDER)

# %% [markdown]
# ## What cannot be divided
#
# Suppose the share `serial` of the work of one worker cannot be divided: reading a file, say. The rest is shared by N workers. How much faster do
# they finish the *same* work?


# %%
def amdahl(serial, workers):
    """The speed-up of `workers` workers over one, for the same work; `serial` is a share, 0 to 1."""
    ### BEGIN SOLUTION amdahl:
    ### return the time of one worker, which is 1, divided by the time of `workers` workers
    return 1 / (serial + (1 - serial) / workers)
    ### END SOLUTION


# %% [markdown]
# With more workers you mostly do *more* work: each has a batch of its own. Now `serial` is a share of the time that N workers take. One worker would
# need N times as long for the rest. How much more do N workers do in the same time?


# %%
def gustafson(serial, workers):
    """How many times as much work `workers` workers do in the time of one; `serial` is the share of that time in which
    they can't divide it."""
    ### BEGIN SOLUTION gustafson:
    ### return the time that one worker would need, divided by the time of `workers` workers, which
    ### is 1
    return serial + (1 - serial) * workers
    ### END SOLUTION


# %%
from handson.notebook import scaling

scaling.curves(
    {
        "the same work, 5 % serial": lambda n: amdahl(0.05, n),
        "more work, 5 % serial": lambda n: gustafson(0.05, n),
        "more work, 50 % serial": lambda n: gustafson(0.5, n),
    },
    "speed-up",
)

# %% [markdown]
# Data-parallel training with a fixed batch per worker does more work: 5 % cost next to nothing (the curve lies just below the ideal line), and 50 % never more than
# half of it. With a fixed *total* batch it is the same work, whose curve flattens: with 5 %, 20 workers gain a factor of 10, and 500 hardly twice as much.

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("scaling", "amdahl", "gustafson")

# %% [markdown]
# ## The slowest of N
#
# All workers wait for the slowest one in each step. These are measured steps of one worker: your last run of task 1, or some that are made now.

# %%
from handson.scaling import measured_runs

one = scaling.one_worker(EXERCISES, f"{FOLDER}/results/one")
[[single], _, remarks] = measured_runs.read([one])
for remark in remarks:
    print(remark)
mean, longest = 1000 * single.step, 1000 * max(single.steps)
print(f"{single.name}, {single.parameters:,} parameters")
print(f"{len(single.steps)} steps: mean {mean:.1f} ms, longest {longest:.1f} ms")

# %% [markdown]
# Draw one of your n steps for each of N workers, at random. The k-th shortest (k from 1 to n) is the slowest of them with the probability
# (k/n)^N - ((k-1)/n)^N: all are among the k shortest, but not all among the k-1 shortest. So what do N workers wait for, on average?


# %%
def slowest(steps, workers):
    """The mean of the slowest of `workers` steps, each drawn at random from the list `steps` (seconds, in any
    order)."""
    ### BEGIN SOLUTION slowest:
    ### return the sum of each step, the shortest first, times the probability that it is the
    ### slowest
    n = len(steps)
    return sum(step * ((k / n) ** workers - ((k - 1) / n) ** workers) for k, step in enumerate(sorted(steps), 1))
    ### END SOLUTION


# %%
import random

steps = single.steps.tolist()
for workers in (1, 4, 16, 64):
    drawn = [max(random.choices(steps, k=workers)) for _ in range(2000)]
    print(
        f"{workers:3} workers: {1000 * slowest(steps, workers):7.2f} ms; drawn 2,000 times: {1000 * sum(drawn) / 2000:7.2f} ms"
    )

# %% [markdown]
# With 512 workers you wait for your longest measured step in nearly every step, and would wait for longer ones, had you measured them.

# %%
check("scaling", "slowest")

# %% [markdown]
# ## A ring, or a tree
#
# A message of m bytes takes alpha + m / beta seconds. A ring of N ranks has 2 (N - 1) of them, one after the other, each with 1/N of the bytes.


# %%
def ring(size, ranks, alpha, beta):
    """Seconds of an all-reduce of `size` bytes; alpha: seconds, beta: bytes/s."""
    return 2 * (ranks - 1) * (alpha + size / ranks / beta)


# %%
size = 100e6  # of a network with 25 million parameters
networks = {"1 Gbit/s": (50e-6, 1e9 / 8), "25 Gbit/s": (10e-6, 25e9 / 8), "100 Gbit/s": (2e-6, 100e9 / 8)}
series = {name: lambda n, link=link: 1000 * ring(size, n, *link) for name, link in networks.items()}
scaling.curves(series, "all-reduce of 100 MB [ms]", [2**power for power in range(1, 13)], ideal=False)

# %% [markdown]
# With many ranks, the bytes cost about 2 m / beta, however many there are. What grows is the number of messages. A *tree* has fewer, one after the other. In the
# first round, every second rank sends all its bytes to a neighbour, who adds them to its own. Half of these neighbours send in the next round, and so on
# until one rank has the sum. Then the sum travels the same way back.


# %%
def tree(size, ranks, alpha, beta):
    """Seconds of an all-reduce of `size` bytes by a tree of any number of ranks."""
    ### BEGIN SOLUTION tree:
    ### return the seconds; 5 ranks need as many rounds as 8; `(ranks - 1).bit_length()` is log2 of
    ### `ranks`, rounded up
    rounds = (ranks - 1).bit_length()
    return 2 * rounds * (alpha + size / beta)
    ### END SOLUTION


# %%
link = networks["25 Gbit/s"]
series = {"ring": lambda n: 1000 * ring(1e6, n, *link), "tree": lambda n: 1000 * tree(1e6, n, *link)}
scaling.curves(series, "all-reduce of 1 MB at 25 Gbit/s [ms]", [2**power for power in range(1, 13)], ideal=False)

# %% [markdown]
# With 1 MB the tree is faster from some hundred ranks on. Write 100e6 in place of 1e6: now the ring is faster, even with 4,096 ranks. So libraries choose by
# the size of the message and the number of ranks.

# %%
check("scaling", "tree")

# %% [markdown]
# ## Predict 16, then run it
#
# A step is the slowest worker, plus the all-reduce, if nothing hides it. With double buffering the all-reduce of a step goes on while the next step computes:
# then the longer of the two counts.


# %%
def step_time(computing, all_reduce, double_buffering):
    """Seconds of a step: `computing` of the slowest worker, `all_reduce` of the gradients."""
    ### BEGIN SOLUTION step_time:
    ### return the seconds, with double buffering (True) or without it (False)
    return max(computing, all_reduce) if double_buffering else computing + all_reduce
    ### END SOLUTION


# %% [markdown]
# 16 workers do not fit on two cores. So the ranks of the next jobs *sleep* for measured steps of one worker, and all-reduce real gradients over the network. First two ranks,
# then four, on two nodes. They take longer than your formula says. Part of this is paid once a step, whatever the number of ranks (*overhead*); the rest is paid once a
# message (alpha, the *latency*). One measurement can't tell the two apart. With two ranks there are 2 messages one after the other, with four there are 6: two equations.

# %%
from handson.scaling import message_times

two = scaling.rehearse(FOLDER, one, 2, NETWORK, steps=STEPS)
four = scaling.rehearse(FOLDER, one, 4, NETWORK, per_node=2, steps=STEPS)
# bytes/s of data; message_times.rate leaves out the 4.4 % that are headers
rate = measured_megabits * 1e6 / 8 if NETWORK == "none" else message_times.rate(NETWORK)
bytes_sent = 4 * single.parameters
rest_of_two = two.step - step_time(slowest(steps, 2), ring(bytes_sent, 2, 0, rate), False)
rest_of_four = four.step - step_time(slowest(steps, 4), ring(bytes_sent, 4, 0, rate), False)
alpha = max(0, (rest_of_four - rest_of_two) / 4)
overhead = max(0, rest_of_two - 2 * alpha)
for run, rest in ((two, rest_of_two), (four, rest_of_four)):
    print(f"{run.workers} ranks: {1000 * run.step:.1f} ms a step, of which {1000 * rest:.1f} ms are not explained")
print(f"So a step has {1000 * overhead:.1f} ms of overhead, and each message takes {1000 * alpha:.2f} ms.")

# %%
by_functions = step_time(slowest(steps, 16), overhead + ring(bytes_sent, 16, alpha, rate), False)
print(f"Your functions say {1000 * by_functions:.0f} ms for 16 workers.")
### BEGIN SOLUTION prediction_16:
### write `prediction_16 = ` and the milliseconds that you expect: what your functions say, or more
### if you think that 16 processes on these cores wait for each other
prediction_16 = 250
### END SOLUTION
print(f"I expect {prediction_16} ms.")

# %%
sixteen = scaling.rehearse(FOLDER, one, 16, NETWORK, per_node=8, steps=STEPS)
print(f"16 ranks: {1000 * sixteen.step:.1f} ms a step; you expected {prediction_16} ms")
print(f"Each worker's MFU is {100 * single.step / sixteen.step:.0f} % of the MFU that one worker alone has.")

# %% [markdown]
# Slower than your functions say? There are more processes than cores: in each message they wait for a core. Faster? Two short runs measure overhead and latency badly: repeat them.
# A line above says so if other programs used the cores meanwhile; then none of these numbers says much.
#
# The last line is about the model FLOPs utilisation of `01_single_gpu`: each worker computes as many FLOPs in a step as before, and the step is longer.
#
# `python -m handson predict` does the same with a band. It draws your steps again and again, and fits anew each time: what the runs leave open makes the band wide.
# It is for 8 workers a node: up to 8, no message crosses the network. Your runs of 2 and 4 had their workers on two nodes: they are grey in the figure.

# %%
from handson.scaling import model, predict

found = [single, two, four]
fitted = model.fit(found)
plan = model.Plan(rate, per_node=8)
predictions = [model.predict(fitted, workers, plan) for workers in (1, 2, 4, 8, 16, 32, 64)]
print(*predict.table(predictions, predictions[0]), sep="\n")
expected = {16: 16 * single.batchsize / (prediction_16 / 1000)}  # your prediction, as images/s
predict.picture(predictions, predictions[0], [*found, sixteen], expected=expected)

# %%
check("scaling", "step_time", "prediction_16")

# %% [markdown]
# ## A report from the cloud
#
# ChainerMN trained SSD on Amazon's EKS with 2, 4 and 8 instances. The example divides a batch of 32 images among the N workers. So each worker loads its images in
# loading / N seconds and computes in compute / N. The ring takes network * 2 (N - 1) / N. Images for the next step are loaded *meanwhile*, by other processes.


# %%
def cloud_step(loading, compute, network, workers, double_buffering):
    """Seconds of an iteration; loading, compute: seconds of the whole batch on one worker; network: seconds in which
    the gradients leave a node once."""
    ### BEGIN SOLUTION cloud_step:
    ### return the seconds; what goes on at the same time does not add up: with double buffering,
    ### that is all three
    loading, compute, communication = loading / workers, compute / workers, network * 2 * (workers - 1) / workers
    if double_buffering:
        return max(loading, compute, communication)
    return max(loading, compute + communication)
    ### END SOLUTION


# %%
scaling.eks(cloud_step)

# %% [markdown]
# Which rows does loading limit, which the network? The seconds above the table were fitted to all 15 rows, so a small error proves little. Only p2 with 4 instances is far off:
# it is slower than any such model says. Something was wrong on that day, and nobody would have noticed without a model.

# %%
check("scaling", "cloud_step")

# %% [markdown]
# ## Which machines would you order?
#
# You have a budget and offers: nodes with a faster network cost more. For each offer you know the price of a node and have predicted the images/s of 1, 2, 3, ... nodes.
# A *hierarchical* all-reduce adds up within each node first; then one GPU of each node takes part in a ring.


# %%
def order(budget, prices, throughputs):
    """[number of the offer, from 0; number of nodes] with the most images/s for at most `budget`. No two orders have
    equally many.

    prices: of a node, for each offer. throughputs: the images/s of 1, 2, 3, ... nodes, for each offer a list, all of
    the same length.
    """
    ### BEGIN SOLUTION order:
    ### return the list of two numbers; a node more can be slower, and the whole budget need not be
    ### spent
    affordable = [
        (images, offer, nodes)
        for offer, (price, of_offer) in enumerate(zip(prices, throughputs))
        for nodes, images in enumerate(of_offer, 1)
        if nodes * price <= budget
    ]
    _, offer, nodes = max(affordable)
    return [offer, nodes]
    ### END SOLUTION


# %%
BUDGET, PRICES = 1_000_000, {"25gbit": 60_000, "100gbit": 75_000}  # a node with 4 GPUs
COMPUTE, IMAGES, SIZE = 0.12, 32, 100e6  # seconds of a step on a GPU, images per GPU, bytes of the gradients
offers = []
for name in PRICES:
    cluster = message_times.Cluster(message_times.Link(10e-6, message_times.rate(name)), per_node=4)
    step = [
        step_time(COMPUTE, message_times.all_reduce(SIZE, 4 * nodes, cluster, "hierarchical"), False)
        for nodes in range(1, 33)
    ]
    offers.append([4 * nodes * IMAGES / seconds for nodes, seconds in enumerate(step, 1)])
offer, nodes = order(BUDGET, list(PRICES.values()), offers)
print(f"{nodes} nodes with {list(PRICES)[offer]}: {offers[offer][nodes - 1]:,.0f} images/s")

# %% [markdown]
# Change BUDGET, SIZE and COMPUTE. When does the faster network pay?
#
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("scaling")

# %% [markdown]
# `python -m handson predict` predicts from the result folders of your own runs: one of one worker, and at least one of more workers with the same options. For example
#
#     python -m handson predict exercises/01_single_gpu/results/* exercises/02_multi_gpu/results/* --network 25gbit --workers 1,2,4,...,512
#
# [Will it scale?](../docs/scaling.md) explains what it prints, and how to simulate all-reduces on networks with a slow card or with switches.
#
# ## What you can do now
#
# - Predict what many workers will do from a few measured steps, and say what the prediction leaves open.
# - Say whether images, computation or the network limit a training.
# - Order machines by what they do for their price.
