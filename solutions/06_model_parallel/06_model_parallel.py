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
# GPUs have a memory of a size that you choose. You see when it is full, what helps before anything is split, and how ranks share the
# optimizer's state.
#
# **In about 90 minutes you will**
#
# - compute on paper how much memory a training needs: parameters, gradients, optimizer state, activations,
# - save memory on one GPU: gradient accumulation, activation checkpointing,
# - divide the optimizer's state among ranks (ZeRO), then all of the state (FSDP).
#
# The section with a star (\*) gives no points: leave it out if time is short. It takes about 15 minutes more.
#
# Words that are new to you are in the [glossary](../docs/glossary.md).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/06_model_parallel"

# %%
from handson import memory
from handson.cluster.follow import JobFailed, follow, submit
from handson.notebook import model_parallel, runs

SELECT = {ranks: f"1:ngpus={ranks}:mpiprocs={ranks}:ompthreads=1" for ranks in (1, 2)}
SELECT[4] = "2:ngpus=2:mpiprocs=2:ompthreads=1"


def run(script, name, options, ranks=1):
    """Run a script on 1, 2 or 4 ranks, into results/`name`: method -> a result for each seed."""
    variables = {"SCRIPT": script, "NAME": name, "OPTIONS": options, "HANDSON_NETWORK": "none"}
    job = submit(FOLDER, "-l", f"select={SELECT[ranks]}", "-j", "oe", "run_script.sh", **variables)
    follow(job, say=runs.folded())  # of each training's table, the last line
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
# How many parameters does it have? A block of width w has four products of w x w in its attention, and two of w x 4w in its MLP; each has a
# bias. Each of its two norms has 2 w parameters.


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
print(f"{BLOCKS} blocks: {BLOCKS * block_parameters(WIDTH):,} parameters")
print(f"together with patches and head: {parameters:,}")

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
for part, size in predicted.items():
    print(f"{part:11} {size / 2**20:5.1f} MB")

# %% [markdown]
# With `--gpu-memory`, a run counts its tensors. Left: the memory in use during one step. Right: the memory in use at the fullest moment, the
# most of each part, and your prediction.

# %%
options = f"--method plain --epoch 1 --batchsize {BATCH} --gpu-memory"
plain = run("train_memory.py", "counted", f"{options} unlimited")
memory.picture([f"{FOLDER}/results/counted/plain_0"], predicted)

# %% [markdown]
# The parts do not reach their maximum at the same time: gradients appear while backward frees activations. So this network needs less than
# the sum.
#
# Now give the GPU 32 MB. Read the sentence with which the job ends: how much memory was asked for, and what holds the rest?

# %%
LIMIT = 32 * 2**20
try:
    run("train_memory.py", "too_large", f"{options} 32MB")
except JobFailed as error:
    print(error)

# %% [markdown]
# Which batch fits? At the fullest moment, memory holds the parameters, the optimizer state and the activations. Some operations need room for
# a moment, so allow a tenth more for each image.


# %%
def largest_batch(limit, network, of_an_image):
    """The largest batch that fits a GPU with `limit` bytes, if the network takes `network` bytes, and each image
    `of_an_image` bytes."""
    ### BEGIN SOLUTION largest_batch: return the number of images, a whole number
    return (limit - network) // of_an_image
    ### END SOLUTION


# %%
of_network = predicted["parameters"] + predicted["optimizer"]
of_an_image = round(1.1 * activation_bytes(1, TOKENS, WIDTH, BLOCKS))
fits = largest_batch(LIMIT, of_network, of_an_image)
print("largest batch:", fits)

# %%
options = f"--method plain --epoch 1 --batchsize {fits} --gpu-memory 32MB"
fitted = run("train_memory.py", "fits", options)
memory.picture([f"{FOLDER}/results/fits/plain_0"])

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("model_parallel", "block_parameters", "state_bytes", "activation_bytes", "largest_batch")

# %% [markdown]
# ## Before you split
#
# A smaller batch is a different training. Two methods keep the batch as it is, and need less memory:
#
# - **Gradient accumulation**: the batch goes through the network in *micro-batches*, and their gradients are added up. Only one
#   micro-batch has activations at a time.
# - **Activation checkpointing**: forward keeps only the input of each block. Backward computes the block a second time (Chen et al.,
#   "Training deep nets with sublinear memory cost", 2016).
#
# Fill the gaps of `pytorch/save_memory.py`.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/save_memory.py  # the gaps

