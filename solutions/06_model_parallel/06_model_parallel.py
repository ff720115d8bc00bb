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
# So far each GPU had the whole network, and only the data were split. But a network can be too large for one GPU. In this notebook you
# choose the memory size of the virtual GPUs. You find out which tensors fill the memory, how to save memory on one GPU, and how to
# shard the optimizer's state among ranks.
#
# **In about 90 minutes you will**
#
# - compute on paper how much memory training needs: parameters, gradients, optimizer state, activations,
# - save memory on one GPU with gradient accumulation and activation checkpointing,
# - shard the optimizer's state among ranks (ZeRO), then the complete state (FSDP).
#
# Sections with a star (\*) give no points: leave them out if time is short. They take about 25 minutes more.
#
# Words that are new to you are in the [glossary](../docs/glossary.md).
#
# This notebook is written for virtual GPUs. On a machine with real ones, first run `%env HANDSON_DEVICE=cpu` in a new
# cell above the next one ([the reason](../docs/gpus.md#which-notebooks-use-gpus)).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/06_model_parallel"

# %%
from handson import memory
from handson.cluster.follow import JobFailed, follow, submit
from handson.notebook import model_parallel, profiled_runs, runs, sharded_state

SELECT = {ranks: f"1:ngpus={ranks}:mpiprocs={ranks}:ompthreads=1" for ranks in (1, 2)}
SELECT[4] = "2:ngpus=2:mpiprocs=2:ompthreads=1"


def run(script, name, options, ranks=1):
    """Run a script on 1, 2 or 4 ranks, write to results/`name`, and return method -> one result per seed."""
    variables = {"SCRIPT": script, "NAME": name, "OPTIONS": options, "HANDSON_NETWORK": "none"}
    job = submit(FOLDER, "-l", f"select={SELECT[ranks]}", "-j", "oe", "run_script.sh", **variables)
    follow(job, say=runs.folded())  # prints only the last line of each method's table
    return runs.of_methods(f"{FOLDER}/results/{name}")


# %% [markdown]
# ## Does it fit?
#
# The network is a transformer, like today's large networks. It splits an image into *patches*, and turns each patch into a *token*: a
# vector of `width` numbers. In every block, each token attends to all tokens of its image. Read the code, because all sections use it:

# %%
import inspect

from handson.pytorch import transformer

print(inspect.getsource(transformer))

# %% [markdown]
# How many parameters does a block have? Its attention has four linear layers with w x w weights, where w is the width. Its MLP has two
# linear layers with w x 4w weights. Each linear layer also has a bias, with one number per output. Each of the two norms has 2w parameters.


# %%
def block_parameters(width):
    """Return the number of parameters of one Block."""
    ### BEGIN SOLUTION block_parameters:
    ### Return the number of parameters, including all biases and both norms.
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
print(f"with patches and head: {parameters:,} parameters")

# %% [markdown]
# Backward computes a gradient for each parameter. The optimizer is Adam. It keeps two *moments* per parameter: a running mean of the
# gradients, and a running mean of their squares. All numbers are float32.


# %%
def state_bytes(parameters):
    """Return [bytes of the parameters, of the gradients, of Adam's state] for this number of parameters."""
    ### BEGIN SOLUTION state_bytes: Return a list of the three sizes in bytes.
    return [4 * parameters, 4 * parameters, 2 * 4 * parameters]
    ### END SOLUTION


# %% [markdown]
# Activations are the last part. Backward needs the input of each layer, so forward keeps these tensors. The table shows their sizes per
# token and block, in multiples of the width:
#
# | layer | tensors that its backward needs | widths |
# |---|---|---|
# | norm1 | its input | 1 |
# | query, key, value | one input, which all three share | 1 |
# | attention | query, key, value, and the result | 4 |
# | norm2 | its input | 1 |
# | up | its input | 1 |
# | GELU | its input | 4 |
# | down | its input | 4 |
#
# The input of `out` is the result of attention, which is kept already. The patches, the head and the statistics of the norms need little
# memory, so your formula can ignore them.


# %%
def activation_bytes(batch, tokens, width, blocks):
    """Return the bytes that all blocks keep from forward to backward.

    batch: number of images; tokens: number of tokens per image.
    """
    ### BEGIN SOLUTION activation_bytes: Return the bytes: add up the widths of the table.
    widths = 1 + 1 + 4 + 1 + 1 + 4 + 4
    return widths * width * 4 * blocks * tokens * batch
    ### END SOLUTION


