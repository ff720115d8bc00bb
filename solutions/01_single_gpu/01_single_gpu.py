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
# Before two GPUs can be compared with one, we must know what one does: what a training step is made of, how fast it is, and what
# limits it.
#
# **In about 40 minutes you will**
#
# - make a training step by hand: forward, backward, optimize,
# - fill a training script and a job script, and measure the throughput,
# - find out which batch size is large enough, and what in an epoch is worth improving.
#
# Words that are new to you are in the [glossary](../docs/glossary.md).

# %%
from handson.training.options import usual_model

TRACK = "pytorch"  # or "chainer"
MODEL = usual_model(TRACK)  # "convnet" on a core; on a GPU "resnet50" or "resnet18", which keep it at work
OPTIONS = ""  # for the training script, such as "--epoch 2"
SIZE = 256  # side of the images in the measurements below, in pixels
FOLDER = "../exercises/01_single_gpu"

# %% [markdown]
# ## The training loop, part by part
#
# The data set has 1,500 images of handwritten digits for training, and 297 for testing. Here are the first ten.

# %%
import torch
import torch.nn.functional as F

from handson.notebook import single_gpu
from handson.training import data

train_set, test_set = data.load("digits")
print(len(train_set), "training images, each a tensor of shape", tuple(train_set.images[0].shape))
single_gpu.images(train_set)

# %% [markdown]
# Eight pixels are little work for a GPU. So each batch is enlarged to 256 x 256 pixels and three channels, as in the lecture.
#
# What is the shape of a batch of 4 enlarged images? Say it before you run the cell.

# %%
images = data.enlarge(train_set.images[:4], 256)
labels = train_set.labels[:4]
print(images.shape)

# %% [markdown]
# **Forward**: the network turns every image into ten scores, one for each digit. The *loss* says in one number how bad they are.
#
# This network has learned nothing yet. Which loss do you expect? (If all ten digits seem equally likely, it is log(10) = 2.3.)

# %%
from handson.pytorch.model import ConvNet

torch.manual_seed(0)
model = ConvNet()
outputs = model(images)
loss = F.cross_entropy(outputs, labels)
print("scores:", tuple(outputs.shape), "  loss:", round(loss.item(), 3))

# %% [markdown]
# A loss near 2.3 is that of guessing. With four images, it can differ by some tenths.
#
# **Backward**: for every parameter of the network, its *gradient* says how the loss changes with it. How many parameters does the
# network have: thousands, or millions?

# %%
loss.backward()
parameters = list(model.parameters())
print(sum(parameter.numel() for parameter in parameters), "parameters, and as many gradients")

# %% [markdown]
# **Optimize**: every parameter goes a little against its gradient; how far, the *learning rate* says.
#
# Will the loss of the same four images be smaller after this step?

# %%
optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
optimizer.step()
after = F.cross_entropy(model(images), labels)
print("loss before:", round(loss.item(), 3), "  after:", round(after.item(), 3))

# %% [markdown]
# That was one *iteration*: forward, backward, optimize. A training repeats it with batch after batch; when all images had their
# turn, an *epoch* is over.
#
# ## The training script
#
# Open `exercises/01_single_gpu` in the file browser. Fill the gaps marked PUT YOUR CODE in the script of your track, and those in
# `run_single_gpu_training.sh`. (In Chainer, the loop is inside of `StandardUpdater` and `Trainer`.)
#
# In the PyTorch script, `train_step` is the iteration from above, and `evaluate` computes the loss and the accuracy on the test set. A
# `DataLoader` makes the batches: with `shuffle=True`, each epoch has all images once, in a new random order. The *seed*
# (`torch.manual_seed`) makes random numbers repeatable, so a second run has the same weights at its start and the same batches.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" {TRACK}/*.py *.sh

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check("single_gpu", "train_cifar_single_gpu.py", "run_single_gpu_training.sh", track=TRACK)

# %% [markdown]
# ## Run it
#
# In a terminal you would type `cd exercises/01_single_gpu` and `qsub -j oe run_single_gpu_training.sh`. The cell does the same.
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
# The training loss falls from epoch to epoch. The validation loss, on images that the network never trained on, falls with it, though less
# smoothly. If the validation loss rises while the training loss falls, the network learns its images by heart: it *overfits*.
#
# ## Throughput
#
# The last line of the output is the **throughput**: images per second. It is what this course compares.
#
# Write it down as a function. It gets the batch size and the time of each step, in seconds, and steps may take unequally long.


