# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Send less, or wait less
#
# The network is still the bottleneck. There are four ways to lose less time: send fewer bytes, send them less often,
# send them one step later, or do not wait for other ranks. Each makes a step faster and its gradients less accurate.
# You write seven such methods, and measure how soon each reaches an accuracy.
#
# **In about 100 minutes you will**
#
# - write communication hooks that compress gradients, or send them one step later,
# - reduce how often ranks communicate (local SGD, block momentum), and remove waiting (a parameter server),
# - decide by the time to reach an accuracy whether a method is worth it.
#
# Sections with a star (\*) give no points: leave them out if time is short. They take about 70 minutes more. Words that are new to you are
# in the [glossary](../docs/glossary.md).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/05_communication"
TRACK = "pytorch"  # or "chainer", for the scripts that both tracks have
NETWORK = "40mbit"  # network speed between the two virtual nodes
SEEDS, EPOCHS = 2, 6  # runs per method, and epochs per run

# %%
from handson.cluster import slow_network
from handson.cluster.follow import follow, submit
from handson.notebook import communication, runs

if why := slow_network.why_not():
    NETWORK = "none"
    print("The network can't be slowed down here, so a method that sends less may not be faster:", why)

TWO_RANKS, FOUR_RANKS = "2:ngpus=1:mpiprocs=1:ompthreads=1", "2:ngpus=2:mpiprocs=2:ompthreads=1"


def run(script, name, options, network=NETWORK, select=TWO_RANKS, track="pytorch"):
    """Run a script on two nodes, with its files in results/`name`. Return method -> a Result per seed."""
    variables = {"SCRIPT": script, "NAME": name, "OPTIONS": options, "TRACK": track}
    variables["HANDSON_NETWORK"] = network
    job = submit(FOLDER, "-l", f"select={select}", "-j", "oe", "run_script.sh", **variables)
    follow(job, say=runs.folded())  # prints only the last line of each training run's table
    return runs.of_methods(f"{FOLDER}/results/{name}")


# %% [markdown]
# ## Compress gradients, or overlap their transfer
#
# In the next training runs, the network is the bottleneck. `WideNet` has 136,000 parameters, nearly all in one dense layer: 545 KB of
# gradients for each step of 64 images per rank. An idle core computes a step in 20 to 40 ms. At 40 Mbit/s, the gradients take 109 ms.
# Only the ratio of the two times matters: a network with a thousand times more parameters, on GPUs with 10 Gbit/s, has a similar problem.
#
# `DistributedDataParallel` lets a *communication hook* decide what is sent for each bucket of gradients. You write four:
#
# - `half`: float16 or bfloat16 instead of float32. Divide before you convert: the sum of all ranks' gradients may be too large for float16;
# - `one_bit`: the sign of each gradient. The part that the sign does not represent is not lost: it is added to the next step's gradients
#   (**error feedback**);
# - `top_k`: the largest gradients only, also with error feedback;
# - `late`: **double buffering**. The all-reduce runs while the next step computes. Each update uses the averaged gradients of the previous
#   step.
#
# `one_bit` and `top_k` are in `pytorch/hooks.py`. `half` and `late` are in `half_and_late.py` of your track: ChainerMN has both as options.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/hooks.py {TRACK}/half_and_late.py  # the gaps

# %% [markdown]
# How many bytes of gradients does each rank pass to the communication library per step?


# %%
def hook_bytes(method, parameters):
    """Bytes that a rank passes to the communication library per step, for a number of parameters.

    method: "plain", "float16", "1-bit" (plus 4 bytes for the scale) or "top-1-percent" (4 bytes for each value, and 4
    bytes for its index).
    """
    ### BEGIN SOLUTION hook_bytes:
    ### return the number of bytes for `method`. `parameters` is a multiple of 800, so there is
    ### nothing to round
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
    print(f"{method:14} {sent:10,.0f} bytes, {8000 * sent / 40e6:6.1f} ms at 40 Mbit/s")

# %% [markdown]
# These numbers hold for two ranks. The signs of two ranks have different scales, so they cannot be added up on the way
# as in a ring all-reduce: each rank receives the signs of every other rank (an *all-gather*). With N ranks, 1-bit sends
# 64 / N times fewer bytes than float32 with a ring, so the gain is 32 with 2 ranks, and there is none with 64.
# `top_k` has the same problem.

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("communication", "hook_bytes", "hooks.py", "half_and_late.py")

