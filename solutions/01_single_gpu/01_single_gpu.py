# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # One GPU
#
# Before you compare two GPUs with one, find out what one GPU does. Which parts does a training step have, how fast is
# it, and what limits it?
#
# **In about 40 minutes you will**
#
# - run a training step by hand: forward, backward, optimize,
# - complete a training script and a job script, and measure the throughput,
# - find out which batch size is large enough, and which parts of an epoch are worth improving.
#
# The [glossary](../docs/glossary.md) explains words that are new to you.

# %%
from handson.training.options import usual_model

# Device: a GPU if there is one. To use cores instead, first run `%env HANDSON_DEVICE=cpu` in a cell above.
TRACK = "pytorch"  # or "chainer"
MODEL = usual_model(TRACK)  # "convnet" on a core or a small GPU, else "resnet18" or "resnet50"
OPTIONS = ""  # of the training script, such as "--epoch 2 --batchsize 64"
SIZE = 256  # side of the images in the measurements below, in pixels
FOLDER = "../exercises/01_single_gpu"

# %% [markdown]
# ## The training loop, part by part
#
# The data set has images of handwritten digits: 1,500 for training and 297 for testing. Here are the first ten training
# images.

# %%
import torch
import torch.nn.functional as F

from handson.notebook import single_gpu
from handson.training import data

train_set, test_set = data.load("digits")
print(len(train_set), "training images, each a tensor of shape", tuple(train_set.images[0].shape))
single_gpu.images(train_set)

# %% [markdown]
# An image of 8 x 8 pixels is too little work for a GPU. As in the lecture from which this course grew, each batch is
# therefore enlarged to 256 x 256 pixels with three channels.
#
# What is the shape of a batch of 4 enlarged images? Predict it before you run the cell.

# %%
images = data.enlarge(train_set.images[:4], 256)
labels = train_set.labels[:4]
print(images.shape)

# %% [markdown]
# **Forward**: the network computes ten scores for every image, one for each digit. The *loss* is one number that
# measures how wrong these scores are.
#
# This network has not learned anything yet. Which loss do you expect? (If the network gives the same probability to all
# ten digits, the loss is log(10) = 2.3.)

# %%
from handson.pytorch.model import ConvNet

torch.manual_seed(0)
model = ConvNet()
outputs = model(images)
loss = F.cross_entropy(outputs, labels)
print("scores:", tuple(outputs.shape), "  loss:", round(loss.item(), 3))

# %% [markdown]
# A loss near 2.3 means that the network is guessing. With only four images, the loss can differ from 2.3 by a few
# tenths.
#
# **Backward**: for every parameter of the network, backward computes its *gradient*. The gradient is the rate at which
# the loss changes when this parameter changes. How many parameters does the network have: thousands, or millions?

# %%
loss.backward()
parameters = list(model.parameters())
print(sum(parameter.numel() for parameter in parameters), "parameters, and as many gradients")

# %% [markdown]
# **Optimize**: every parameter moves a small step against its gradient. The *learning rate* sets the size of the step.
#
# Will the loss of the same four images be smaller after this step?

# %%
optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
optimizer.step()
after = F.cross_entropy(model(images), labels)
print("loss before:", round(loss.item(), 3), "  after:", round(after.item(), 3))

# %% [markdown]
# That was one *iteration*: forward, backward, optimize. Training repeats this for one batch after another. One pass
# through all training images is an *epoch*.
#
# ## The training script
#
# Open `exercises/01_single_gpu` in the file browser. Fill in the gaps marked PUT YOUR CODE in the script of your track
# and in `run_single_gpu_training.sh`. (In Chainer, `StandardUpdater` and `Trainer` run the loop for you.)
#
# In the PyTorch script, `train_step` is the iteration from above, and `evaluate` computes the loss and the accuracy on
# the test set. A `DataLoader` makes the batches. With `shuffle=True`, each epoch uses every image once, in a new random
# order. The *seed* (`torch.manual_seed`) makes random numbers repeatable: a second run starts with the same weights and
# uses the same batches.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" {TRACK}/*.py *.sh

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("single_gpu", "train_cifar_single_gpu.py", "run_single_gpu_training.sh", track=TRACK)

# %% [markdown]
# ## Run it
#
# In a terminal you would type `cd exercises/01_single_gpu` and `qsub -j oe run_single_gpu_training.sh`. The next cell
# does the same.
#
# How long will 4 epochs take? Guess.

# %%
from handson.cluster.follow import follow, submit

options = f"--model {MODEL} {OPTIONS}"
job = submit(FOLDER, "-j", "oe", "run_single_gpu_training.sh", TRACK=TRACK, OPTIONS=options)
follow(job)

# %%
from handson.notebook import runs

run = runs.of_job(FOLDER, job)
runs.show(run)

# %% [markdown]
# The training loss falls from epoch to epoch. The validation loss is measured on the test images, which are never used
# for training. It usually falls, too, but less far, and it can rise from one epoch to the next. If it keeps rising
# while the training loss falls, the network memorises the training images: it *overfits*.
#
# ## Throughput
#
# The last line of the output is the **throughput** in images per second. This course compares runs by their throughput.
#
# Write the throughput as a function. Its arguments are the batch size and a list with the time of each step in seconds.
# The steps may take different times.


