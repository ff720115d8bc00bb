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
RATES = (800, 400, 160)  # Mbit/s of the network between the two virtual nodes, where that is the lesson

# %%
from handson.cluster import slow_network
from handson.cluster.follow import follow, submit
from handson.notebook import model_parallel, runs

if why := slow_network.why_not():
    RATES = RATES[:1]
    print("The network can't be slowed down here. Everything runs, but bytes may cost little:", why)


SELECT = {
    ranks: f"{nodes}:ngpus={ranks // nodes}:mpiprocs={ranks // nodes}:ompthreads=1"
    for ranks, nodes in ((1, 1), (2, 1), (4, 2))
}


def run(script, name, options, ranks=1, network="none", track="pytorch"):
    """Run a script on 1, 2 or 4 ranks, into results/`name`; returns its results: method -> a result for each seed."""
    variables = {"SCRIPT": script, "NAME": name, "OPTIONS": options, "TRACK": track, "HANDSON_NETWORK": network}
    follow(submit(FOLDER, "-l", f"select={SELECT[ranks]}", "-j", "oe", "run_script.sh", **variables))
    return runs.of_methods(f"{FOLDER}/results/{name}")


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


# %%
WIDTH, BLOCKS, TOKENS, BATCH = 128, 4, 16, 64
network = transformer.Transformer(width=WIDTH, blocks=BLOCKS)
parameters = sum(parameter.numel() for parameter in network.parameters())
print(
    f"{BLOCKS} blocks: {BLOCKS * block_parameters(WIDTH):,} parameters; together with patches and head: {parameters:,}"
)

# %% [markdown]
# Backward gives each parameter a gradient. The optimizer here is Adam, which keeps two numbers for each parameter: a mean of its gradients,
# and a mean of their squares. All numbers are float32.


# %%
def state_bytes(parameters):
    """[bytes of the parameters, of their gradients, of Adam's state]; `parameters` is their number."""
    ### BEGIN SOLUTION state_bytes: return a list with the three numbers of bytes
    return [4 * parameters, 4 * parameters, 2 * 4 * parameters]
    ### END SOLUTION


# %% [markdown]
# And the activations? Backward needs what each layer got, so forward keeps it. For each token, a block keeps, in multiples of the width:
#
# | kept for the backward of | what | widths |
# |---|---|---|
# | norm1 | its input | 1 |
# | query, key, value | their input, which all three share | 1 |
# | attention | query, key, value and what was taken | 4 |
# | norm2 | its input | 1 |
# | up | its input | 1 |
# | GELU | its input | 4 |
# | down | its input | 4 |
#
# `out` needs what attention keeps already. Patches, head and what a norm remembers are small.


# %%
def activation_bytes(batch, tokens, width, blocks):
    """Bytes that the blocks keep from forward to backward; `tokens`: of one image."""
    ### BEGIN SOLUTION activation_bytes: return the bytes; add up the table
    widths = 1 + 1 + 4 + 1 + 1 + 4 + 4
    return widths * width * 4 * blocks * tokens * batch
    ### END SOLUTION


# %%
predicted = dict(
    zip(("parameters", "gradients", "optimizer"), state_bytes(parameters)),
    activations=activation_bytes(BATCH, TOKENS, WIDTH, BLOCKS),
)
print({part: f"{size / 2**20:.1f} MB" for part, size in predicted.items()})

# %% [markdown]
# `--gpu-memory` has the tensors of a run counted. Left: one step. Right: what was in use at the fullest moment, the most of each part, and
# your prediction.

# %%
from handson import memory

plain = run("train_memory.py", "counted", f"--method plain --epoch 1 --batchsize {BATCH} --gpu-memory unlimited")
memory.picture([f"{FOLDER}/results/counted/plain_0"], predicted)

# %% [markdown]
# The parts are not full at the same time: gradients appear while backward gives activations free. So this network needs less than the sum.
#
# Now let the GPU have 32 MB. Read the sentence with which the job ends: what was asked for, and what holds the memory?

