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
# You have a few cores or GPUs. How fast would 512 workers be? This notebook builds a prediction from a few measured
# steps, part by part. Then it compares the prediction with your own runs and with published tables.
#
# **In about 60 minutes you will**
#
# - compute the cost of work that cannot be divided (Amdahl), and see when this cost hardly matters (Gustafson),
# - compute how long the slowest of N workers takes,
# - compare a ring all-reduce with a tree,
# - predict the step time of 16 workers, then run them,
# - explain the tables of a report from the cloud, row by row,
# - decide which machines to order.
#
# New words are in the [glossary](../docs/glossary.md).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/08_scaling"
NETWORK = "50mbit"  # link of each of the two virtual nodes
STEPS = 60  # per run

# %%
from handson.cluster import slow_network
from handson.notebook import measured_network

if why := slow_network.why_not():
    NETWORK = "none"
    print("The network cannot be slowed down here, so its speed is measured:", why)
    measured_megabits = measured_network.megabits(FOLDER)

# %% [markdown]
# ## Serial work
#
# Suppose that a share `serial` of the work cannot be divided, for example reading a file. N workers divide the
# remaining work among them. How many times as fast do they finish the *same* work?


# %%
def amdahl(serial, workers):
    """Return the speed-up of `workers` workers over one, for the same work; `serial` is a share, 0 to 1."""
    ### BEGIN SOLUTION amdahl:
    ### return the time of one worker, which is 1, divided by the time of `workers` workers
    return 1 / (serial + (1 - serial) / workers)
    ### END SOLUTION


# %% [markdown]
# Usually more workers do *more* work, because each of them has its own batch. Now `serial` is measured differently: it
# is the undivided share of the time that N workers take. One worker would need N times as long for the rest. How many
# times as much work do N workers do in a given time as one worker?


# %%
def gustafson(serial, workers):
    """Return how many times as much work as one worker `workers` workers do in the same time; `serial` is the share of
    this time that goes into work that is not divided."""
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
# Data-parallel training with a fixed batch per worker does more work with more workers. A serial share of 5 % then
# costs next to nothing: the curve lies just below the ideal line. With a serial share of 50 %, N workers still reach at
# least half of the ideal speed-up. Training with a fixed *total* batch does the same work, and this curve flattens:
# with 5 %, 20 workers gain a factor of 10, and 500 workers hardly twice as much.

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("scaling", "amdahl", "gustafson")

# %% [markdown]
# ## The slowest of N
#
# In each step, all workers wait for the slowest one. The next cell reads measured steps of a single worker: from your
# last run of `01_single_gpu` with `convnet`, or from a new run if you have none.

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
# Draw one of your n steps at random for each of N workers. Number the steps by length: k = 1 is the shortest, k = n the
# longest. The slowest of the N drawn steps is step k with the probability (k/n)^N - ((k-1)/n)^N, because all N are
# among the k shortest steps, but not all among the k - 1 shortest. So how long is the slowest step on average?


# %%
def slowest(steps, workers):
    """Return the mean length of the slowest of `workers` steps, each drawn at random from the list `steps` (seconds, in
    any order)."""
    ### BEGIN SOLUTION slowest:
    ### return the sum, over all steps, of the step's length times the probability that it is the
    ### slowest. Number the steps from the shortest (k = 1) to the longest
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
# 512 workers wait for your longest measured step nearly every time. If you had measured more steps, some of them would
# have been even longer, and 512 workers would wait for those.

# %%
check("scaling", "slowest")

# %% [markdown]
# ## A ring or a tree
#
# A message of m bytes takes alpha + m / beta seconds. A ring of N ranks sends 2 (N - 1) messages one after the other,
# and each message has 1/N of the bytes.


# %%
def ring(size, ranks, alpha, beta):
    """Return the seconds of a ring all-reduce of `size` bytes; alpha: seconds, beta: bytes/s."""
    return 2 * (ranks - 1) * (alpha + size / ranks / beta)


# %%
size = 100e6  # bytes of the gradients of 25 million parameters
networks = {"1 Gbit/s": (50e-6, 1e9 / 8), "25 Gbit/s": (10e-6, 25e9 / 8), "100 Gbit/s": (2e-6, 100e9 / 8)}
series = {name: lambda n, link=link: 1000 * ring(size, n, *link) for name, link in networks.items()}
scaling.curves(series, "all-reduce of 100 MB [ms]", [2**power for power in range(1, 13)], ideal=False)