# %%
predicted = dict(
    zip(("parameters", "gradients", "optimizer"), state_bytes(parameters)),
    activations=activation_bytes(BATCH, TOKENS, WIDTH, BLOCKS),
)
for part, size in predicted.items():
    print(f"{part:11} {size / 2**20:5.1f} MiB")

# %% [markdown]
# With `--gpu-memory`, a run counts its tensors. The left figure shows the memory in use during one step. The right figure shows the memory
# at the peak of the step, the maximum of each part, and your prediction.

# %%
options = f"--method plain --epoch 1 --batchsize {BATCH} --gpu-memory"
plain = run("train_memory.py", "counted", f"{options} unlimited")
memory.picture([f"{FOLDER}/results/counted/plain_0"], predicted)

# %% [markdown]
# The parts do not reach their maxima at the same time, because backward frees activations while it creates gradients.
# So this network needs less memory than the sum of the maxima. Your prediction is such a sum. It counts all gradients
# (3 MiB), but most of them do not exist yet at the peak. It leaves out the gradients of activations (about 3 MiB),
# which backward holds at the peak. Here the two errors cancel.
#
# Now limit the GPU to 32 MiB. The job ends with an error message. How much memory did the operation request, and which part holds most of the
# memory in use?

# %%
LIMIT = 32 * 2**20
try:
    run("train_memory.py", "too_large", f"{options} 32MiB")
except JobFailed as error:
    print(error)

# %% [markdown]
# Which batch fits? At the peak, the memory holds the parameters, the optimizer state and the activations. Some operations also need
# temporary memory, so the cell below adds 10 % to the bytes of each image.


# %%
def largest_batch(limit, network, of_an_image):
    """Return the largest batch size that fits a GPU with `limit` bytes, if the network needs `network` bytes and each
    image needs `of_an_image` bytes."""
    ### BEGIN SOLUTION largest_batch: Return the number of images, an integer.
    return (limit - network) // of_an_image
    ### END SOLUTION


# %%
of_network = predicted["parameters"] + predicted["optimizer"]
of_an_image = round(1.1 * activation_bytes(1, TOKENS, WIDTH, BLOCKS))
fits = largest_batch(LIMIT, of_network, of_an_image)
print("largest batch:", fits)

# %%
options = f"--method plain --epoch 1 --batchsize {fits} --gpu-memory 32MiB"
fitted = run("train_memory.py", "fits", options)
memory.picture([f"{FOLDER}/results/fits/plain_0"])

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks your answers so far.
from grader import check

check("model_parallel", "block_parameters", "state_bytes", "activation_bytes", "largest_batch")

# %% [markdown]
# ## Saving memory on one GPU
#
# A smaller batch size changes the result of training. Two methods need less memory for the same batch:
#
# - **Gradient accumulation** splits the batch into *micro-batches*, and sums their gradients. Only one micro-batch has activations in
#   memory at a time.
# - **Activation checkpointing** keeps only the input of each block in forward. Backward then recomputes the block's activations (Chen et
#   al., "Training deep nets with sublinear memory cost", 2016).
#
# Fill in the gaps of `pytorch/save_memory.py`.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/save_memory.py  # the gaps

# %% [markdown]
# How much memory do the activations need with checkpointing?


# %%
def checkpointed_bytes(batch, tokens, width, blocks):
    """Return the peak bytes of activations if each block keeps only its input, and one block at a time is
    recomputed."""
    ### BEGIN SOLUTION checkpointed_bytes:
    ### Return the bytes: the inputs of all blocks, plus the other activations of one block.
    widths = blocks + 15
    return widths * width * 4 * tokens * batch
    ### END SOLUTION


# %%
# By which factor does checkpointing lengthen a step?
### BEGIN SOLUTION prediction_slower:
### Set `prediction_slower` to your factor. Backward takes about twice as long as forward.
prediction_slower = 4 / 3
### END SOLUTION
mebibytes = checkpointed_bytes(BATCH, TOKENS, WIDTH, BLOCKS) / 2**20
print(f"I expect {prediction_slower:.2f} times as long a step, and {mebibytes:.1f} MiB of activations.")

# %%
options = f"--epoch 1 --batchsize {BATCH} --gpu-memory unlimited --method"
# these three in one job, because times of two jobs may differ
saving = run("train_memory.py", "saving", f"{options} plain checkpoint torch-checkpoint")