# %%
from handson.cluster.follow import JobFailed

LIMIT = 32 * 2**20
try:
    run("train_memory.py", "too_large", f"--method plain --epoch 1 --batchsize {BATCH} --gpu-memory 32MB")
except JobFailed as error:
    print(error)

# %% [markdown]
# Which batch fits? At the fullest moment, parameters, optimizer state and activations are there. Some operations need room for a moment, so
# allow a tenth more for each image.


# %%
def largest_batch(limit, network, of_an_image):
    """The largest batch that fits a GPU with `limit` bytes, if the network takes `network` bytes, and each image
    `of_an_image` bytes."""
    ### BEGIN SOLUTION largest_batch: return the number of images, a whole number
    return (limit - network) // of_an_image
    ### END SOLUTION


# %%
fits = largest_batch(
    LIMIT, predicted["parameters"] + predicted["optimizer"], round(1.1 * activation_bytes(1, TOKENS, WIDTH, BLOCKS))
)
print("largest batch:", fits)
fitted = run("train_memory.py", "fits", f"--method plain --epoch 1 --batchsize {fits} --gpu-memory 32MB")
memory.picture([f"{FOLDER}/results/fits/plain_0"])

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("model_parallel", "block_parameters", "state_bytes", "activation_bytes", "largest_batch")

# %% [markdown]
# ## Before you split
#
# A smaller batch is another training. Two ways keep the batch as it is, and need less memory:
#
# - **Gradient accumulation**: the batch goes through the network in *micro-batches*, and their gradients are added up. Only one
#   micro-batch has activations at a time.
# - **Activation checkpointing**: each block keeps its input alone. Backward computes the block once again (Chen et al., "Training deep nets with
#   sublinear memory cost", 2016).
#
# Fill the gaps of `pytorch/save_memory.py`.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" pytorch/save_memory.py pytorch/zero.py

# %% [markdown]
# What do activations need with checkpointing?


# %%
def checkpointed_bytes(batch, tokens, width, blocks):
    """The most bytes of activations at any moment, if each block keeps only its input, and one block at a time is
    computed again."""
    ### BEGIN SOLUTION checkpointed_bytes:
    ### return the bytes; the inputs of all blocks are there, and what one block keeps beside its
    ### input
    widths = blocks + 15
    return widths * width * 4 * tokens * batch
    ### END SOLUTION


# %%
# How many times as long as without checkpointing will a step take?
### BEGIN SOLUTION prediction_slower:
### write `prediction_slower = ` and your number; a backward takes about twice as long as a forward
prediction_slower = 4 / 3
### END SOLUTION
megabytes = checkpointed_bytes(BATCH, TOKENS, WIDTH, BLOCKS) / 2**20
print(f"I expect {prediction_slower:.2f} times the time, and {megabytes:.1f} MB of activations.")

# %%
SAVING = "plain accumulate-4 accumulate-8 checkpoint torch-checkpoint checkpoint-and-accumulate-4"
saving = run("train_memory.py", "saving", f"--method {SAVING} --epoch 1 --batchsize {BATCH} --gpu-memory unlimited")
checkpointed = checkpointed_bytes(BATCH, TOKENS, WIDTH, BLOCKS)
model_parallel.bytes_and_time(saving, {"plain": predicted["activations"], "checkpoint": checkpointed})

# %%
slower = runs.of_a_step(saving["checkpoint"][0]) / runs.of_a_step(saving["plain"][0])
print(f"checkpointing: predicted {prediction_slower:.2f} times the time, measured {slower:.2f}")
print("losses:", {method: round(result.log[-1]["main/loss"], 4) for method, [result] in saving.items()})

# %% [markdown]
# All train the same: the losses are equal. Accumulation costs little as long as a micro-batch keeps the GPU busy; checkpointing costs one
# more forward, and helps even where a single image does not fit. PyTorch's own `checkpoint` does what yours does, and repeats dropout's random numbers.
# Neither helps against parameters and optimizer state.

# %%
check("model_parallel", "checkpointed_bytes", "prediction_slower", "save_memory.py")