# %% [markdown]
# With many ranks, the bytes cost about 2 m / beta, and this part hardly depends on the number of ranks. The number of
# messages grows. A *tree* needs fewer messages in sequence. In the first round, every second rank sends all its bytes
# to a neighbour, which adds them to its own. Half of these neighbours send in the next round, and so on, until one rank
# has the sum. Then the sum travels back in the same way.


# %%
def tree(size, ranks, alpha, beta):
    """Return the seconds of a tree all-reduce of `size` bytes among any number of ranks."""
    ### BEGIN SOLUTION tree:
    ### return the seconds. 5 ranks need as many rounds as 8. `(ranks - 1).bit_length()` is log2 of
    ### `ranks`, rounded up
    rounds = (ranks - 1).bit_length()
    return 2 * rounds * (alpha + size / beta)
    ### END SOLUTION


# %%
link = networks["25 Gbit/s"]
series = {"ring": lambda n: 1000 * ring(1e6, n, *link), "tree": lambda n: 1000 * tree(1e6, n, *link)}
scaling.curves(series, "all-reduce of 1 MB at 25 Gbit/s [ms]", [2**power for power in range(1, 13)], ideal=False)

# %% [markdown]
# For 1 MB, the tree is faster from some hundred ranks on. Replace 1e6 by 100e6: now the ring is faster, even with 4,096
# ranks. Therefore libraries choose the algorithm by the message size and the number of ranks.

# %%
check("scaling", "tree")

# %% [markdown]
# ## Predict 16 workers, then run them
#
# A step takes the computing time of the slowest worker plus the time of the all-reduce, if nothing hides the
# all-reduce. With double buffering, the all-reduce of a step runs while the next step computes. Then only the longer of
# the two counts.


# %%
def step_time(computing, all_reduce, double_buffering):
    """Return the seconds of a step; computing: seconds of the slowest worker, all_reduce: seconds for the gradients."""
    ### BEGIN SOLUTION step_time:
    ### return the seconds, with double buffering (True) or without it (False)
    return max(computing, all_reduce) if double_buffering else computing + all_reduce
    ### END SOLUTION


# %% [markdown]
# 16 workers need 16 cores or GPUs. In the next jobs, the ranks therefore *sleep* for measured step times of one worker,
# and all-reduce real gradients over the network. First run two ranks, then four, on two nodes. Their steps take longer
# than your formula predicts. One part of the difference occurs once per step, for any number of ranks (the
# *overhead*). The other part occurs once per message (alpha, the *latency*). One measurement cannot separate the two.
# The two unknowns need two equations: two ranks send 2 messages one after the other, and four ranks send 6.

# %%
from handson.scaling import message_times

two = scaling.rehearse(FOLDER, one, 2, NETWORK, steps=STEPS)
four = scaling.rehearse(FOLDER, one, 4, NETWORK, per_node=2, steps=STEPS)
# bytes/s of data: message_times.rate subtracts 4.4 % for packet headers
rate = measured_megabits * 1e6 / 8 if NETWORK == "none" else message_times.rate(NETWORK)
bytes_sent = 4 * single.parameters
rest_of_two = two.step - step_time(slowest(steps, 2), ring(bytes_sent, 2, 0, rate), False)
rest_of_four = four.step - step_time(slowest(steps, 4), ring(bytes_sent, 4, 0, rate), False)
alpha = max(0, (rest_of_four - rest_of_two) / 4)
overhead = max(0, rest_of_two - 2 * alpha)
for run, rest in ((two, rest_of_two), (four, rest_of_four)):
    print(f"{run.workers} ranks: {1000 * run.step:.1f} ms per step, of which {1000 * rest:.1f} ms are unexplained")
print(f"So a step has {1000 * overhead:.1f} ms of overhead, and each message takes {1000 * alpha:.2f} ms.")
if not alpha:
    print("Here the latency is smaller than the random differences between the two runs: run the cell again.")

# %%
by_functions = step_time(slowest(steps, 16), overhead + ring(bytes_sent, 16, alpha, rate), False)
print(f"Your functions predict {1000 * by_functions:.0f} ms for 16 workers.")
### BEGIN SOLUTION prediction_16:
### write `prediction_16 = ` and the milliseconds that you expect: the result of your functions, or
### more if you think that 16 processes on these cores wait for each other
prediction_16 = 250
### END SOLUTION
print(f"I expect {prediction_16} ms.")

# %%
sixteen = scaling.rehearse(FOLDER, one, 16, NETWORK, per_node=8, steps=STEPS)
predicted = globals().get("prediction_16")  # None if you skipped it
print(f"16 ranks: {1000 * sixteen.step:.1f} ms per step; predicted: {predicted}")
print(f"Each worker's MFU is {100 * single.step / sixteen.step:.0f} % of the MFU of a single worker.")