# %% [markdown]
# ## Which method wins?
#
# In which order will plain training, float16, 1-bit, top-1-percent and double buffering reach an accuracy of 0.91?
# Sending fewer bytes makes a step faster, but less accurate gradients need more steps. `powersgd` is PyTorch's own
# hook: it sends two low-rank matrices instead of each gradient matrix (Vogels et al. 2019).
#
# After your predictions, each cell trains for about 1 minute, and for up to 4 minutes on a busy machine.

# %%
HALF_AND_LATE = "float16 double-buffering float16-double-buffering"
### BEGIN SOLUTION prediction_order:
### write `prediction_order = ` and one text in quotes with the names `plain`, `float16`, `1-bit`,
### `top-1-percent` and `double-buffering`. Write the fastest first, each name once, with spaces
### between the names
prediction_order = "1-bit top-1-percent double-buffering float16 plain"
### END SOLUTION
print("I expect this order:", prediction_order)

# %%
### BEGIN SOLUTION prediction_sooner:
### write `prediction_sooner = ` and your number. Write 2 if you expect the best method to take
### half of plain's seconds
prediction_sooner = 3
### END SOLUTION
print(f"I expect the best method to be {prediction_sooner} times as fast as plain.")

# %%
options = f"--seeds {SEEDS} --epoch {EPOCHS} --method"
slow = run("train_hooks.py", "slow", f"{options} plain powersgd")

# %%
slow = run("train_hooks.py", "slow", f"{options} 1-bit 1-bit-without-feedback top-1-percent")

# %%
if TRACK == "pytorch":
    slow = run("train_hooks.py", "slow", f"{options} {HALF_AND_LATE}")

# %%
fast = run("train_hooks.py", "fast", f"{options} plain", "none")

# %% [markdown]
# First look only at the speed. The right plot shows how many bytes left a node, counted at its network interface.

# %%
communication.throughputs(slow | {"plain, no limit": fast["plain"]})

# %% [markdown]
# Double buffering gains little or nothing here. It could hide the computing (20 to 40 ms on a core, less on a GPU)
# behind the 109 ms of sending. But before each forward, `DistributedDataParallel` broadcasts the running statistics of
# batch normalisation, and this broadcast waits for the all-reduce of the last step: it takes about 110 ms, but less
# than 1 ms in plain training on idle cores. Without such a wait, double buffering gains most if computing and sending
# take the same time.
#
# In the first two steps, every method sends float32 gradients (a *warm start*), so a whole run sends more than your formula says. How well
# does the network learn? A sign is a poor substitute for a gradient. Compare with and without error feedback:

# %%
communication.losses(slow, ("plain", "1-bit", "1-bit-without-feedback"))

# %% [markdown]
# Without error feedback, the loss stays several times higher. Every step loses the part of the gradient that a sign cannot represent, and a
# gradient of 0 is sent as a positive value.

# %%
check("communication", "prediction_order", "prediction_sooner")

# %% [markdown]
# ## Communicate less often
#
# Must the ranks communicate in every step? In **local SGD**, each rank runs H steps by itself, then all ranks average their *parameters*.
# This sends 1/H of the bytes. The larger H is, the further the ranks drift apart between two averages.
#
# Averaging also makes progress slower: the average of N ranks moves about as far as one rank in H steps, not in N * H.
# **Block momentum** compensates for this: it treats the parameter change of a block as a gradient and applies a
# separate momentum to it (Chen and Huo 2016). DiLoCo trains language models across data centres in a similar way
# (Douillard et al. 2023).
#
# Fill the gaps of `pytorch/local_sgd.py`. An epoch has 12 steps here.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/local_sgd.py  # the gaps

# %% [markdown]
# How many bytes does a rank send?


# %%
def block_bytes(parameters, steps, period, ranks):
    """Bytes that a rank sends in `steps` steps of local SGD, if the float32 parameters are averaged with a ring
    all-reduce every `period` steps."""
    ### BEGIN SOLUTION block_bytes:
    ### return the number of bytes. A block that training does not finish sends nothing
    blocks = steps // period
    return blocks * 2 * (ranks - 1) / ranks * 4 * parameters
    ### END SOLUTION