# %% [markdown]
# ## Split the state
#
# In data-parallel training each rank has all parameters, all gradients, and Adam's state of all of them: 16 bytes for each parameter, on
# every rank the same. **ZeRO** divides them:
#
# - stage 1: each rank keeps the optimizer's state of its *shard* of the parameters. A *reduce-scatter* gives it the mean gradients of the shard; it
#   updates the shard; an *all-gather* gives all ranks all shards;
# - stages 2 and 3 also divide the gradients and the parameters. PyTorch calls stage 3 *FSDP*: a block's parameters are gathered when they are needed.
#
# A ring all-reduce is a reduce-scatter and an all-gather, so with rings stage 1 sends not a byte more than DDP. (On CPUs it does: gloo makes a
# reduce-scatter of all-reduces.) FSDP gathers twice, for forward and for backward: half as much again.


# %%
def sharded_bytes(method, parameters, ranks):
    """Bytes of parameters, gradients and Adam's state on each of `ranks` ranks, together; `method` is "ddp", "zero"
    (stage 1) or "fsdp".

    parameters: their number. What is there only for a moment does not count.
    """
    ### BEGIN SOLUTION sharded_bytes: return the bytes; what is divided, is divided by `ranks`
    weights = gradients = 4 * parameters
    state = 8 * parameters
    if method == "ddp":
        return weights + gradients + state
    if method == "zero":
        return weights + gradients + state / ranks
    return (weights + gradients + state) / ranks
    ### END SOLUTION


# %%
for ranks in (1, 2, 4, 64):
    print(
        f"{ranks:2} ranks, a network of 7 billion parameters:",
        {method: f"{sharded_bytes(method, 7e9, ranks) / 2**30:.0f} GB" for method in ("ddp", "zero", "fsdp")},
    )

# %% [markdown]
# Fill the three gaps of `pytorch/zero.py`. All parameters lie in one tensor with a row for each rank, so a shard is a row.
#
# The runs below also have PyTorch's own: `ZeroRedundancyOptimizer`, which divides whole tensors and not rows, and `fully_shard`. On gloo, as here, both
# run; but nothing overlaps, as only GPUs have streams. The network has two blocks here, and the batch is smaller, so that the state counts most.

# %%
# From how many ranks on does Adam's state take less memory than the parameters, with ZeRO stage 1?
### BEGIN SOLUTION prediction_ranks: write `prediction_ranks = ` and your number of ranks
prediction_ranks = 3
### END SOLUTION
print(f"I expect it from {prediction_ranks} ranks on.")

# %%
options = "--method all --epoch 1 --batchsize 16 --blocks 2 --gpu-memory unlimited"
sharded = {ranks: run("train_sharded.py", f"sharded_{ranks}", options, ranks) for ranks in SELECT}

# %%
count = sum(parameter.numel() for parameter in transformer.Transformer(width=WIDTH, blocks=2).parameters())
model_parallel.against_ranks(
    sharded,
    {"ddp": "ddp", "zero": "zero", "torch-zero": "zero", "fsdp": "fsdp"},
    lambda method, ranks: sharded_bytes(method, count, ranks),
)

# %% [markdown]
# DDP has its buckets beside the gradients, a second time as much. Your ZeRO has all gradients in one tensor, which is the bucket, and for a
# moment the mean of its shard. On one rank nothing can be divided. In the step itself, on two ranks:

# %%
memory.picture([f"{FOLDER}/results/sharded_2/{method}_0" for method in ("ddp", "zero", "fsdp")])

# %% [markdown]
# FSDP has a block's parameters only while they are used: they count as activations here, as nobody keeps them.

# %%
check("model_parallel", "sharded_bytes", "prediction_ranks", "zero.py")

# %% [markdown]
# ## Split between layers
#
# When one GPU cannot hold the network, several can: the first GPU takes the first layers, the next GPU those behind them. Each such part is a
# *stage*. Activations go from stage to stage in forward, gradients go back in backward. Done naively, one stage works while all others wait:

# %%
from handson.pipelines import simulate

# for each stage its operations: forward and backward of micro-batch 0
naive = [["F0", "B0"], ["F0", "B0"], ["F0", "B0"]]
simulate(naive).picture("3 stages, the batch in one piece")

# %% [markdown]
# If a batch is cut into *micro-batches*, stage 0 can begin with the second one while stage 1 does the first. `F1` is the forward of
# micro-batch 1, `B1` its backward, which here takes twice as long. The idle time that is left is the *bubble*. A stage holds the activations of a
# micro-batch from its forward to its backward.
#
# First without a computer: write the operations of 3 stages for the micro-batches 0 to 3, each stage a list. No stage may be idle longer than it
# must, and stage 0 may hold the activations of three micro-batches at once, stage 1 those of two, stage 2 those of one.

# %%
# The operations of stages 0, 1 and 2, in their order:
### BEGIN SOLUTION by_hand:
### write `by_hand = [[...], [...], [...]]`, three lists of texts such as "F0" and "B0"; the picture
### shows what they do
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
    """The share of the stages' time in which they are idle, if all stages take the same time and no stage waits longer
    than it must."""
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
    ### BEGIN SOLUTION held_bytes:
    ### return the bytes, from the arguments alone; stages are numbered from 0; a stage never holds
    ### more than there are micro-batches
    if schedule == "gpipe":
        return micro_batches * activations
    return min(stages - stage, micro_batches) * activations
    ### END SOLUTION


# %%
check("model_parallel", "by_hand", "bubble", "held_bytes", "schedules.py")

# %% [markdown]
# ## A pipeline of processes
#
# Fill the gaps of `pytorch/pipeline.py`: which layers a stage has, its forward and its backward. Read `exchange` and `step` below them: between
# two operations, a stage sends and receives in one batch. Then fill the gap of `pytorch/torch_pipeline.py`, the same with `torch.distributed.pipelining`. The script trains with either; a batch has 8 micro-batches of 16 images.
# The network is wider here, so that a layer computes longer than it takes to start its operations: else more and smaller operations eat up what two stages gain.
#
# How many times as fast as one process will two stages be, with 1F1B?

# %%
# Two stages against one process:
### BEGIN SOLUTION prediction_pipeline:
### write `prediction_pipeline = ` and your number: 1 means as fast as one process
prediction_pipeline = 1.6
### END SOLUTION
print(f"I expect {prediction_pipeline} times the throughput; the bubble allows {2 * (1 - bubble(2, 8)):.2f}.")

# %%
one_process = run("train_pipeline.py", "one_process", "--epoch 1 --method naive --batchsize 128 --width 256")
two_stages = run("train_pipeline.py", "two_stages", "--epoch 1 --method all --batchsize 128 --width 256", ranks=2)

# %%
model_parallel.throughputs(
    {"one process": one_process["naive"]} | two_stages,
    {name: 2 * (1 - bubble(2, m)) for name, m in (("naive", 1), ("gpipe", 8), ("1f1b", 8))},
)

# %% [markdown]
# `torch-gpipe` and `torch-1f1b` are PyTorch's, with the same operations. The script has measured when each operation began and ended, in one step. Do you find your schedules again? What is idle beyond the bubble are stages
# that do not take the same time (count their layers), and messages.

# %%
model_parallel.timeline(f"{FOLDER}/results/two_stages/gpipe_0").picture("GPipe, measured")

# %%
model_parallel.timeline(f"{FOLDER}/results/two_stages/1f1b_0").picture("1F1B, measured")

# %%
for method, micro_batches in (("naive", 1), ("gpipe", 8), ("1f1b", 8)):
    idle = model_parallel.timeline(f"{FOLDER}/results/two_stages/{method}_0").bubble
    print(f"{method:6} idle: {idle:4.0%} measured, {bubble(2, micro_batches):4.0%} by your formula")

# %% [markdown]
# And the activations, on four stages? Each rank's tensors are counted now. What does your `held_bytes` predict for stage 0 with 1F1B, from what it holds with GPipe?