# %%
def throughput(batchsize, step_seconds):
    """Images/s of steps with `batchsize` images each, which took `step_seconds` (a list of seconds)."""
    ### BEGIN SOLUTION throughput:
    ### return how many images there were in all steps, divided by the time that these took
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
# Which part of a step takes longest? For every layer, backward computes two things: the gradients of its weights, and those of its
# inputs. Forward computes one.

# %%
# How many times as long as forward does backward take?
### BEGIN SOLUTION prediction_backward: write `prediction_backward = ` and your number
prediction_backward = 2
### END SOLUTION
print(f"I expect backward to take {prediction_backward} times as long as forward.")

# %% [markdown]
# The next cell makes 20 steps with a clock in between.

# %%
from handson.notebook import measure

steps = measure.steps(batchsize=32, size=SIZE, model=MODEL)
single_gpu.parts_of_step(steps.seconds(), predicted=prediction_backward)

# %%
import numpy

medians = {part: numpy.median(seconds) for part, seconds in steps.seconds().items()}
print("backward / forward:", round(medians["backward"] / medians["forward"], 2))
print("predicted:", prediction_backward)
print("throughput:", round(throughput(32, steps.of_steps())), "images/s")

# %% [markdown]
# Most people see backward take 1.5 to 2.5 times as long as forward, and optimize next to nothing: this network has few parameters for its
# many pixels. Is your ratio far from that? Look at the marks: if they are scattered widely, something else used the core meanwhile. A measurement says
# so above its figure if other programs took much of the cores: then run its cell again when they have ended.
#
# The throughput printed here is higher than that of your job: the clock of these steps leaves out the evaluation and the start.

# %%
check("single_gpu", "prediction_backward")

# %% [markdown]
# ## Batch size against throughput
#
# A step does things that cost the same whatever the batch size is: starting operations, updating parameters. With more images a step,
# these matter less. But a GPU (or a core) can't do more than it can.
#
# What will the curve look like? Draw it in the air.

# %%
seconds_of_steps = measure.batch_sizes(size=SIZE, model=MODEL)
rates = {size: throughput(size, seconds) for size, seconds in seconds_of_steps.items()}
single_gpu.throughputs(rates)

# %% [markdown]
# Most curves rise steeply at first, then flatten: from some size on, the device has enough to do. On a core this comes soon, at 4 to 16
# images; a GPU with thousands of cores needs many more. If yours falls at the end, the images of a step don't fit into the caches any more.
#
# The largest batch is not always the one to take: it needs more memory, and the notebook on several GPUs shows what it does to the
# accuracy. So read from the table the *smallest* batch size that comes close to the best throughput.