# %%
ACCUMULATING = "accumulate-4 accumulate-8 checkpoint-and-accumulate-4"
saving = run("train_memory.py", "saving", f"{options} {ACCUMULATING}")

# %%
checkpointed = checkpointed_bytes(BATCH, TOKENS, WIDTH, BLOCKS)
expected = {"plain": predicted["activations"], "checkpoint": checkpointed}
of_plain = runs.of_a_step(saving["plain"][0])
factor = globals().get("prediction_slower")  # None if you skipped it
seconds = {"checkpoint": factor * of_plain} if factor else None
model_parallel.bytes_and_time(saving, expected, seconds)

# %% [markdown]
# `plain` and `checkpoint` both use about 3 MiB more than you computed. The reason is that backward also holds the
# gradients of a few activations for a short time. Checkpointing does not reduce these gradients. They are about a
# tenth of the activations of `plain`, but about a quarter of those of `checkpoint`.

# %%
slower = runs.of_a_step(saving["checkpoint"][0]) / of_plain
print(f"step with checkpointing: measured {slower:.2f} times as long; predicted:", factor and round(factor, 2))
for method, [result] in saving.items():
    print(f"{method:27} loss {result.log[-1]['main/loss']:.4f}")

# %% [markdown]
# The losses are equal, so all methods train the same network. Accumulation costs little time if a micro-batch keeps the
# GPU busy. Here it does not: a part has only 16 or 8 images, and its operations are so small that starting them, and
# counting their tensors, takes a large share of the time. Checkpointing costs one more forward, but it helps even if
# the activations of a single image do not fit. PyTorch's own `checkpoint` works like yours, and also repeats the random
# numbers of dropout. Neither method reduces the memory of the parameters and the optimizer state.

# %%
check("model_parallel", "checkpointed_bytes", "prediction_slower", "save_memory.py")

# %% [markdown]
# ## \* Selective checkpointing
#
# Checkpointing of every block saves more memory than you may need, and each recomputation takes time. *Selective* checkpointing recomputes
# only a part. Today's libraries offer two ways to select it; read both in `pytorch/train_memory.py`:
#
# - **blocks**: `checkpoint-every-2nd` checkpoints every second block;
# - **operations**: `checkpoint-selected` keeps the results of operations that take long, which are linear layers and attention. It
#   recomputes the other operations, which are norms, GELU and sums. PyTorch's `create_selective_checkpoint_contexts` takes the list of
#   operations.
#
# | method | widths that a block keeps | widths that are recomputed, one block at a time |
# |---|---|---|
# | `torch-checkpoint` | 1: its input | 15 |
# | `checkpoint-every-2nd` | 1 and 16, alternately | 15, but by then the block after it has freed its 16 |
# | `checkpoint-selected` | 11: its input, query, key, value, attention, out, 4 of up, down | 7 |
#
# The network is wider here, so that linear layers take most of the time. Which of the last two methods needs less memory, and which one is
# faster?

# %%
UNIT = 4 * 256 * TOKENS * BATCH  # bytes of one width of all tokens
widths = {
    "plain": BLOCKS * 16,
    "torch-checkpoint": BLOCKS * 1 + 15,
    "checkpoint-every-2nd": BLOCKS // 2 * (1 + 16),
    "checkpoint-selected": BLOCKS * 11 + 7,
}
options = f"--epoch 1 --batchsize {BATCH} --width 256 --gpu-memory unlimited --method"
selective = run("train_memory.py", "selective", f"{options} {' '.join(widths)}")

# %%
model_parallel.bytes_and_time(selective, {method: UNIT * number for method, number in widths.items()})

# %% [markdown]
# The gradients of activations add 5 to 6 MiB to each prediction, as above. On this network, every second block saves
# more memory than the selected operations, and both take less time than checkpointing of all blocks. The times of
# the two differ little on such a small network, and the difference varies between runs: `checkpoint-every-2nd`
# recomputes linear layers, too, but with `checkpoint-selected`, Python decides about each operation, which takes time. If other
# programs use the cores, repeat the run before you compare times. Try a list of your own: remove the linear layers
# from `KEPT` in `pytorch/train_memory.py`, and run the two cells again.