# %% [markdown]
# How much memory do activations need with checkpointing?


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
options = f"--epoch 1 --batchsize {BATCH} --gpu-memory unlimited --method"
saving = run("train_memory.py", "saving", f"{options} plain accumulate-4 accumulate-8")

# %%
CHECKPOINTING = "checkpoint torch-checkpoint checkpoint-and-accumulate-4"
saving = run("train_memory.py", "saving", f"{options} {CHECKPOINTING}")

# %%
checkpointed = checkpointed_bytes(BATCH, TOKENS, WIDTH, BLOCKS)
expected = {"plain": predicted["activations"], "checkpoint": checkpointed}
of_plain = runs.of_a_step(saving["plain"][0])
seconds = {"checkpoint": prediction_slower * of_plain}
model_parallel.bytes_and_time(saving, expected, seconds)

# %% [markdown]
# With `plain` and with `checkpoint`, about 3 MB more are in use than you computed: in backward, the gradients of a block's activations exist for
# a moment. Checkpointing does not reduce them. They are a tenth of the memory of `plain`, but a third of that of `checkpoint`.

# %%
slower = runs.of_a_step(saving["checkpoint"][0]) / of_plain
print(f"checkpointing: predicted {prediction_slower:.2f} times the time, measured {slower:.2f}")
for method, [result] in saving.items():
    print(f"{method:27} loss {result.log[-1]['main/loss']:.4f}")

# %% [markdown]
# All methods train the same network: the losses are equal. Accumulation costs little as long as a micro-batch keeps the GPU busy;
# checkpointing costs one more forward, and helps even where a single image does not fit. PyTorch's own `checkpoint` does the same as yours,
# and also repeats dropout's random numbers. Neither method reduces the memory of parameters and optimizer state.

# %%
check("model_parallel", "checkpointed_bytes", "prediction_slower", "save_memory.py")

# %% [markdown]
# ## Split the state
#
# In data-parallel training, each rank has all parameters, all gradients, and Adam's state of all parameters: 16 bytes per parameter, the
# same on every rank. **ZeRO** divides them:
#
# - stage 1: each rank keeps the optimizer's state of its *shard* of the parameters. A *reduce-scatter* gives it the mean gradients of the
#   shard; it updates the shard; an *all-gather* gives all ranks all shards;
# - stages 2 and 3 also divide the gradients and the parameters. PyTorch calls stage 3 *FSDP*: a block's parameters are gathered when they
#   are needed.
#
# A ring all-reduce consists of a reduce-scatter and an all-gather, so with rings stage 1 sends not a byte more than DDP. (On CPUs it does:
# gloo builds its reduce-scatter from all-reduces.) FSDP gathers twice, for forward and for backward: half as much again.


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
print("GB on each rank, for a network of 7 billion parameters:")
print("ranks  ddp  zero  fsdp")
for ranks in (1, 2, 4, 64):
    ddp, zero, fsdp = (sharded_bytes(name, 7e9, ranks) / 2**30 for name in ("ddp", "zero", "fsdp"))
    print(f"{ranks:5} {ddp:4.0f} {zero:5.0f} {fsdp:5.0f}")

# %% [markdown]
# Fill the three gaps of `pytorch/zero.py`. All parameters are in one tensor with a row for each rank, so a shard is a row.
#
# The runs below also use PyTorch's own `ZeroRedundancyOptimizer`, which divides whole tensors and not rows. The network has two blocks here,
# and the batch is smaller, so that the state takes most of the memory.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/zero.py  # the gaps

# %%
# From how many ranks on does Adam's state take less memory than the parameters, with ZeRO stage 1?
### BEGIN SOLUTION prediction_ranks: write `prediction_ranks = ` and your number of ranks
prediction_ranks = 3
### END SOLUTION
print(f"I expect it from {prediction_ranks} ranks on.")

# %%
options = "--method ddp zero torch-zero --epoch 1 --batchsize 16 --blocks 2 --gpu-memory unlimited"
sharded = {1: run("train_sharded.py", "sharded_1", options, ranks=1)}

# %%
sharded[2] = run("train_sharded.py", "sharded_2", options, ranks=2)

# %%
sharded[4] = run("train_sharded.py", "sharded_4", options, ranks=4)