# %% [markdown]
# If the run is slower than predicted, the reason is usually that there are more processes than cores: a process waits
# for a free core before each message. If it is faster, overhead and latency were measured too roughly: repeat the two
# short runs. If a line above reports that other programs used the cores, repeat all three runs, because these numbers
# prove little.
#
# The last line is about the model FLOPs utilisation of `01_single_gpu`: each worker computes as many FLOPs per step as
# before, but the step takes longer.
#
# `python -m handson predict` makes the same prediction with an uncertainty band. It draws from your steps many times
# and repeats the fit each time. The less your runs determine the result, the wider the band. The cell below assumes 8
# workers per node, so up to 8 workers send nothing over the network. Their messages still cost the latency that you
# measured, which the table counts as communication. Your runs of 2 and 4 workers used two nodes, so the figure shows them in grey.

# %%
from handson.scaling import model, predict

found = [single, two, four]
fitted = model.fit(found)
plan = model.Plan(rate, per_node=8)
predictions = [model.predict(fitted, workers, plan) for workers in (1, 2, 4, 8, 16, 32, 64)]
print(*predict.table(predictions, predictions[0]), sep="\n")
expected = {16: 16 * single.batchsize / (predicted / 1000)} if predicted else None  # as images/s
predict.picture(predictions, predictions[0], [*found, sixteen], expected=expected)

# %%
check("scaling", "step_time", "prediction_16")

# %% [markdown]
# ## A report from the cloud
#
# ChainerMN trained SSD on Amazon's EKS with 2, 4 and 8 instances. The example divides a batch of 32 images among N
# workers. So each worker loads its images in loading / N seconds and computes for compute / N seconds. The ring takes
# network * 2 (N - 1) / N seconds. Other processes load the images of the next step *at the same time*.


# %%
def cloud_step(loading, compute, network, workers, double_buffering):
    """Return the seconds of an iteration; loading, compute: seconds for the whole batch on one worker; network: seconds
    to send all gradients once."""
    ### BEGIN SOLUTION cloud_step:
    ### return the seconds. Times of parts that run at the same time do not add up. With double
    ### buffering, all three parts run at the same time
    loading, compute, communication = loading / workers, compute / workers, network * 2 * (workers - 1) / workers
    if double_buffering:
        return max(loading, compute, communication)
    return max(loading, compute + communication)
    ### END SOLUTION


# %%
scaling.eks(cloud_step)

# %% [markdown]
# In which rows is loading the bottleneck, in which rows the network? The seconds above the table were fitted to all 15
# rows, so a small error proves little. Only two rows are far off, both of p2 with 4 instances: these runs were slower
# than any such model predicts. Something probably disturbed them. The table alone does not show this, but the model
# does.

# %%
check("scaling", "cloud_step")

# %% [markdown]
# ## Which machines would you order?
#
# You have a budget and several offers. Nodes with a faster network cost more. For each offer you know the price per
# node, and you have predicted the images/s of 1, 2, 3, ... nodes. A *hierarchical* all-reduce first sums within each
# node; then one GPU of each node takes part in a ring.


# %%
def order(budget, prices, throughputs):
    """Return [index of the offer, from 0; number of nodes] with the most images/s for at most `budget`. No two orders
    have the same images/s.

    prices: the price of a node, for each offer. throughputs: for each offer a list with the images/s of 1, 2, 3, ...
    nodes. All lists have the same length.
    """
    ### BEGIN SOLUTION order:
    ### return a list of two numbers. An additional node can reduce the images/s, and you need not
    ### spend the whole budget
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
# Change BUDGET, SIZE and COMPUTE. When is the faster network worth its price?
#
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("scaling")

# %% [markdown]
# `python -m handson predict` reads the result folders of your own runs: one single-worker run, and at least one run of
# several workers with the same options. For example:
#
#     python -m handson predict exercises/01_single_gpu/results/* exercises/02_multi_gpu/results/* --network 25gbit --workers 1,2,4,...,512
#
# [Will it scale?](../docs/scaling.md) explains its output. It also shows how to simulate all-reduces on networks with a
# slow NIC or with switches.
#
# ## What you can do now
#
# - Predict the speed of many workers from a few measured steps, and state the uncertainty.
# - Decide whether loading, computation or the network is the bottleneck of a training run.
# - Choose machines by their images/s for a budget.
#
# Continue with `09_attention_and_experts`.