# %%
options = "--method gpipe 1f1b --epoch 1 --blocks 8 --batchsize 256 --gpu-memory unlimited"
four_stages = run("train_pipeline.py", "four_stages", options, ranks=4)
folders = {method: f"{FOLDER}/results/four_stages/{method}_0" for method in ("gpipe", "1f1b")}
model_parallel.activations(folders, held_bytes, stages=4, micro_batches=8)

# %% [markdown]
# With 1F1B, stage s of p holds p - s micro-batches, however many there are. So a batch can be cut into many micro-batches, and the bubble becomes
# small, without more memory.

# %% [markdown]
# And the batch for which a GPU of 32 MB was too small? Two GPUs of 16 MB hold it together:

# %%
run("train_pipeline.py", "fits_in_two", f"--epoch 1 --method 1f1b --batchsize {BATCH} --gpu-memory 16MB", ranks=2)
memory.picture([f"{FOLDER}/results/fits_in_two/1f1b_0"])

# %%
check("model_parallel", "prediction_pipeline", "pipeline.py", "torch_pipeline.py")

# %% [markdown]
# ## Split in the products
#
# A pipeline gives whole layers to the ranks. The other way, *tensor parallel*, divides each layer: every rank holds a part of every matrix, and all ranks work
# on the same images at the same time. A product `x @ W.T` of a layer with inputs and outputs can be divided in two ways:
#
# - *column-parallel*: each rank has some of the outputs. It needs all of x, and computes a part of the result;
# - *row-parallel*: each rank has some of the inputs. It needs that part of x, and computes a term of the result: the terms of all ranks
#   have to be added up.
#
# One after the other they fit together: the part of the first is what the second needs, and between them nothing is sent. An MLP is such a
# pair, `up` and `down`. An attention is one, too, if each rank has some of the heads. This is what one of two ranks holds of a block. (Torch
# keeps W as (outputs, inputs), so a column of these matrices is a row of `layer.weight`.)

# %%
model_parallel.split_products(ranks=2)

# %% [markdown]
# An operator stands where a split part begins, and another one where it ends (Shoeybi et al., "Megatron-LM", 2019, call them f and g):
#
# | | going forward | going backward |
# |---|---|---|
# | f, `Enter` | the same x on all ranks: nothing to do | each rank has a term of the gradient of x |
# | g, `Leave` | each rank has a term of the sum | the same gradient on all ranks: nothing to do |
#
# Where ranks have terms, an all-reduce adds them up. Fill the gaps of `pytorch/products.py`.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" pytorch/products*.py

# %% [markdown]
# How many bytes does that cost? Each all-reduce is one of all the tokens: images x tokens x width numbers of 4 bytes. A ring sends
# 2 (N - 1) / N of them.


# %%
def products_bytes(blocks, images, tokens, width, ranks):
    """Bytes that a rank sends in one step, forward and backward, if `blocks` blocks are split among `ranks` ranks;
    images: in a batch, tokens: of an image."""
    ### BEGIN SOLUTION products_bytes:
    ### return the bytes; a block has two split parts, its attention and its MLP, and each has an
    ### all-reduce in both directions
    all_reduces = 2 * 2 * blocks
    return all_reduces * 2 * (ranks - 1) / ranks * 4 * images * tokens * width
    ### END SOLUTION


# %%
for ranks in (1, 2, 4, 8):
    print(f"{ranks} ranks: {products_bytes(4, 64, 16, 128, ranks) / 1e6:6.2f} MB in a step")

# %% [markdown]
# From 2 ranks to 8, the bytes do not even double; but each rank holds less and less, and waits four times in each block.
#
# Now compare your split network with the whole one. Both begin alike and make three steps with the same images. Are the losses equal, and
# is there one all-reduce in each direction for each attention and each MLP?

# %%
# How many all-reduces does the table show going forward, for 2 blocks?
### BEGIN SOLUTION prediction_forward: write `prediction_forward = ` and your number
prediction_forward = 4
### END SOLUTION
print(f"I expect {prediction_forward} all-reduces in forward.")