# %%
def smallest_batch(rates, share=0.9):
    """The smallest batch size with at least `share` of the best throughput.

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
# Images per second depend on the network: `resnet50` computes 350 times as much for each image as `convnet`. The *model FLOPs utilisation*
# (MFU) compares trainings of any network:
#
# $$\text{MFU} = \frac{\text{images/s} \times \text{FLOPs per image}}{\text{FLOP/s that the device can reach}}$$
#
# A FLOP is one floating-point operation. PyTorch's `FlopCounterMode` counts those of forward and backward. The cell measures what the
# device can reach: it multiplies two large matrices. Which share of that does your best batch size use: 10 %, 50 %, 90 %?

# %%
from handson.pytorch import flops

per_image = flops.of_image(MODEL, SIZE)
peak = measure.peak()
best = max(rates.values())
print(f"{MODEL}, {SIZE} pixels: {per_image / 1e9:.2f} billion FLOPs for each image")
print(f"training: {best * per_image / 1e9:,.0f} billion FLOP/s; one large product: {peak / 1e9:,.0f}")
print(f"MFU: {100 * best * per_image / peak:.0f} %")

# %% [markdown]
# Trainings of large networks on GPUs reach 30 to 60 %. What keeps yours below 100 %? Convolutions with few channels use the device less well
# than one large product. Normalisation, ReLU and the optimizer move much data for few FLOPs. And loading and enlarging count as time,
# but their FLOPs don't count.

# %% [markdown]
# ## Why a GPU waits, and what helps
#
# A GPU does nothing by itself: for each operation, Python *launches* a program on it, a *kernel*. A launch takes some millionths of a second,
# whatever the kernel does. If the kernels are shorter than their launches, the GPU waits for Python. With the small network `convnet`, the
# kernels of an H200 ran for 31 % of a step, and 15,400 images/s said little about that GPU.
#
# Two things help: give it more to do with each launch, or launch less often.
#
# | way | what it does |
# |---|---|
# | a larger batch, a larger network | each kernel takes longer; there are as many launches |
# | a *CUDA graph* | all kernels of a step are launched at once; the step is recorded before, and can't change |
# | `torch.compile` | joins operations into fewer kernels; compiling takes a minute |
#
# When the kernels are what takes the time, they can be made shorter:
#
# | way | what it does |
# |---|---|
# | TF32 | convolutions round float32 to 10 bits behind the point, and use the GPU's *tensor cores*. PyTorch does it by itself |
# | bfloat16, by `torch.autocast` | 16 bits for each number in products: half of the memory, and tensor cores again |
# | channels last | the colours of a pixel lie side by side in memory, as tensor cores want them |
#
# The cell measures some of these. On a core there are no launches to wait for, so it tries what makes sense there. Before you run it: which
# way gives the GPU the most work? Which has the most images a second? (They need not be the same.)

# %%
from handson.notebook import device_ways

found = device_ways.ways(size=SIZE)
device_ways.show(found)

# %% [markdown]
# On the H200, `resnet50` with 32 images had 1,480 images/s with TF32, and 1,470 with bfloat16 and channels last. Nothing gained? Its kernels ran for
# 94 % of the time before and for 49 % after: they had become so short that Python was the limit. With 128 images there were 3,460 images/s,
# and the kernels ran for 96 % of the time. So look at both numbers: first see who waits for whom, then choose what to change.
#
# On a core, bfloat16 is slow where the processor has no instructions for it, and a larger batch helps little: a core has enough to do.

# %% [markdown]
# ## Where the time of an epoch goes
#
# An epoch is more than forward, backward and optimize: images are loaded and enlarged, and at its end the test set is evaluated.
# Which share will these have together?

# %%
epoch = measure.epoch(size=SIZE, model=MODEL)
single_gpu.epoch(epoch)

# %% [markdown]
# On a core, forward and backward take most of the epoch. On a fast GPU they shrink, and loading can become the largest part: then a faster GPU
# would not help. You see such a case in `04_profiling`.
#
# Suppose that one part cost no time at all. By which factor would the epoch become shorter? (This is *Amdahl's law* at its limit: it
# shows what is worth improving.)


# %%
def limit(seconds, part):
    """By which factor an epoch gets faster at most, if `part` is made faster.

    seconds: part -> the seconds it takes in the epoch.
    """
    ### BEGIN SOLUTION limit: return the time of the epoch now, divided by its time without the part
    total = sum(seconds.values())
    return total / (total - seconds[part])
    ### END SOLUTION


# %%
from handson import figures

limits = {part: limit(epoch, part) for part in epoch}
figures.bar_chart(limits, "speed-up of the epoch if this part cost nothing", start=1)

# %% [markdown]
# A bar of length zero (a factor of 1) is a part that is not worth improving. Two GPUs share the work of forward and backward, but not
# everything else: keep the picture in mind for the next notebook.
#
# ## Check
#
# Save the notebook (Ctrl-S) and run the cell. It checks the gaps of this notebook, of the scripts, and of the job script. A message may
# speak of *rank 0*: a training with one process has one rank, number 0, and that is your script.

# %%
from grader import check

check("single_gpu")

# %% [markdown]
# ## What you can do now
#
# - Take a training step apart, and name what takes its time.
# - Write a job script for one GPU, and read the throughput from its output.
# - Choose a batch size by measurement, and say what is worth improving (Amdahl's law).
#
# Go on with the next notebook; the file browser on the left has them in order.
