# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Split the network
#
# Ranks can share the data and the optimizer's state. Now they share the network itself, in two ways: split between its layers (a pipeline),
# and split inside its layers (tensor parallelism). Then you combine both ways.
#
# **In about 100 minutes you will**
#
# - split a network between its layers: a pipeline, with three orders of its operations,
# - split a network inside its layers: tensor parallelism,
# - compute how many bytes each way sends, and decide which of them belongs inside a node.
#
# Sections with a star (\*) give no points: leave them out if time is short. They take about 90 minutes more. The
# [glossary](../docs/glossary.md) explains new words.
#
# This notebook is written for virtual GPUs. On a machine with real ones, first run `%env HANDSON_DEVICE=cpu` in a new
# cell above the next one ([the reason](../docs/gpus.md#which-notebooks-use-gpus)).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/06_model_parallel"
RATES = (800, 400, 160)  # Mbit/s of the network between the nodes, for the section on meshes

# %%
from handson import memory
from handson.cluster import slow_network
from handson.cluster.follow import follow, submit
from handson.notebook import model_parallel, runs

if why := slow_network.why_not():
    RATES = RATES[:1]
    print("The network cannot be slowed down here. All runs work, but bytes may cost little time:", why)

SELECT = {ranks: f"1:ngpus={ranks}:mpiprocs={ranks}:ompthreads=1" for ranks in (1, 2)}
SELECT[4] = "2:ngpus=2:mpiprocs=2:ompthreads=1"


def run(script, name, options, ranks=1, network="none", track="pytorch"):
    """Run a script on 1, 2 or 4 ranks, and write into results/`name`. Return method -> a result for each seed."""
    variables = {"SCRIPT": script, "NAME": name, "OPTIONS": options, "TRACK": track}
    variables["HANDSON_NETWORK"] = network
    job = submit(FOLDER, "-l", f"select={SELECT[ranks]}", "-j", "oe", "run_script.sh", **variables)
    follow(job, say=runs.folded())  # shows the last line of each table
    return runs.of_methods(f"{FOLDER}/results/{name}")


# %% [markdown]
# ## Split between layers
#
# The network is the transformer of `06_model_parallel`: patches, then blocks of attention and MLP, then a head
# (`handson.pytorch.transformer`). If one GPU cannot hold the network, several GPUs can: the first GPU holds the first layers, the next GPU
# holds the layers after them. Each such part is a *stage*. In forward, each stage sends its activations to the next stage. In backward, it
# sends gradients to the stage before. With the whole batch in one piece, only one stage works at a time:

# %%
from handson.pipelines import simulate

# the operations of each stage: forward and backward of micro-batch 0
naive = [["F0", "B0"], ["F0", "B0"], ["F0", "B0"]]
simulate(naive).picture("3 stages, the batch in one piece")

# %% [markdown]
# Split the batch into *micro-batches*, and stage 0 can start the second one while stage 1 computes the first one. `F1` is the forward of
# micro-batch 1. `B1` is its backward, which takes twice as long here. The remaining idle time is the *bubble*. A stage holds the activations
# of a micro-batch from its forward to the end of its backward: the picture shows how many micro-batches each stage holds at most.
#
# First solve this on paper: write the operations of 3 stages for the micro-batches 0 to 3, one list for each stage. Keep the idle time of all
# stages as short as possible. Stage 0 may hold the activations of three micro-batches at once, stage 1 of two, and stage 2 of one.

# %%
# The operations of stages 0, 1 and 2, in their order:
### BEGIN SOLUTION by_hand:
### Write `by_hand = [[...], [...], [...]]`: three lists of strings such as "F0" and "B0". The
### picture shows when each operation runs
by_hand = [
    ["F0", "F1", "F2", "B0", "F3", "B1", "B2", "B3"],
    ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"],
    ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"],
]
### END SOLUTION
timeline = simulate(by_hand)
print("micro-batches held at once by each stage:", timeline.held)
timeline.picture("by hand")

# %% [markdown]
# How large is the bubble of p stages and m micro-batches? The last stage starts after p - 1 forwards of other stages. At the end, the first
# stage waits for p - 1 backwards of other stages.