# %%
# !cd {FOLDER} && mpiexec -n 2 python pytorch/products.py

# %% [markdown]
# A rank holds a little more than half of the parameters: the norms, the biases of `out` and `down`, the patches and the head are on all ranks.
# Three heads cannot be divided among two ranks. This stops before any rank has computed anything:

# %%
# !cd {FOLDER} && mpiexec -n 2 python pytorch/products.py --heads 3 --width 96 2>&1 | head -1

# %% [markdown]
# ### The same, by PyTorch
#
# `parallelize_module` takes a plan: which layer is divided in which way. Each parameter becomes a *DTensor*, which knows how it is
# divided, and whose products communicate by themselves. Fill the gap of `pytorch/products_dtensor.py`.

# %%
# !cd {FOLDER} && mpiexec -n 2 python pytorch/products_dtensor.py

# %% [markdown]
# Without `entrance` in the plan, the numbers are right and the counts are not: query, key and value each add up the gradients of
# their input, three all-reduces for one. **Count what is sent**, also where a library sends it.

# %%
check("model_parallel", "products_bytes", "prediction_forward", "products.py", "products_dtensor.py")

# %% [markdown]
# ## Both at once
#
# Four GPUs, two on each of two nodes. Two ranks share a model (its products are split among them), and there are two such pairs, which
# share the images. The ranks stand in a *mesh* of 2 x 2. The network between the nodes is slow; inside a node it is fast. What should the two
# ranks of one node do together: share a model, or share the images?
#
# The bytes decide. Ranks that share a model send the tokens of each block; ranks that share the images send their gradients, once in each
# step. But each of them has only a part of the model.


# %%
def images_bytes(parameters, model_ranks, image_ranks):
    """Bytes that a rank sends in one step for the means of the gradients, by a ring all-reduce of float32.

    parameters: of the whole model, all of them divided among `model_ranks` ranks; image_ranks: how many ranks share the
    images.
    """
    ### BEGIN SOLUTION images_bytes: return the bytes; a rank has the gradients of its part only
    return 2 * (image_ranks - 1) / image_ranks * 4 * parameters / model_ranks
    ### END SOLUTION


# %%
BLOCKS, IMAGES, TOKENS, WIDTH = 1, 64, 16, 128  # IMAGES: of a rank, in a step
sends = {
    "tensor-inside": images_bytes(BLOCKS * block_parameters(WIDTH), 2, 2),  # between the nodes, each rank
    "data-inside": products_bytes(BLOCKS, IMAGES, TOKENS, WIDTH, 2),
}
print(
    "\n".join(
        f"{name:14} {sent / 1e6:5.2f} MB between the nodes, from each rank in each step" for name, sent in sends.items()
    )
)

# %% [markdown]
# Both ranks of a node send at the same time, over one network. From the bytes and the rate of the network follow the seconds of a step:


# %%
def step_seconds(computing, sent, ranks, rate):
    """Seconds of a step: first all compute, `computing` seconds; then each of the `ranks` ranks of a node sends `sent`
    bytes to the other node.

    rate: of the node's network, in Mbit/s.
    """
    ### BEGIN SOLUTION step_seconds: return the seconds; a byte has 8 bits, a Mbit is a million bits
    return computing + 8 * ranks * sent / (rate * 1e6)
    ### END SOLUTION


# %%
# What should the two ranks of a node share, for these bytes: "model" or "images"?
### BEGIN SOLUTION inside: write `inside = ` and the word, in quotes
inside = "model"
### END SOLUTION
# And how many times as long is a step of the other arrangement, at 160 Mbit/s?
### BEGIN SOLUTION prediction_times: write `prediction_times = ` and your number, 1 for as long
prediction_times = 4
### END SOLUTION
print(
    f"I expect the ranks of a node to share the {inside}, and the other way to take {prediction_times} times as long."
)

# %% [markdown]
# Fill the gaps of `pytorch/mesh.py`; `train_mesh.py` trains with its functions and with those of `products.py`. Three jobs, at three rates:

# %%
meshes = {}
for rate in RATES:
    network = "none" if why else f"{rate}mbit"
    options = f"--method all --epoch 2 -b {IMAGES} --blocks {BLOCKS} --width {WIDTH}"
    meshes[rate] = run("train_mesh.py", f"mesh_{rate}", options, 4, network)

# %% [markdown]
# Points are measured (after the first epoch, which has what happens only once), lines predicted by your `step_seconds`. It gets
# the seconds of computing from the fastest network.

# %%
steps = {
    name: {rate: runs.of_a_step(of_rate[name][0], batch=2 * IMAGES) for rate, of_rate in meshes.items()}
    for name in sends
}
computing = {name: of_one[RATES[0]] - step_seconds(0, sends[name], 2, RATES[0]) for name, of_one in steps.items()}
model_parallel.steps(steps, lambda name, rate: step_seconds(computing[name], sends[name], 2, rate), RATES[0])

# %%
for name in sends:
    counted = runs.of_a_step(meshes[RATES[-1]][name][0], "bytes", batch=2 * IMAGES)
    print(f"{name:14} MB from a node in a step: predicted {2 * sends[name] / 1e6:5.2f}, counted {counted / 1e6:5.2f}")
ratio = steps["data-inside"][RATES[-1]] / steps["tensor-inside"][RATES[-1]]
print(f"predicted: {prediction_times} times as long; measured: {ratio:.1f}")

# %% [markdown]
# So a model is shared inside a node, where bytes are cheap, and images are shared between nodes. That is how large networks are trained:
# tensor parallel among the GPUs of a node, data parallel (and pipelines, which send only the tokens between two stages) between nodes.
#
# The answer is one for these sizes. The tokens' bytes grow with the images, the gradients' bytes do not. With few images in a batch, the
# other way would win. At how many do both send the same?


# %%
def images_of_equal_bytes(blocks, tokens, width, parameters):
    """The images of a rank in a step with which both arrangements of a 2 x 2 mesh send equally many bytes between the
    nodes."""
    ### BEGIN SOLUTION images_of_equal_bytes:
    ### return the number, which need not be whole; write down what a rank sends in both
    ### arrangements, with 2 ranks for each kind: the tokens' bytes grow with the images, the
    ### gradients' do not
    of_gradients = 4 * parameters / 2  # a ring of 2 ranks sends all of its bytes once
    of_an_image = 2 * 2 * blocks * 4 * tokens * width
    return of_gradients / of_an_image
    ### END SOLUTION


# %%
print(f"{images_of_equal_bytes(BLOCKS, TOKENS, WIDTH, BLOCKS * block_parameters(WIDTH)):.1f} images")

# %%
check(
    "model_parallel", "images_bytes", "step_seconds", "inside", "prediction_times", "images_of_equal_bytes", "mesh.py"
)

# %% [markdown]
# ## Chainer's way
#
# ChainerMN had model parallelism in 2018. Its `send` and `recv` are functions of the computational graph: backward goes through them and sends the
# gradients the other way, so nobody writes a backward. `MultiNodeChainList` hides even these: it is told from which rank a link has its inputs,
# and to which rank the outputs go. Fill the two gaps of `chainer/chain_list.py`, then compare it with yours:

# %%
# !cd {FOLDER} && wc -l pytorch/pipeline.py chainer/chain_list.py

# %%
of_chainer = run("train_pipeline.py", "chainer", "--epoch 1 --method naive gpipe --blocks 2", ranks=2, track="chainer")
for method, [result] in of_chainer.items():
    print(f"{method:6} {result.throughput:6.0f} images/s, loss {result.log[-1]['main/loss']:.4f}")

# %% [markdown]
# Why is there no 1F1B? A message of ChainerMN waits until it is taken. In 1F1B, stage 0 sends the outputs of micro-batch 1 while stage 1
# sends back the gradient of micro-batch 0: each would wait for the other to receive. In `exchange` of `pytorch/pipeline.py`, both messages go at the same time.

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