# %%
### BEGIN SOLUTION prediction_period:
### write `prediction_period = ` and a number from 1 to 36: the largest H that costs less than 0.02
### of final accuracy, compared with H = 1
prediction_period = 12
### END SOLUTION
print(f"I expect that {prediction_period} steps between two averages cost less than 0.02 of accuracy.")

# %%
options = f"--seeds {SEEDS} --epoch {EPOCHS} --method"
seldom = run("train_local_sgd.py", "seldom", f"{options} local-sgd-1 local-sgd-4 block-momentum-4")

# %%
MORE = "local-sgd-12 local-sgd-36 block-momentum-12"
seldom = run("train_local_sgd.py", "seldom", f"{options} {MORE}")


# %%
def bytes_of_run(period):
    return block_bytes(136_000, 12 * EPOCHS, period, 2)


predicted = globals().get("prediction_period")  # None if you skipped it
communication.periods(seldom, bytes_of_run, expected=predicted)

# %%
communication.throughputs(seldom)

# %% [markdown]
# The bytes, counted at a node's network interface, are proportional to 1/H. On these easy images, the final accuracy hardly depends on H:
# different seeds differ by about the same amount. (The line is the mean, the marks are the seeds.) A larger H saves time with
# diminishing returns, because each step pays only 1/H of an average. With larger neural networks, a large H costs accuracy.

# %%
check("communication", "block_bytes", "prediction_period", "local_sgd.py")

# %% [markdown]
# ## Asynchronous updates
#
# An all-reduce waits for the slowest rank, in every step. A **parameter server** avoids this. Rank 0 holds the parameters; the other ranks
# (*workers*) send it gradients and receive new parameters. If the server updates the parameters whenever a gradient arrives, no worker
# waits for another worker. The price: other workers' updates happen in between, so a gradient is **stale**: it was computed with
# parameters that are several updates old.
#
# Fill the gaps of `pytorch/parameter_server.py`. Below, rank 0 serves three workers in two modes. `synchronous` waits for all three
# gradients and averages them; `asynchronous` is your code. In the runs with a slow worker, one worker sleeps 0.2 s per step. The network has
# its full speed here, so that only this worker is slow.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/parameter_server.py  # the gaps

# %%
### BEGIN SOLUTION prediction_staleness:
### write `prediction_staleness = ` and the staleness that you expect most often, with three
### equally fast workers
prediction_staleness = 2
### END SOLUTION
print(f"I expect most gradients to be {prediction_staleness} updates old.")

# %%
options = f"--method all --epoch 3 --seeds {SEEDS}"
served = run("train_parameter_server.py", "served", options, "none", select=FOUR_RANKS)
of_server = {method: served[method] for method in ("asynchronous", "asynchronous-slow-worker")}
predicted = globals().get("prediction_staleness")  # None if you skipped it
communication.staleness(of_server, expected=predicted)

# %% [markdown]
# Between two gradients of one worker, each other worker sends about one gradient. A slow worker misses many updates, so
# its gradients are the very stale ones: the small bars on the right. The fast workers do not wait. They compute nearly
# all gradients, most of which are only one update old. So with a slow worker, the accuracy can be *higher* than without
# it. (The order in which gradients arrive is different in each run, and so is the accuracy.) The next figure shows the
# throughput:

# %%
communication.throughputs(served)

# %% [markdown]
# What does this cost? The asynchronous server runs three times as many updates per epoch as the synchronous server, so compare their
# accuracies after the same number of updates. A server with a single worker runs the same updates without any staleness:

# %%
options = f"--method asynchronous --epoch 3 --seeds {SEEDS}"
alone = run("train_parameter_server.py", "alone", options, "none")
GRADIENTS = 23  # per epoch, each of 64 images
compared = {"synchronous": served["synchronous"], "one worker, never stale": alone["asynchronous"]}
compared |= {"three workers, stale": served["asynchronous"]}
updates = dict.fromkeys(compared, GRADIENTS) | {"synchronous": GRADIENTS // 3}
communication.accuracies(compared, list(compared), updates)

# %% [markdown]
# After 23 and 46 updates, training with stale gradients has a much lower accuracy: each stale gradient points downhill for old parameters.
# The synchronous server is also ahead, because each of its updates uses the gradients of three times as many images. So an asynchronous
# server is worth it only if its updates are much faster, for example with a slow worker.

# %%
check("communication", "prediction_staleness", "parameter_server.py")

# %% [markdown]
# ## Time to an accuracy
#
# What counts in the end is the time to reach an accuracy. The asynchronous server now trains for as many epochs as
# the other methods, with three workers on the same two nodes. In which order do these methods reach the accuracy?

# %%
### BEGIN SOLUTION prediction_last:
### write `prediction_last = ` and one text in quotes with the names `1-bit`, `local-sgd-4`,
### `block-momentum-4` and `asynchronous`. Write the fastest first, each name once, with spaces
### between the names
prediction_last = "1-bit local-sgd-4 block-momentum-4 asynchronous"
### END SOLUTION
print("I expect this order:", prediction_last)

# %%
options = f"--method asynchronous --seeds {SEEDS} --epoch {EPOCHS}"
server = run("train_parameter_server.py", "server", options, select=FOUR_RANKS)

# %%
everything = slow | server
everything |= {name: seldom[name] for name in ("local-sgd-4", "block-momentum-4")}
for name in ("prediction_order", "prediction_last"):
    communication.order(everything, 0.91, globals().get(name))  # None if you skipped it
predicted = globals().get("prediction_sooner")  # None if you skipped it
communication.to_accuracy(everything, 0.91, fast, sooner=predicted)

# %% [markdown]
# On such a slow network, the methods that send least win. One bit per gradient is enough, as long as error feedback keeps the rest. A white
# bar marks a method that did not reach the accuracy with every seed.
#
# Some bars may end left of the dashed line: these methods are even faster than plain training on an unlimited network.
# Fewer bytes cannot explain this: signs move all parameters by the same amount, which happens to help in the first
# epochs on any network. **Measure first** what limits a run.

# %%
check("communication", "prediction_last")

# %% [markdown]
# ## \* What float16 cannot hold
#
# The largest float16 is 65,504; the smallest above 0 is 0.00000006. What does that do to gradients?

# %%
import torch

of_two_ranks = torch.tensor([40_000.0, 40_000.0])
print("added as float16, then divided:", of_two_ranks.half().sum().item() / 2)
print("divided, then added as float16:", (of_two_ranks / 2).half().sum().item())

# %% [markdown]
# So `half` divides before it adds up. But then small gradients underflow to 0, and the more ranks there are, the more gradients are lost.
# **Loss scaling** prevents that: multiply the loss by 1,024, and with it all gradients, and divide the gradients by 1,024 once they are
# float32 again. Here are the gradients of a real step:

# %%
gradients = communication.some_gradients()
for ranks in (1, 8, 512):
    for scale in (1, 1024):
        sent = (gradients * scale / ranks).half()
        lost = (sent == 0) & (gradients != 0)
        share, largest = lost.double().mean().item(), sent.abs().max().item()
        print(f"{ranks:3} ranks, loss times {scale:4}: {share:6.2%} become 0; the largest is {largest:.3g}")

# %% [markdown]
# bfloat16 has the range of float32, so it needs neither the division before the sum nor loss scaling. But bfloat16 has only 8 bits of
# precision; float16 has 11.

# %% [markdown]
# ## \* Half precision and double buffering
#
# In ChainerMN, `half` and `late` are options. The report on ChainerMN in the cloud used `float16-double-buffering` and went from 1.84 to 4.03
# iterations per second. Chainer takes longer to compute a step, so this notebook uses a slower network for it.

# %%
if TRACK == "chainer":
    at = "none" if NETWORK == "none" else "20mbit"
    options = f"--method plain {HALF_AND_LATE} --epoch {EPOCHS}"
    of_track = run("train_hooks.py", "chainer", options, at, track="chainer")
else:
    of_track = {method: slow[method] for method in ("plain", *HALF_AND_LATE.split())}
communication.throughputs(of_track)

# %% [markdown]
# A delayed gradient points downhill for old parameters. The larger the step, the more this hurts: at the rate of the
# runs above, 0.1, a seed with double buffering can already end with a much lower accuracy than the other one. Compare
# the learning rates 0.03 and 0.2:

# %%
rates = {}
for rate in (0.03, 0.2):
    options = f"--method plain double-buffering --seeds {SEEDS} --epoch {EPOCHS} --lr {rate}"
    of_rate = run("train_hooks.py", f"rate_{rate}", options, "none", track=TRACK)
    rates |= {f"{method}, rate {rate}": seeds for method, seeds in of_rate.items()}
communication.accuracies(rates, list(rates))

# %% [markdown]
# ## \* A node dies
#
# On many nodes, failures happen. Training resumes from a *checkpoint* and should produce exactly the result of an uninterrupted run. So the
# checkpoint must contain everything that the next step depends on, including each rank's residuals, its random number state, and its
# position in the epoch. Fill the two gaps of `pytorch/train_restarts.py`. This script trains with your `one_bit`, and reads its images from
# files. The next cell writes these files:

# %%
# !python -m handson images digits

# %% [markdown]
# First, an uninterrupted run; then a run whose second node dies after the first checkpoint (`KILL_NODE`). In the second run,
# `torchrun --max-restarts` restarts all ranks. (torchrun then prints an error, such as that a rank has *failed*, because
# the node has died.)

# %%
import shutil

for name in ("whole", "killed"):  # otherwise the script would resume from an earlier run
    shutil.rmtree(f"{FOLDER}/results/{name}", ignore_errors=True)
follow(submit(FOLDER, "-j", "oe", "run_restarts.sh", OPTIONS="-e 3 -o results/whole"))

# %%
follow(submit(FOLDER, "-j", "oe", "run_restarts.sh", OPTIONS="-e 3 -o results/killed", KILL_NODE="yes"))

# %% [markdown]
# `torch.distributed.checkpoint` writes each checkpoint into a folder, to which each rank adds its part. A run can also
# resume with another number of ranks. If the number of ranks changes, state that is equal on all ranks is simply
# loaded, but per-rank state needs a rule. Each new rank starts with the mean of the old residuals. So the mean over the
# ranks, which is what the updates use, stays the same. The random numbers of each rank start again.
#
# Do both runs end with the same numbers? The next cell compares their last checkpoints. (On a GPU, they can differ,
# because its convolutions add up numbers in a varying order.)

# %%
from handson.pytorch import checkpoints

whole, killed = f"{FOLDER}/results/whole", f"{FOLDER}/results/killed"
for part, difference in checkpoints.differences(whole, killed).items():
    print(f"{part:20} differs by {difference:g}")

# %% [markdown]
# How often should a checkpoint be written? Each checkpoint takes time. But after a failure, the work since the last checkpoint has to be
# repeated: on average, half an interval.


# %%
def lost_share(interval, checkpoint, between):
    """The share of time that is lost, from 0 to 1, if a checkpoint starts every `interval` seconds and takes `checkpoint`
    of these seconds.

    between: mean time between two failures in seconds, much longer than `interval`.
    """
    ### BEGIN SOLUTION lost_share:
    ### return the share of time lost. It is the sum of two shares: the checkpoint time divided by
    ### the interval, and the repeated work per failure divided by the time between failures
    return checkpoint / interval + interval / 2 / between
    ### END SOLUTION


# %%
communication.lost_shares(lost_share, checkpoint=30, betweens=(6 * 3600, 24 * 3600, 7 * 24 * 3600))

# %% [markdown]
# The best interval is the square root of 2 x *checkpoint* x *between* (J. W. Young, "A first order approximation to the optimum
# checkpoint interval", 1974). Twice as many nodes fail twice as often.

# %%
check("communication", "lost_share", "train_restarts.py")

# %% [markdown]
# ## \* Appendix: the CNTK interface
#
# In 2016, Microsoft's CNTK offered 1-bit gradients and block momentum, as *distributed learners* that wrap a local learner. CNTK no longer
# runs today, so `handson.cntk` reproduces its interface with PyTorch and MPI. It reads data as a stream: a *map file* lists the image
# files, and each worker reads its partition of every minibatch, so the data can be larger than memory. The table lists the part of the
# interface that `pytorch/train_cntk.py` needs. All numbers of samples count the samples of all workers together. `args` holds the options
# of the script's command line.
#
# | call | arguments | returns |
# |---|---|---|
# | `StreamDef(...)` | `field`: `"image"` or `"label"`; `shape`: the number of classes, for labels | the definition of one stream |
# | `StreamDefs(...)` | `features=..., labels=...`: a `StreamDef` each | the two streams |
# | `ImageDeserializer(map_file, streams)` | `streams`: the `StreamDefs` | a reader of these files |
# | `MinibatchSource(deserializer, ...)` | `randomize`: True or False; `max_samples`: the length of the stream | the stream of images and labels |
# | `source.next_minibatch(size, streams, ...)` | `num_data_partitions`: the number of workers; `partition_index`: the rank of this worker | this worker's part of the next minibatch; empty at the end |
# | `data_parallel_distributed_learner(local, ...)` | `num_quantization_bits`: 32 or 1; `distributed_after`: samples of the warm start | a learner that exchanges gradients in every minibatch |
# | `block_momentum_distributed_learner(local, ...)` | `block_size`: samples between two averages; `distributed_after` | a learner that averages models |
# | `trainer.train_minibatch(part)` | `part`: a result of `next_minibatch` | nothing: it runs a step |
# | `CheckpointConfig(...)` | `filename`; `frequency`: samples between two checkpoints; `restore`: True resumes from the file | |
# | `TestConfig(test_source)` | the source of the test images | |
# | `training_session(...)` | `trainer`, `mb_source`, `mb_size` (of all workers), `model_inputs_to_streams`, `progress_frequency`, `checkpoint_config`, `test_config` | a session, whose `train()` trains |
# | `Communicator.num_workers()`, `Communicator.rank()` | | the number of workers, and the rank of this worker |
#
# Fill the gaps of `pytorch/train_cntk.py`. The next cell writes the images into files, unless you have done this before:

# %%
# !python -m handson images digits

# %% [markdown]
# The next cells train three times on a network of 20 Mbit/s: with full-precision gradients; with 1-bit gradients, after
# a warm start of 1,500 samples during which every worker trains on all samples by itself; and with block momentum,
# which sends only models, once every 750 samples.

# %%
# How many times as many images per second does block momentum train on, compared with 32 bits?
### BEGIN SOLUTION prediction_blocks:
### write `prediction_blocks = ` and your number. Write 1 if you expect equally many images per
### second
prediction_blocks = 3
### END SOLUTION
print(f"I expect {prediction_blocks} times as many images per second.")

# %%
from handson.training.results import read


def session(name, options):
    """Run train_cntk.py, with its files in results/`name`, and return its Result."""
    variables = {"SCRIPT": "train_cntk.py", "NAME": name, "OPTIONS": f"-e 3 {options}"}
    variables["HANDSON_NETWORK"] = "none" if NETWORK == "none" else "20mbit"
    follow(submit(FOLDER, "-j", "oe", "run_script.sh", **variables))
    return read(f"{FOLDER}/results/{name}")


trained = {"32 bits": session("cntk_32_bits", "--bits 32")}

# %%
trained["1 bit"] = session("cntk_1_bit", "--bits 1 --warm-up 1500")

# %%
trained["block momentum"] = session("cntk_block_momentum", "--block-size 750")
predicted = globals().get("prediction_blocks")  # None if you skipped it
expected = {"block momentum": predicted * trained["32 bits"].throughput} if predicted else None
communication.sessions(trained, expected)

# %%
ratio = trained["block momentum"].throughput / trained["32 bits"].throughput
print(f"predicted: {predicted} times as many images per second; measured: {ratio:.1f}")

# %% [markdown]
# With 32 bits, every step waits for the network. With 1 bit, steps hardly wait. Block momentum trains for twelve steps
# without communication. In return, the loss falls more slowly with both methods. With the option `--by-hand`, the
# script runs your own loop with `next_minibatch` instead of the training session.

# %%
check("communication", "prediction_blocks", "train_cntk.py")

# %% [markdown]
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("communication", "05b_communication.ipynb", "hooks.py", "half_and_late.py", "local_sgd.py", "parameter_server.py")

# %% [markdown]
# ## What you can do now
#
# - Write a communication hook for PyTorch's DistributedDataParallel.
# - Explain the cost of communicating less often, and of stale gradients.
# - Decide from a figure whether a method that sends fewer bytes is worth it.
# - From the sections with a star: write a checkpoint from which a run resumes exactly, and choose the checkpoint interval.
#
# Continue with `06_model_parallel`.