# %%
def bubble(stages, micro_batches):
    """The share of the time in which a stage is idle, if all stages take the same time and no stage waits longer than
    necessary."""
    ### BEGIN SOLUTION bubble: Return the idle share, a number from 0 to 1
    return (stages - 1) / (micro_batches + stages - 1)
    ### END SOLUTION


# %%
print(f"your schedule: {timeline.bubble:.4f} idle; your formula: {bubble(3, 4):.4f}")
print("micro-batches  2 stages  4 stages  8 stages")
for micro_batches in (1, 2, 4, 8, 32):
    shares = (f"{bubble(stages, micro_batches):8.1%}" for stages in (2, 4, 8))
    print(f"{micro_batches:13}  {'  '.join(shares)}")

# %% [markdown]
# Now write schedules for any number of stages and micro-batches: fill the gaps of `pytorch/schedules.py`. **GPipe** runs all forwards, then all
# backwards. **1F1B** (one forward, one backward) starts each backward as early as possible. Both have the same bubble. What is the advantage of
# 1F1B?

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/schedules.py  # the gaps

# %%
import runpy

schedules = runpy.run_path(f"{FOLDER}/pytorch/schedules.py")


def of_all_stages(name, stages, micro_batches):
    return [schedules[name](stage, stages, micro_batches) for stage in range(stages)]


simulate(of_all_stages("gpipe", 4, 8)).picture("GPipe")

# %%
simulate(of_all_stages("one_forward_one_backward", 4, 8)).picture("1F1B")

# %% [markdown]
# The bubble is the same. But with 1F1B, stage s of p holds at most p - s micro-batches, however many micro-batches the batch has. So you can
# split a batch into many micro-batches, which makes the bubble small, and the memory stays the same.

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks your work so far.
from grader import check

check("model_parallel", "by_hand", "bubble", "schedules.py")

# %% [markdown]
# ## A pipeline of processes
#
# Fill the gaps of `pytorch/pipeline.py`: the layers of a stage, its forward, and its backward. Then read `exchange` and
# `step` below the gaps: between two operations, a stage starts a send and a receive together (`batch_isend_irecv`). The
# runs below use batches of 128 images, split into 8 micro-batches of 16.
#
# The network is wider here than in `06_model_parallel`, so that computing a layer takes longer than starting its operations. In a narrow
# network, starting many small operations would cost as much time as the second stage saves.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/pipeline.py  # the gaps

# %% [markdown]
# By which factor is the throughput of two stages with 1F1B larger than that of one process?

# %%
# Two stages against one process:
### BEGIN SOLUTION prediction_pipeline:
### Write `prediction_pipeline = ` and your number: 1 is the throughput of one process
prediction_pipeline = 1.6
### END SOLUTION
allowed = 2 * (1 - bubble(2, 8))
print(f"I expect {prediction_pipeline} times the throughput; the bubble allows {allowed:.2f}.")

# %%
options = "--epoch 1 --batchsize 128 --width 256 --method"
one_process = run("train_pipeline.py", "one_process", f"{options} naive")

# %%
two_stages = run("train_pipeline.py", "two_stages", f"{options} naive gpipe 1f1b", ranks=2)

# %%
methods = {"one process": one_process["naive"]} | two_stages
allowed = {name: 2 * (1 - bubble(2, m)) for name, m in (("naive", 1), ("gpipe", 8), ("1f1b", 8))}
predicted = globals().get("prediction_pipeline")  # None if you skipped it
model_parallel.throughputs(methods, allowed, expected=predicted)

# %% [markdown]
# The script measured the start and end of each operation in one step. Can you recognise your schedules? With GPipe
# and 1F1B, the idle time is longer than the bubble. Look for the gaps between two operations: there, a stage waits
# for a message, or for the other stage to take one. Both schedules have the same bubble, so these waits make the
# difference between them. The naive schedule exchanges only two messages in a step, so its idle time stays close to
# the formula's. If other programs use the cores, the stages also wait for those programs. The run then prints a
# warning: repeat it before you judge a schedule. If a bar above is longer than its bubble allows, other programs
# slowed down the run of one process.

# %%
model_parallel.timeline(f"{FOLDER}/results/two_stages/gpipe_0").picture("GPipe, measured")

