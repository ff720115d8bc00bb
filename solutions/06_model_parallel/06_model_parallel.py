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
NETWORK = "80mbit"  # between the two virtual nodes, where it is the lesson

# %%
from handson.cluster import virtual_nodes
from handson.cluster.follow import follow, submit
from handson.notebook import communication

if why := virtual_nodes.why_not():
    NETWORK = "none"
    print("There are no virtual nodes here, so the network can't be slowed down. Everything runs, but bytes cost nothing:", why)


def run(script, name, options, network="none", select="1:ngpus=1:mpiprocs=1:ompthreads=1", track="pytorch"):
    """Run a script, into results/`name`; returns its results: method -> a result for each seed."""
    variables = {"SCRIPT": script, "NAME": name, "OPTIONS": options, "TRACK": track}
    follow(submit(FOLDER, "-V", "-l", f"network={network}", "-l", f"select={select}", "-j", "oe", "run_script.sh", **variables))
    return communication.trainings(f"{FOLDER}/results/{name}")


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


# %% [markdown]
# ## Before you split

# %% [markdown]
# ## Split the state

# %% [markdown]
# ## Split between layers

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
from handson.notebook import products

products.parts(ranks=2)

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
    """Bytes that a rank sends in one step, forward and backward, if `blocks` blocks are split among `ranks` ranks; images: in a batch, tokens: of an image."""
    ### BEGIN SOLUTION products_bytes: return the bytes; a block has two split parts, its attention and its MLP, and each has an all-reduce in both directions
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

# %% [markdown]
# ## Both at once
#
# Four GPUs, two on each of two nodes. Two ranks share a network (its products are split), and there are two such pairs, which share the
# images. The ranks stand in a *mesh* of 2 x 2. The network between the nodes is slow; inside a node it is fast. What should the two
# ranks of one node do together: share a network, or share the images?
#
# The bytes decide. Ranks that share a network send the tokens of each block; ranks that share the images send their gradients, once in each
# step. But each of them has only a part of the network.


# %%
def images_bytes(parameters, network_ranks, image_ranks):
    """Bytes that a rank sends in one step for the means of the gradients, by a ring all-reduce of float32.

    parameters: of the whole network, all of them divided among `network_ranks` ranks; image_ranks: how many ranks share the images.
    """
    ### BEGIN SOLUTION images_bytes: return the bytes; a rank has the gradients of its part only
    return 2 * (image_ranks - 1) / image_ranks * 4 * parameters / network_ranks
    ### END SOLUTION


# %%
BLOCKS, IMAGES, TOKENS, WIDTH = 2, 64, 16, 128  # IMAGES: of a rank, in a step
sends = {
    "tensor-inside": images_bytes(BLOCKS * block_parameters(WIDTH), 2, 2),  # between the nodes, each rank
    "data-inside": products_bytes(BLOCKS, IMAGES, TOKENS, WIDTH, 2),
}
print("\n".join(f"{name:14} {sent / 1e6:5.2f} MB between the nodes, from each rank in each step" for name, sent in sends.items()))

# %% [markdown]
# Both ranks of a node send at the same time, over one network. From the bytes and the rate of the network follow the seconds of a step:


# %%
def step_seconds(computing, sent, ranks, rate):
    """Seconds of a step: first all compute, `computing` seconds; then each of the `ranks` ranks of a node sends `sent` bytes to the other node.

    rate: of the node's network, in Mbit/s.
    """
    ### BEGIN SOLUTION step_seconds: return the seconds; a byte has 8 bits, a Mbit is a million bits
    return computing + 8 * ranks * sent / (rate * 1e6)
    ### END SOLUTION


# %%
# What should the two ranks of a node share, for these bytes: "network" or "images"?
### BEGIN SOLUTION inside: write `inside = ` and the word, in quotes
inside = "network"
### END SOLUTION
# And how many times as long is a step of the other arrangement, at 80 Mbit/s?
### BEGIN SOLUTION prediction_times: write `prediction_times = ` and your number, 1 for as long
prediction_times = 4
### END SOLUTION
print(f"I expect the ranks of a node to share the {inside}, and the other way to take {prediction_times} times as long.")

# %% [markdown]
# Fill the gaps of `pytorch/mesh.py`; `train_mesh.py` trains with its functions and with those of `products.py`. Three jobs, at three rates:

# %%
RATES = (800, 240, 80) if NETWORK != "none" else (800,)  # Mbit/s
FOUR_RANKS = "2:ngpus=2:mpiprocs=2:ompthreads=1"
meshes = {}
for rate in RATES:
    network = "none" if NETWORK == "none" else f"{rate}mbit"
    options = f"--method all -e 1 -b {IMAGES} --blocks {BLOCKS} --width {WIDTH}"
    meshes[rate] = run("train_mesh.py", f"mesh_{rate}", options, network, FOUR_RANKS)

# %% [markdown]
# Points are measured, lines predicted by your `step_seconds`. It gets the seconds of computing from the fastest network.

# %%
steps = {name: {rate: products.seconds_of_a_step(of_rate[name][0], 2 * IMAGES) for rate, of_rate in meshes.items()} for name in sends}
computing = {name: of_one[RATES[0]] - step_seconds(0, sends[name], 2, RATES[0]) for name, of_one in steps.items()}
products.steps(steps, lambda name, rate: step_seconds(computing[name], sends[name], 2, rate), RATES[0])

# %%
for name in sends:
    counted = products.node_bytes(meshes[RATES[-1]][name][0], 2 * IMAGES)
    print(f"{name:14} predicted: {2 * sends[name] / 1e6:5.2f} MB from a node in a step; counted at its network: {counted / 1e6:5.2f} MB")
ratio = steps["data-inside"][RATES[-1]] / steps["tensor-inside"][RATES[-1]]
print(f"predicted: {prediction_times} times as long; measured: {ratio:.1f}")

# %% [markdown]
# So a network is shared inside a node, where bytes are cheap, and images are shared between nodes. That is how large networks are trained:
# tensor parallel among the GPUs of a node, data parallel (and pipelines, which send least of all) between nodes.
#
# The answer is one for these sizes. The tokens' bytes grow with the images, the gradients' bytes do not. With few images in a batch, the
# other way would win. At how many do both send the same?


# %%
def images_of_equal_bytes(blocks, tokens, width, parameters):
    """The images of a rank in a step with which both arrangements of a 2 x 2 mesh send equally many bytes between the nodes."""
    ### BEGIN SOLUTION images_of_equal_bytes: return the number, which need not be whole; write down what a rank sends in both arrangements, with 2 ranks for each kind: the tokens' bytes grow with the images, the gradients' do not
    of_gradients = 4 * parameters / 2  # a ring of 2 ranks sends all of its bytes once
    of_an_image = 2 * 2 * blocks * 4 * tokens * width
    return of_gradients / of_an_image
    ### END SOLUTION


# %%
print(f"{images_of_equal_bytes(BLOCKS, TOKENS, WIDTH, BLOCKS * block_parameters(WIDTH)):.1f} images")

# %% [markdown]
# ## Chainer's way

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