# %%
two_blocks = transformer.Transformer(width=WIDTH, blocks=2)
count = sum(parameter.numel() for parameter in two_blocks.parameters())
model_parallel.against_ranks(
    sharded,
    {"ddp": "ddp", "zero": "zero", "torch-zero": "zero"},
    lambda method, ranks: sharded_bytes(method, count, ranks),
)

# %% [markdown]
# DDP keeps its buckets besides the gradients, which doubles their memory. Your ZeRO keeps all gradients in one tensor, which is the bucket,
# and for a moment the mean of its shard. On one rank nothing can be divided. This is the memory of rank 0 of two during one step:

# %%
folders = [f"{FOLDER}/results/sharded_2/{method}_0" for method in ("ddp", "zero")]
memory.picture(folders, ranks=[0])

# %%
check("model_parallel", "sharded_bytes", "prediction_ranks", "zero.py")

# %% [markdown]
# ## \* All of the state divided, in bfloat16
#
# Networks compute in *bfloat16*: 2 bytes, the range of float32, but only 8 bits of precision. A small update is lost in such a number, so the
# optimizer works on float32 *masters*. All of this is 16 bytes per parameter, as many as in float32; the table counts them. What a step keeps
# for backward is half as large.
#
# | bytes per parameter | parameters | masters | gradients | Adam | together |
# |---|---|---|---|---|---|
# | float32 | 4 | - | 4 | 8 | 16 |
# | bfloat16, float32 masters | 2 | 4 | 2 | 8 | 16 |
# | `fully_shard` with bfloat16, r ranks | a block's, for a moment | 4 / r | 4 / r | 8 / r | 16 / r |
#
# PyTorch's `fully_shard` is stage 3. It gathers what it wraps before that computes, and lets go of it afterwards (`reshard_after_forward`),
# so what you wrap is in memory together. The model itself takes what its blocks leave, the patches and the head. As these are needed at once when
# backward begins, they stay gathered by default. On GPUs the next block is gathered while one computes (*prefetch*); on CPUs nothing overlaps.
#
# Fill the gap of `pytorch/fully_sharded.py`.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/fully_sharded.py  # the gap

# %%
# A network has two blocks, and runs on two ranks. How many all-gathers does one step need, forward and backward together?
### BEGIN SOLUTION prediction_gathers: write `prediction_gathers = ` and your number of all-gathers
prediction_gathers = 5
### END SOLUTION
print(f"I expect {prediction_gathers} all-gathers.")

# %%
# !cd {FOLDER} && OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore torchrun --standalone --nproc-per-node 2 pytorch/fully_sharded.py

# %% [markdown]
# Each block is gathered for forward and again for backward, the rest only once, and each of the three has its gradients added up once. Now
# all ways train the same network. How will the losses and the memory of `fsdp-bfloat16` differ from those of `ddp`?

# %%
options = "--method fsdp fsdp-bfloat16 --epoch 1 --batchsize 16 --blocks 2 --gpu-memory unlimited"
in_shards = sharded[2] | run("train_sharded.py", "fully_sharded_2", options, ranks=2)
for method, [result] in in_shards.items():
    print(f"{method:13} loss {result.log[-1]['main/loss']:.4f}")
model_parallel.against_ranks(
    {2: in_shards},
    {"ddp": "ddp", "zero": "zero", "fsdp": "fsdp", "fsdp-bfloat16": "fsdp"},
    lambda method, ranks: sharded_bytes(method, count, ranks),
)

# %%
folders = [f"{FOLDER}/results/fully_sharded_2/{method}_0" for method in ("fsdp", "fsdp-bfloat16")]
memory.picture(folders, ranks=[0])

# %% [markdown]
# In float32, FSDP's loss is that of DDP and of your ZeRO. In bfloat16, it differs in its last digits; the masters, gradients and Adam's
# state take as much as before, and the activations less. FSDP holds a block's parameters only while they are used: they count as activations
# here, as nobody keeps them.

# %%
check("model_parallel", "prediction_gathers", "fully_sharded.py")

# %% [markdown]
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell.

# %%
from grader import check

check("model_parallel", "06_model_parallel.ipynb", "save_memory.py", "zero.py")

# %% [markdown]
# ## What you can do now
#
# - Say from paper whether a training fits a GPU, and which part fills it.
# - Choose smaller micro-batches, or computing activations again, and say what each of them costs.
# - Divide the optimizer's state among ranks, and say what each stage of ZeRO divides.