# %%
model_parallel.timeline(f"{FOLDER}/results/two_stages/1f1b_0").picture("1F1B, measured")

# %%
for method, micro_batches in (("naive", 1), ("gpipe", 8), ("1f1b", 8)):
    idle = model_parallel.timeline(f"{FOLDER}/results/two_stages/{method}_0").bubble
    print(f"{method:6} idle: {idle:4.0%} measured, {bubble(2, micro_batches):4.0%} by your formula")

# %%
check("model_parallel", "prediction_pipeline", "pipeline.py")

# %% [markdown]
# ## Split inside the layers
#
# In a pipeline, each rank holds whole layers. In *tensor parallelism*, each rank holds a part of every matrix, and all ranks work on the same
# images at the same time. The matrix multiplication `x @ W.T` of a layer can be divided in two ways:
#
# - *column-parallel*: each rank holds the weights of some outputs. It needs all of x, and computes these outputs.
# - *row-parallel*: each rank holds the weights of some inputs. It needs these inputs, and computes a partial sum of all outputs. The partial
#   sums of all ranks have to be added.
#
# A row-parallel layer fits directly after a column-parallel layer: the outputs that a rank computes in the first layer are the inputs that it
# needs in the second layer, so the ranks send nothing between the two. The layers `up` and `down` of an MLP are such a pair. An attention is
# such a pair too, if each rank holds some of the heads. The picture shows the part of a block that one of two ranks holds. (PyTorch stores W as
# (outputs, inputs), so a column of these matrices is a row of `layer.weight`.)

# %%
model_parallel.split_products(ranks=2)

# %% [markdown]
# Each split part begins and ends with an operator (Shoeybi et al., "Megatron-LM", 2019, call them f and g):
#
# | | in forward | in backward |
# |---|---|---|
# | f, `Enter` | nothing to do: all ranks have the same x | all-reduce: each rank has a partial sum of the gradient of x |
# | g, `Leave` | each rank has a partial sum of the outputs | all ranks have the same gradient: nothing to do |
#
# If the ranks have partial sums, an all-reduce adds them. Fill the gaps of `pytorch/products.py`.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/products.py  # the gaps

# %% [markdown]
# How many bytes do the ranks send? Each all-reduce adds one number for each image, token and unit of the width, and a number has 4 bytes. In a
# ring of N ranks, a rank sends 2 (N - 1) / N times the bytes of the tensor.


# %%
def products_bytes(blocks, images, tokens, width, ranks):
    """Bytes that a rank sends in one step, in forward and backward, if `blocks` blocks are split among `ranks` ranks.

    images: number of images in a batch; tokens: number of tokens per image.
    """
    ### BEGIN SOLUTION products_bytes:
    ### Return the bytes. A block has two split parts, its attention and its MLP. Each of them
    ### needs one all-reduce in forward and one in backward
    all_reduces = 2 * 2 * blocks
    return all_reduces * 2 * (ranks - 1) / ranks * 4 * images * tokens * width
    ### END SOLUTION


# %%
for ranks in (1, 2, 4, 8):
    print(f"{ranks} ranks: {products_bytes(4, 64, 16, 128, ranks) / 1e6:6.2f} MB in a step")

# %% [markdown]
# With 8 ranks instead of 2, a rank sends less than twice as many bytes. But each rank computes less and less, and it
# waits for four all-reduces in each block.
#
# Now compare your split network with the whole network. Both start with the same parameters and run three steps with the same images. The losses
# should be equal, and each attention and each MLP should need one all-reduce in each direction.

# %%
# How many all-reduces does the table show in forward, for 2 blocks?
### BEGIN SOLUTION prediction_forward: Write `prediction_forward = ` and your number
prediction_forward = 4
### END SOLUTION
print(f"I expect {prediction_forward} all-reduces in forward.")

# %%
# !cd {FOLDER} && mpiexec -n 2 python pytorch/products.py

# %% [markdown]
# Compare the all-reduces in forward with your `prediction_forward`: each of the 2 blocks needs one for its attention and one for its MLP. A rank
# holds a little more than half of the parameters, because the norms, the biases of `out` and `down`, the patches and the head are whole on all
# ranks.
#
# Three heads cannot be divided among two ranks. This run stops before any rank computes:

# %%
# !cd {FOLDER} && mpiexec -n 2 python pytorch/products.py --heads 3 --width 96 2>&1 | head -1

# %%
check("model_parallel", "products_bytes", "prediction_forward", "products.py")

# %% [markdown]
# ## \* A layer's shards on two ranks
#
# Two live ranks, as in `00_start`, split a small MLP with your functions. Both ranks make the same layers, then each rank takes its part. Which
# shapes will the parts of `up` (4 inputs, 6 outputs) and of `down` (6 inputs, 4 outputs) have?

# %%
import handson.notebook

ranks = handson.notebook.ranks(2, nodes=1)

# %%
# %%px
import sys

sys.path.insert(0, "../exercises/06_model_parallel/pytorch")
from products import Enter, Leave, columns, rows

torch.manual_seed(0)
up, down = torch.nn.Linear(4, 6), torch.nn.Linear(6, 4, bias=False)
my_up, my_down = columns(up, rank, world_size), rows(down, rank, world_size)
print(my_up.weight.shape, my_down.weight.shape)

# %% [markdown]
# In forward, each rank has a partial sum. `Leave` adds the partial sums. Compare the total with the whole layers.

# %%
# %%px
x = torch.ones(4, requires_grad=True)
term = my_down(my_up(x).relu())
total = Leave.apply(term, None)
print("term: ", term.data)
print("total:", total.data)
print("whole:", down(up(x).relu()).data)

# %% [markdown]
# In backward, first try without `Enter`. Will both ranks have the same gradient of x, and will it be the gradient of the whole layers?

# %%
# %%px
total.sum().backward()
(whole,) = torch.autograd.grad(down(up(x).relu()).sum(), x)
print("mine: ", x.grad)
print("whole:", whole)

# %% [markdown]
# Each rank has only the gradient from its own part. With `Enter`, an all-reduce adds the gradients of all parts:

# %%
# %%px
x.grad = None
Leave.apply(my_down(my_up(Enter.apply(x, None)).relu()), None).sum().backward()
print("mine: ", x.grad)

# %%
ranks.stop()

# %% [markdown]
# ## Both at once
#
# You have four GPUs, two on each of two nodes. The ranks form a *mesh* of 2 x 2: in one direction, two ranks split the layers of a model; in the
# other direction, two ranks split the images. The network between the nodes is slow, but inside a node it is fast. What should the two ranks of
# one node split: the model, or the images?
#
# The bytes decide. Ranks that split a model send the activations of all tokens, in each block. Ranks that split the images send their gradients
# once in each step, but only the gradients of their part of the model.


# %%
def images_bytes(parameters, model_ranks, image_ranks):
    """Bytes that a rank sends in one step to average its float32 gradients with a ring all-reduce.

    parameters: number of parameters of the whole model, which is divided among `model_ranks` ranks; image_ranks: number
    of ranks that share the images.
    """
    ### BEGIN SOLUTION images_bytes: Return the bytes. A rank has only the gradients of its part
    return 2 * (image_ranks - 1) / image_ranks * 4 * parameters / model_ranks
    ### END SOLUTION


# %%
from handson.pytorch import transformer

BLOCKS, IMAGES, TOKENS, WIDTH = 1, 64, 16, 128  # IMAGES: per rank and step
of_a_block = transformer.Block(WIDTH, heads=4).parameters()
parameters = BLOCKS * sum(parameter.numel() for parameter in of_a_block)
sends = {  # bytes that each rank sends to the other node
    # the ranks of a node share a model (tensor parallelism), so the two nodes share the images
    "tensor-inside": images_bytes(parameters, 2, 2),
    # the ranks of a node share the images (data parallelism), so the two nodes share a model
    "data-inside": products_bytes(BLOCKS, IMAGES, TOKENS, WIDTH, 2),
}
for name, sent in sends.items():
    print(f"{name:14} {sent / 1e6:5.2f} MB between the nodes, from each rank in each step")

# %%
# What should the two ranks of a node share, for these bytes: "model" or "images"?
### BEGIN SOLUTION inside: Write `inside = ` and the word, in quotes
inside = "model"
### END SOLUTION
print(f"I expect the ranks of a node to share the {inside}.")