# %% [markdown]
# ## Sharding the state
#
# In data-parallel training, every rank holds all parameters, all gradients and Adam's complete state: 16 bytes per parameter. **ZeRO**
# removes these copies. Each rank owns one *shard* of the parameters:
#
# - **Stage 1** shards the optimizer's state. A *reduce-scatter* gives each rank the mean gradients of its shard. The rank updates its shard
#   of the parameters. An *all-gather* then sends all shards to all ranks. Every rank still needs memory for all gradients.
# - **Stage 2** also shards the gradients: each rank keeps only the gradients of its shard.
# - **Stage 3** also shards the parameters. PyTorch's *FSDP* is stage 3: it gathers the parameters of a block just before it uses them.
#
# A ring all-reduce consists of a reduce-scatter and an all-gather. So stage 1 sends as many bytes as DDP, if both use rings. (On CPUs stage 1
# sends more, because gloo builds its reduce-scatter from an all-reduce.) FSDP gathers the parameters twice, for forward and for backward, so
# it sends 1.5 times as many bytes.
#
# Fill in ZeRO by hand, for 4 ranks and a network with 4 MB of parameters. The shards are A to D, and shard A belongs to
# rank 0. Which shards of the parameters, the gradients and the moments does each rank have to keep in memory between
# backward and the update? Write the letters of the shards, such as "ABCD". The picture shows the sum of each rank and
# the first wrong entry. (This cell is not graded.)

# %%
by_hand = {  # for each rank, from rank 0 to rank 3
    "data parallel": {
        "parameters": ["ABCD", "ABCD", "ABCD", "ABCD"],
        "gradients": ["ABCD", "ABCD", "ABCD", "ABCD"],
        "moments": ["ABCD", "ABCD", "ABCD", "ABCD"],
    },
    "ZeRO-1": {  # stage 1
        "parameters": ["", "", "", ""],
        "gradients": ["", "", "", ""],
        "moments": ["", "", "", ""],
    },
    "ZeRO-2": {  # stage 2
        "parameters": ["", "", "", ""],
        "gradients": ["", "", "", ""],
        "moments": ["", "", "", ""],
    },
    "ZeRO-3": {  # stage 3
        "parameters": ["", "", "", ""],
        "gradients": ["", "", "", ""],
        "moments": ["", "", "", ""],
    },
}
sharded_state.zero_by_hand(by_hand)

# %% [markdown]
# Now write the formula for any number of parameters and ranks.


# %%
def sharded_bytes(method, parameters, ranks):
    """Return the bytes that each of `ranks` ranks needs for parameters, gradients and Adam's state together.

    method: "ddp", "zero" (stage 1) or "fsdp"; parameters: the number of parameters. Temporary tensors do not count.
    """
    ### BEGIN SOLUTION sharded_bytes:
    ### Return the bytes. Divide the sharded parts by `ranks`.
    weights = gradients = 4 * parameters
    state = 8 * parameters
    if method == "ddp":
        return weights + gradients + state
    if method == "zero":
        return weights + gradients + state / ranks
    return (weights + gradients + state) / ranks
    ### END SOLUTION


# %%
print("GB per rank, for a network with 7 billion parameters:")
print("ranks  ddp  zero  fsdp")
for ranks in (1, 2, 4, 64):
    ddp, zero, fsdp = (sharded_bytes(name, 7e9, ranks) / 1e9 for name in ("ddp", "zero", "fsdp"))
    print(f"{ranks:5} {ddp:4.0f} {zero:5.0f} {fsdp:5.0f}")

# %% [markdown]
# Fill in the three gaps of `pytorch/zero.py`. All parameters are in one tensor with one row per rank, so a shard is a row.
#
# The runs below also use PyTorch's own `ZeroRedundancyOptimizer`. It distributes whole tensors instead of rows. The network has two blocks
# here, and the batch is smaller, so that the state needs most of the memory.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/zero.py  # the gaps

# %%
# ZeRO stage 1 shards Adam's state, but not the parameters. With how many ranks, at least, does a rank's share of the
# state need less memory than the parameters?
### BEGIN SOLUTION prediction_ranks: Set `prediction_ranks` to your number of ranks.
prediction_ranks = 3
### END SOLUTION
print(f"I expect this with {prediction_ranks} or more ranks.")

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
# By default, DDP keeps buckets in addition to the gradients, which doubles their memory (`gradient_as_bucket_view=True`
# avoids this). `torch-zero` runs with DDP, so it has the buckets, too. Your ZeRO keeps all gradients in one tensor,
# which also serves as the bucket. For a short time, it needs a second tensor: the mean gradients of its shard. With one
# rank, there is only one shard, so ZeRO saves nothing. At 2 ranks, Adam's state is as large as the parameters; it needs
# less from 3 ranks on. The next figure shows the memory of rank 0 during one step with two ranks:

# %%
folders = [f"{FOLDER}/results/sharded_2/{method}_0" for method in ("ddp", "zero")]
memory.picture(folders, ranks=[0])

# %%
check("model_parallel", "sharded_bytes", "prediction_ranks", "zero.py")

# %% [markdown]
# ## \* FSDP: sharding the complete state, in bfloat16
#
# Large networks compute in *bfloat16*. Such a number takes 2 bytes. It has the range of float32, but only 8 bits of
# precision. A small update would be lost by rounding, so the optimizer updates float32 *master* parameters. The state
# needs 16 bytes per parameter, as in float32; the table lists its parts. The activations need half the memory.
#
# | bytes per parameter | parameters | masters | gradients | Adam | sum |
# |---|---|---|---|---|---|
# | float32 | 4 | - | 4 | 8 | 16 |
# | bfloat16, float32 masters | 2 | 4 | 2 | 8 | 16 |
# | `fully_shard` with bfloat16, r ranks | 2, one block at a time | 4 / r | 4 / r | 8 / r | 16 / r |
#
# PyTorch's `fully_shard` is stage 3. It gathers the parameters of the wrapped module before the module computes, and
# frees them afterwards (`reshard_after_forward`). So the parameters of one wrapped module are in memory at the same
# time. If you wrap the blocks first and then the model, the model's own group consists of what is left: the patches and
# the head. They stay gathered after forward by default, because backward starts with the head. On GPUs, FSDP gathers
# the next block while the current block computes (*prefetch*). On CPUs, communication and computation do not overlap.
#
# Fill in the gap of `pytorch/fully_sharded.py`.

# %%
# !cd {FOLDER} && sed -n '/# PUT YOUR CODE/,/raise/p' pytorch/fully_sharded.py  # the gap

# %%
# A network with two blocks runs on two ranks. How many all-gathers does one step need, in forward and backward together?
### BEGIN SOLUTION prediction_gathers: Set `prediction_gathers` to your number of all-gathers.
prediction_gathers = 5
### END SOLUTION
print(f"I expect {prediction_gathers} all-gathers.")

# %%
# !cd {FOLDER} && OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore torchrun --standalone --nproc-per-node 2 pytorch/fully_sharded.py

# %% [markdown]
# FSDP gathers each block for forward and again for backward, and the patches and the head only once. Each of the three
# groups (two blocks, and the rest) needs one reduce-scatter, which sums its gradients.
#
# With `reshard_after_forward=False`, the blocks stay gathered from forward to backward. Which collectives does a step then save, and which
# part of the memory grows? The next two cells record a few steps of both variants, and draw one step of rank 0.

# %%
options = "--epoch 1 --blocks 2 --batchsize 16"
recorded = {"reshard_after_forward=True": profiled_runs.of_method(FOLDER, "train_sharded.py", "none", "fsdp", options)}

# %%
recorded["reshard_after_forward=False"] = profiled_runs.of_method(
    FOLDER, "train_sharded.py", "none", "fsdp-gathered", options
)
sharded_state.collectives(recorded)

# %% [markdown]
# With `False`, the two all-gathers at the start of backward are missing. In return, all blocks' parameters stay in memory until their
# backward, as in stage 2. The reduce-scatters are the same. On CPUs, a core waits for each collective, so no computation overlaps with it.
# FSDP starts to gather the next block before the current block computes, so two blocks are in memory for a moment.
#
# The tables above the figure show the megabytes sent. With `True`, FSDP sends twice as many as DDP would, instead of 1.5
# times; with `False`, it sends 1.5 times as many. The reason is that gloo builds its reduce-scatter from an all-reduce,
# which sends twice as many bytes.
#
# Now all methods train the same network. How will the losses and the memory of `fsdp-bfloat16` differ from those of `ddp`?

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
# In float32, the loss of FSDP equals the loss of DDP and of your ZeRO. In bfloat16, it differs in the last digits. The masters, the gradients
# and Adam's state need as much memory as in float32, and the activations need less. FSDP holds the gathered parameters of a block only while
# the block computes. The figure counts them as activations, because they are temporary.

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
# - Compute on paper whether training fits a GPU, and which part needs most of the memory.
# - Choose between gradient accumulation and activation checkpointing, and estimate the cost of each.
# - Shard the optimizer's state among ranks, and name the parts that each stage of ZeRO shards.
#
# Continue with `06b_model_parallel`.