# %%
def throughput(batchsize, step_seconds):
    """Return the images/s of steps that use `batchsize` images each.

    step_seconds: a list with the seconds of each step.
    """
    ### BEGIN SOLUTION throughput:
    ### return the number of images in all steps, divided by the total time of these steps
    return batchsize * len(step_seconds) / sum(step_seconds)
    ### END SOLUTION


# %%
print(throughput(32, [0.1, 0.1]), "images/s should be 320")
print(throughput(32, [0.1, 0.3]), "images/s should be 160")

# %%
check("single_gpu", "throughput", track=TRACK)

# %% [markdown]
# ## Forward, backward, optimize
#
# Which part of a step takes longest? For every layer, forward computes one result, the outputs. Backward computes two:
# the gradients of the weights, and the gradients of the inputs.

# %%
# How many times as long as forward will backward take?
### BEGIN SOLUTION prediction_backward: write `prediction_backward = ` and your number
prediction_backward = 2
### END SOLUTION
print(f"I expect backward to take {prediction_backward} times as long as forward.")

# %% [markdown]
# The next cell runs 20 steps and measures the time of each part. (If you skipped the prediction, the figure is drawn
# without it.)

# %%
from handson.notebook import measure

steps = measure.steps(batchsize=32, size=SIZE, model=MODEL)
predicted = globals().get("prediction_backward")  # None if you skipped it
single_gpu.parts_of_step(steps.seconds(), predicted=predicted)

# %%
import numpy

medians = {part: numpy.median(seconds) for part, seconds in steps.seconds().items()}
print("backward / forward:", round(medians["backward"] / medians["forward"], 2))
print("predicted:", predicted)
print("throughput:", round(throughput(32, steps.of_steps())), "images/s")

# %% [markdown]
# On a core, backward usually takes 1.2 to 2.5 times as long as forward. (It can take less than twice as long, because
# the first layer needs no gradient of its inputs, the images.) Optimize takes little time, because it uses each
# parameter once, but forward and backward use it many times. Is your ratio very different? Look at the marks in the
# figure, one for each step. If they are widely scattered, another program used the device at the same time. If other
# programs used a large part of the cores, a line above the figure says so. Then wait until they have ended, and run the
# cell again.
#
# Unlike the throughput of your job, the throughput printed here does not include the start and the evaluation.

# %%
check("single_gpu", "prediction_backward")

# %% [markdown]
# ## Batch size against throughput
#
# Part of the time of a step does not depend on the batch size: the time to launch operations and to update parameters.
# With more images per step, this part matters less. But a GPU (or a core) has a maximum throughput.
#
# What will the curve look like? Sketch it before you run the cell.

# %%
seconds_of_steps = measure.batch_sizes(size=SIZE, model=MODEL)
rates = {size: throughput(size, seconds) for size, seconds in seconds_of_steps.items()}
single_gpu.throughputs(rates)

# %% [markdown]
# Most curves rise steeply at first and then flatten: from some batch size on, the device has enough to do. A core
# reaches this point at 4 to 16 images. A GPU needs more work: the kernels of an H200 ran nearly all the time from about
# 256 images on with `convnet`, and from about 32 with `resnet50`. If the curve of a core falls again for large batches,
# the images of a step no longer fit into its caches.
#
# The largest batch is not always the best choice. It needs more memory, and the notebook `02_multi_gpu` shows how it
# changes the accuracy. So choose the *smallest* batch size whose throughput is close to the best one.


# %%
def smallest_batch(rates, share=0.9):
    """Return the smallest batch size with at least `share` of the best throughput.

    rates: batch size -> images/s.
    """
    ### BEGIN SOLUTION smallest_batch: return a batch size, a key of the dictionary `rates`
    enough = share * max(rates.values())
    return min(batchsize for batchsize, rate in rates.items() if rate >= enough)
    ### END SOLUTION


# %%
for batchsize, rate in rates.items():
    print(f"batch size {batchsize:4}: {rate:6.0f} images/s")
print("90 % of the best throughput is reached with batch size", smallest_batch(rates))

# %%
check("single_gpu", "smallest_batch")

# %% [markdown]
# ## How much of the device is used?
#
# Images per second depend on the network: `resnet50` needs 350 times as much computation for each image as `convnet`.
# The *model FLOPs utilisation* (MFU) makes training runs of different networks comparable:
#
# $$\text{MFU} = \frac{\text{images/s} \times \text{FLOPs per image}}{\text{FLOP/s that the device can reach}}$$
#
# A FLOP is one floating-point operation. PyTorch's `FlopCounterMode` counts the FLOPs of forward and backward. The next
# cell also measures how many FLOP/s the device can reach: it multiplies two large matrices. Which share of this number
# does your best batch size use: 10 %, 50 %, 90 %?

# %%
from handson.pytorch import flops