# %% [markdown]
# So the ranks of a node should share a model, because bytes are cheap inside a node. The two nodes share the images.
# Large networks are trained in this way: with tensor parallelism among the GPUs of a node, and with data parallelism
# between nodes. Pipelines also work between nodes, because two stages exchange only the tokens at their border.

# %%
check("model_parallel", "images_bytes", "inside")

# %% [markdown]
# ## \* Smaller bubbles
#
# Two schedules have a smaller bubble than 1F1B:
#
# - **Interleaved 1F1B** (Narayanan et al. 2021): each stage has several chunks of the network, which are not neighbours. If two stages with two
#   chunks each share 8 layers, stage 0 has layers 0, 1, 4 and 5. A chunk takes half the time of a stage, so the last stage starts sooner.
# - **Zero bubble** (Qi et al. 2024): a backward has two halves. The preceding stage waits for the gradient of the
#   inputs, but no stage waits for the gradient of the weights. So a stage can postpone the gradients of the weights
#   until it would be idle.
#
# A schedule may contain more operations: `"I0"` and `"W0"` are the two halves of `"B0"` (gradients of the inputs, then
# of the weights), and `"F0.1"` is the forward of micro-batch 0 in chunk 1.
#
# First try the second idea by hand. The cell below contains 1F1B with all backwards in halves. How small can the idle share become? Write your
# prediction into `smallest`. Then move the `W` operations until the step is as short as you expect. Each stage may now hold the activations of
# three micro-batches.

# %%
smallest = 0.20  # your prediction: the smallest idle share of 3 stages and 4 micro-batches
halves = [
    ["F0", "F1", "F2", "I0", "W0", "F3", "I1", "W1", "I2", "W2", "I3", "W3"],
    ["F0", "F1", "I0", "W0", "F2", "I1", "W1", "F3", "I2", "W2", "I3", "W3"],
    ["F0", "I0", "W0", "F1", "I1", "W1", "F2", "I2", "W2", "F3", "I3", "W3"],
]
timeline = simulate(halves)
idle = f"{timeline.bubble * timeline.end:.0f} of {timeline.end:.0f}"
print(f"{timeline.bubble:.1%} of the time idle ({idle}); you expect {smallest:.1%}")
timeline.picture("backward in halves")

# %% [markdown]
# The shortest step takes the time of 14 forwards: 2 until the first micro-batch reaches the last stage, and 12 in which this stage computes. The idle
# share is 2/14. `zero_bubble` builds such a schedule for any number of stages (ZB-H1 in the paper).
#
# Now compare four schedules of 4 stages and 8 micro-batches. Which one has the smallest bubble, and which one holds the most activations?
# The brackets show the mean idle time of a stage and the time of the step, both in forwards.

# %%
from handson.pipelines import interleaved, zero_bubble

four = {
    "GPipe": of_all_stages("gpipe", 4, 8),
    "1F1B": of_all_stages("one_forward_one_backward", 4, 8),
    "interleaved": interleaved(4, 8),
    "zero bubble": zero_bubble(4, 8),
}
for name, schedule in four.items():
    timeline = simulate(schedule)
    idle = f"{timeline.bubble * timeline.end:4.1f} of {timeline.end:4.1f}"
    print(f"{name:12} {timeline.bubble:5.1%} idle ({idle}); micro-batches held by each stage: {timeline.held}")

# %%
simulate(four["interleaved"]).picture("interleaved 1F1B")

# %%
simulate(four["zero bubble"]).picture("zero bubble")

# %% [markdown]
# With 2 chunks, the idle time is half that of 1F1B. The price: twice as many messages, and more activations on stage 0.
# (A chunk holds half of a micro-batch's activations, so it counts as half.) With zero bubble, the idle time is a third
# of 1F1B's, because a stage waits only for the first half of a backward, and uses idle time to compute gradients of the
# weights. The price: each stage holds as many micro-batches as stage 0, because it needs the activations until it has
# computed these gradients.

# %% [markdown]
# ## \* A pipeline with PyTorch
#
# Fill the gap of `pytorch/torch_pipeline.py`: the same pipeline with `torch.distributed.pipelining`. The methods `torch-gpipe` and `torch-1f1b`
# run the same operations as your schedules. With `torch-interleaved` and `torch-zero-bubble`, each rank has two chunks (`make_interleaved`).

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/torch_pipeline.py  # the gap

# %% [markdown]
# All methods train the same network with the same batches. Will their losses be equal?

# %%
options = "--epoch 1 --batchsize 128 --width 256 --method"
of_torch = "torch-gpipe torch-1f1b torch-interleaved torch-zero-bubble"
by_torch = run("train_pipeline.py", "two_stages", f"{options} {of_torch}", ranks=2)
for name, [result] in ({"one process": one_process["naive"]} | by_torch).items():
    print(f"{name:17} loss {result.log[-1]['main/loss']:.4f}")
model_parallel.throughputs({"one process": one_process["naive"]} | by_torch, {})

# %% [markdown]
# The losses are equal: a schedule changes the order of the operations, not their results. This is the order of PyTorch's zero bubble, which
# combines both ideas:

# %%
simulate(model_parallel.order(f"{FOLDER}/results/two_stages/torch-zero-bubble_0")).picture("PyTorch's zero bubble")

# %% [markdown]
# The simulator predicts nearly no bubble. On two cores, the throughput usually falls nevertheless: each chunk starts
# its operations separately, and more messages travel. With layers this small, both cost more time than the shorter
# bubble saves.

# %%
check("model_parallel", "torch_pipeline.py")

# %% [markdown]
# ## \* The memory of a pipeline
#
# How many bytes of activations does a stage hold?


# %%
def held_bytes(schedule, stage, stages, micro_batches, activations):
    """The most bytes of activations that a stage holds at once; `schedule` is "gpipe" or "1f1b".

    activations: bytes that the stage holds for one micro-batch, from its forward to the end of its backward.
    """
    ### BEGIN SOLUTION held_bytes:
    ### Return the bytes; use only the arguments. Stages are numbered from 0. A stage cannot hold
    ### more micro-batches than the batch has
    if schedule == "gpipe":
        return micro_batches * activations
    return min(stages - stage, micro_batches) * activations
    ### END SOLUTION


# %% [markdown]
# Now four stages count their tensors. Your `held_bytes` predicts the memory of 1F1B from the measured memory of GPipe.

# %%
options = "--method gpipe 1f1b --epoch 1 --blocks 8 --batchsize 256 --gpu-memory unlimited"
four_stages = run("train_pipeline.py", "four_stages", options, ranks=4)
folders = {method: f"{FOLDER}/results/four_stages/{method}_0" for method in ("gpipe", "1f1b")}
model_parallel.activations(folders, held_bytes, stages=4, micro_batches=8)

# %% [markdown]
# The stages differ because 10 layers cannot be divided evenly among 4 stages. Also, the patches and the head hold much less than a block.
#
# A batch of 64 images does not fit one GPU of 32 MiB. Together, two GPUs of 16 MiB can hold it:

# %%
options = "--epoch 1 --method 1f1b --batchsize 64 --gpu-memory 16MiB"
run("train_pipeline.py", "fits_in_two", options, ranks=2)
memory.picture([f"{FOLDER}/results/fits_in_two/1f1b_0"])

# %%
check("model_parallel", "held_bytes")

# %% [markdown]
# ## \* Sequence parallelism
#
# In `products.py`, all ranks hold all tokens between two split parts: they compute the same norms and keep the same activations. **Sequence
# parallelism** (Korthikanti et al. 2022) divides the tokens there: each rank keeps its own part of each sequence. An all-reduce is a
# reduce-scatter followed by an all-gather, so `Leave` and the next `Enter` can be replaced:
#
# | | in forward | in backward |
# |---|---|---|
# | `Gather`, where a split part begins | all-gather: each rank gets all tokens | reduce-scatter: each rank has partial sums for all tokens |
# | `Scatter`, where a split part ends | reduce-scatter: each rank has partial sums for all tokens | all-gather: each rank gets all gradients |
#
# Fill the gap of `pytorch/products_sequence.py`.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/products_sequence.py  # the gap