per_image = flops.of_image(MODEL, SIZE)
peak = measure.peak()
best = max(rates.values())
print(f"{MODEL}, {SIZE} pixels: {per_image / 1e9:.2f} billion FLOPs for each image")
print(f"training: {best * per_image / 1e9:,.0f} billion FLOP/s; one large matrix multiplication: {peak / 1e9:,.0f}")
print(f"MFU: {100 * best * per_image / peak:.0f} %")

# %% [markdown]
# For large networks on GPUs, an MFU of 30 to 60 % is usual. What keeps yours below 100 %? Convolutions with few
# channels use the device less well than one large matrix multiplication. Normalisation, ReLU and the optimizer move
# much data and need few FLOPs. Loading and enlarging images takes time, but the MFU does not count their FLOPs.

# %% [markdown]
# ## Why a GPU waits, and what helps
#
# A GPU does not start any work by itself. For each operation, Python *launches* a program on the GPU, a *kernel*. A
# launch takes some millionths of a second, however small the kernel is. If the kernels are shorter than their launches,
# the GPU waits for Python. With the small network `convnet`, the kernels of an H200 ran for only 31 % of a step. So the
# throughput of 15,400 images/s said little about that GPU.
#
# Two things help: more work in each launch, or fewer launches.
#
# | way | effect |
# |---|---|
# | a larger batch, a larger network | each kernel takes longer; the number of launches stays the same |
# | a *CUDA graph* | all kernels of a step are launched at once; the step is recorded first, and cannot change afterwards |
# | `torch.compile` | joins operations into fewer kernels; compiling takes a minute |
#
# If the kernels take most of the time, make the kernels shorter:
#
# | way | effect |
# |---|---|
# | TF32 | convolutions round the mantissa of float32 to 10 bits, and use the GPU's *tensor cores*; this is PyTorch's default |
# | bfloat16, with `torch.autocast` | convolutions and matrix multiplications use 16 bits for each number: half of the memory, and tensor cores again |
# | channels last | the channels of a pixel are next to each other in memory, as tensor cores need them |
#
# The next cell measures some of these ways. On a core there are no launches to wait for, so the cell only tries the
# ways that make sense there. Before you run it: which way gives the GPU the most work? Which way has the highest
# throughput? (These can be two different ways.)

# %%
from handson.notebook import device_ways

found = device_ways.ways(size=SIZE)
device_ways.show(found)

# %% [markdown]
# On the H200 with batches of 32 images, `resnet50` reached 1,480 images/s with TF32, and 1,470 with bfloat16 and
# channels last. Did bfloat16 gain nothing? Before the change, the kernels ran for 94 % of the time; afterwards,
# for 49 %. They had become so short that Python was the bottleneck. With the same settings and batches of 128 images, the
# throughput was 3,460 images/s, and the kernels ran for 96 % of the time. So look at both numbers. First find out
# whether the GPU waits for Python, then choose what to change.
#
# On a core, bfloat16 is slow if the processor has no instructions for it. A larger batch helps little or not at all,
# because even a small batch keeps a core busy.

# %% [markdown]
# ## Where the time of an epoch goes
#
# An epoch contains more than forward, backward and optimize: images are loaded and enlarged, and at the end of the
# epoch the network is evaluated on the test set. Which share of the epoch do these other parts take together?

# %%
epoch = measure.epoch(size=SIZE, model=MODEL)
single_gpu.epoch(epoch)

# %% [markdown]
# On a core, forward and backward take most of the epoch. On a fast GPU they take less time, and loading can become the
# largest part. Then a faster GPU would not help. You will see such a case in `04_profiling`.
#
# Suppose that one part took no time at all. How many times as fast would the epoch be? (This is the limit that
# *Amdahl's law* gives: it shows which parts are worth improving.)


# %%
def limit(seconds, part):
    """Return how many times as fast an epoch is if `part` takes no time at all.

    seconds: part -> the seconds of this part in the epoch.
    """
    ### BEGIN SOLUTION limit: return the time of the epoch, divided by its time without the part
    total = sum(seconds.values())
    return total / (total - seconds[part])
    ### END SOLUTION


# %%
from handson import figures

limits = {part: limit(epoch, part) for part in epoch}
figures.bar_chart(limits, "speed-up of the epoch if this part took no time", start=1)

# %% [markdown]
# A bar of length zero (a factor of 1) marks a part that is not worth improving. Two GPUs share the work of forward and
# backward, but not all of the other parts. Remember this figure for the next notebook.
#
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell. It checks the gaps of this notebook, of the scripts, and of the job
# script. A message may mention *rank 0*. Training with one process has one rank, number 0, so rank 0 is your script.

# %%
from grader import check

check("single_gpu")

# %% [markdown]
# ## What you can do now
#
# - Divide a training step into its parts, and find the part that takes the most time.
# - Write a job script for one GPU, and read the throughput from its output.
# - Choose a batch size by measurement, and find the part that is worth improving (Amdahl's law).
#
# Continue with the next notebook. The file browser on the left lists the notebooks in order.