# %% [markdown]
# Predict bytes and memory for 2 blocks of width 128 and 16 images of 16 tokens. In forward, a block keeps 16 tensors as
# large as the tokens: the inputs and outputs of both norms, query, key, value, the result of the attention, and 4 + 4
# before and after GELU. In `products.py`, the inputs and outputs of both norms are whole on each rank. Here, only the
# outputs of the norms are whole, because a split part needs them for all tokens, to compute the gradients of its weights.


# %%
def blocks_keep(whole, ranks):
    """KB that two blocks keep for backward, if `whole` of their 16 tensors are not divided among the ranks."""
    return 2 * (whole + (16 - whole) / ranks) * 4 * 16 * 16 * 128 / 1000


for ranks in (2, 4):
    sent = products_bytes(2, 16, 16, 128, ranks) / 1000
    less = blocks_keep(4, ranks) - blocks_keep(2, ranks)
    print(f"{ranks} ranks: {sent:5.0f} KB sent by each rank in both ways; {less:3.0f} KB of activations saved")

# %%
# !cd {FOLDER} && mpiexec -n 2 python pytorch/products_sequence.py

# %%
# !cd {FOLDER} && mpiexec -n 4 python pytorch/products_sequence.py

# %% [markdown]
# The losses are equal, and the memory saved is nearly as predicted. A rank sends the predicted bytes for the blocks,
# plus two kinds of extra messages. The patches and the head need all tokens, which costs two all-gathers. The
# gradients of the norms and biases are computed from each rank's own tokens, so small all-reduces add them up.
# Megatron-LM saves more memory: it does not keep the gathered tokens, but gathers them again in backward.

# %%
check("model_parallel", "products_sequence.py")

# %% [markdown]
# ## \* Split with PyTorch
#
# `parallelize_module` takes a plan: how to divide each layer. Each parameter becomes a *DTensor*, which stores how it is divided, and whose
# operations communicate automatically. Fill the gap of `pytorch/products_dtensor.py`. Then read `split_sequence` below it: the plan of
# sequence parallelism, with the style `SequenceParallel` for the norms.

# %%
# !cd {FOLDER} && mpiexec -n 2 python pytorch/products_dtensor.py

# %% [markdown]
# Without `entrance` in your plan, the losses are right but the counts are not: query, key and value each add the
# gradients of their input, which makes three all-reduces instead of one. **Count the collectives**, even if a library
# calls them for you.

# %%
check("model_parallel", "products_dtensor.py")

# %% [markdown]
# ## \* Both at once, measured
#
# Both ranks of a node send at the same time, through the same network. The bytes and the network rate determine the time of a step:


# %%
def step_seconds(computing, sent, ranks, rate):
    """Seconds of a step: first all ranks compute for `computing` seconds. Then each of the `ranks` ranks of a node sends
    `sent` bytes to the other node.

    rate: rate of the node's network, in Mbit/s.
    """
    ### BEGIN SOLUTION step_seconds: Return the seconds. A byte has 8 bits; a Mbit is a million bits
    return computing + 8 * ranks * sent / (rate * 1e6)
    ### END SOLUTION


# %%
# At 160 Mbit/s, how many times as long does a step take if the ranks of a node share the images ("data-inside") instead
# of a model ("tensor-inside")?
### BEGIN SOLUTION prediction_times: Write `prediction_times = ` and your number; 1 is equally long
prediction_times = 4
### END SOLUTION
print(f"I expect the other arrangement to take {prediction_times} times as long.")

# %% [markdown]
# Fill the gaps of `pytorch/mesh.py`. The script `train_mesh.py` trains with these functions and with those of `products.py`.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/mesh.py  # the gaps

# %%
meshes = {}
options = f"--method all --epoch 2 -b {IMAGES} --blocks {BLOCKS} --width {WIDTH}"
for rate in RATES:
    network = "none" if why else f"{rate}mbit"
    meshes[rate] = run("train_mesh.py", f"mesh_{rate}", options, 4, network)

# %% [markdown]
# The points are measurements. They leave out the first epoch, because the ranks start up in it. The lines are
# predictions of your `step_seconds`; their computing time comes from the run on the fastest network.

# %%
steps = {name: {} for name in sends}
for rate, of_rate in meshes.items():
    for name in sends:
        steps[name][rate] = runs.of_a_step(of_rate[name][0], batch=2 * IMAGES)
computing = {name: of_one[RATES[0]] - step_seconds(0, sends[name], 2, RATES[0]) for name, of_one in steps.items()}


def predicted_seconds(name, rate):
    return step_seconds(computing[name], sends[name], 2, rate)


model_parallel.steps(steps, predicted_seconds, RATES[0])

# %%
for name in sends:
    counted = runs.of_a_step(meshes[RATES[-1]][name][0], "bytes", batch=2 * IMAGES) / 1e6
    computed = 2 * sends[name] / 1e6
    print(f"{name:14} MB sent by a node per step: predicted {computed:5.2f}, counted {counted:5.2f}")
ratio = steps["data-inside"][RATES[-1]] / steps["tensor-inside"][RATES[-1]]
predicted = globals().get("prediction_times")  # None if you skipped it
print(f"predicted: {predicted} times as long; measured: {ratio:.1f}")

# %% [markdown]
# The steps differ less than the bytes, because a step also computes, for nearly the same time in both arrangements. The
# answer holds for these sizes only. The bytes of the tokens grow with the number of images, but the bytes of the
# gradients do not. With few images in a batch, the other arrangement would send fewer bytes. With how many images do
# both arrangements send the same number of bytes?


# %%
def images_of_equal_bytes(blocks, tokens, width, parameters):
    """The number of images per rank and step with which both arrangements of a 2 x 2 mesh send the same number of bytes
    between the nodes."""
    ### BEGIN SOLUTION images_of_equal_bytes:
    ### Return the number, which may be fractional. Write down the bytes that a rank sends in both
    ### arrangements, with 2 ranks for each kind. Only the bytes of the tokens grow with the images
    of_gradients = 4 * parameters / 2  # a ring of 2 ranks sends all of its bytes once
    of_an_image = 2 * 2 * blocks * 4 * tokens * width
    return of_gradients / of_an_image
    ### END SOLUTION


# %%
equal = images_of_equal_bytes(BLOCKS, TOKENS, WIDTH, parameters)
print(f"{equal:.1f} images")

# %%
check("model_parallel", "step_seconds", "prediction_times", "images_of_equal_bytes", "mesh.py")

# %% [markdown]
# ## \* Pipelines in Chainer
#
# ChainerMN had model parallelism in 2018. Its `send` and `recv` are functions of the computational graph: backward runs through them and sends the
# gradients in the other direction, so you do not write a backward. `MultiNodeChainList` hides even `send` and `recv`: you specify from which rank a
# link receives its inputs, and to which rank it sends its outputs. Fill the two gaps of `chainer/chain_list.py`, then compare its length with that of
# your pipeline:

# %%
# !cd {FOLDER} && wc -l pytorch/pipeline.py chainer/chain_list.py

# %%
options = "--epoch 1 --method naive gpipe --blocks 2 --batchsize 256"
of_chainer = run("train_pipeline.py", "chainer", options, ranks=2, track="chainer")
for method, [result] in of_chainer.items():
    print(f"{method:6} {result.throughput:6.0f} images/s, loss {result.log[-1]['main/loss']:.4f}")

# %% [markdown]
# A batch has 256 images here, so a micro-batch has 32. With smaller micro-batches, starting Chainer's operations can
# take longer than computing them, and GPipe can then be slower than the naive schedule.
#
# Why is there no 1F1B? In ChainerMN, `send` waits until the message is received. In 1F1B, stage 0 sends the outputs of micro-batch 1 while stage
# 1 sends back the gradient of micro-batch 0: each stage would wait for the other stage to receive, a deadlock. In `exchange` of
# `pytorch/pipeline.py`, both messages travel at the same time.

# %%
check("model_parallel", "chain_list.py")

# %% [markdown]
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("model_parallel", "06b_model_parallel.ipynb", "schedules.py", "pipeline.py", "products.py")

# %% [markdown]
# ## What you can do now
#
# - Write a pipeline, and compute its bubble.
# - Split a layer among ranks, with one all-reduce in each direction.
# - Decide which kind of parallelism belongs inside a node.
#
# Continue with `07_frameworks`.
