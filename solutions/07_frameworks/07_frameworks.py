# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The same training in other systems
#
# You can train on many GPUs with TensorFlow, with PyTorch's older `DataParallel`, with Lightning, Accelerate or JAX.
# This notebook runs the same training in each of these systems: the same network, the same images, the same batches.
# Which part of the work does each system do for you, and which part is yours?
#
# **In about 110 minutes you will**
#
# - run the same training in several systems, and compare their speed, and the amount of code that each needs,
# - build TF_CONFIG from a job's node file, and write the step of a *replica* under a *strategy*,
# - decide which objects belong inside a strategy's scope, and see how a `tf.data` set is split,
# - translate a DDP loop to Lightning and to Accelerate without changing its results,
# - measure the share of Python in a step, and explain when the threads of DataParallel scale worse than processes,
# - read each system with the help of a [dictionary](../docs/frameworks.md).
#
# New words are in the [glossary](../docs/glossary.md).
#
# This notebook is written for virtual GPUs. On a machine with real ones, first run `%env HANDSON_DEVICE=cpu` in a new
# cell above the next one ([the reason](../docs/gpus.md#which-notebooks-use-gpus)).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/07_frameworks"
OPTIONS = "--epoch 2 --size 64"

# %% [markdown]
# These systems are in a second environment, which `make frameworks` creates next to the first one. The scripts find it
# by themselves. (With conda, this notebook runs in its own environment, `handson-frameworks`. The first lines of
# `environment-frameworks.yml` show the commands.)

# %%
from handson import frameworks

print(frameworks.why_not() or "TensorFlow, Lightning, Accelerate and JAX are installed.")

# %% [markdown]
# ## How processes find each other
#
# torchrun passes each PyTorch process its rank and the address of rank 0. A TensorFlow process needs the addresses of
# all processes. It reads them from the environment variable *TF_CONFIG*, which contains the cluster (equal in all
# processes) and the process's own task. A batch job lists its hosts in the file `$PBS_NODEFILE`.
#
# Fill the gap in `tensorflow/cluster.py`, then the gaps in `tensorflow/replicas.py`:
#
# - `scope`: a variable that is created inside the *scope* of a strategy has a copy on each replica. A variable
#   created outside the scope exists only once. The optimizer has variables, too.
# - `divided`: a `tf.data` set yields *global batches*. The strategy splits each of them among its replicas.
# - `replica_step`: the part of a step that one replica computes. `apply_gradients` sums the gradients of all replicas.
#   It does not divide the sum.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" */*.py

# %% [markdown]
# ## One training, several systems
#
# `train_cifar_mirrored.py` is a single process with a replica on each of two GPUs. Keras's `fit` trains it. Guess how
# many lines differ from the script for one GPU, then look:

# %%
# !cd {FOLDER}/tensorflow && diff train_cifar_single_gpu.py train_cifar_mirrored.py

# %% [markdown]
# Keras's `fit` fails under `MultiWorkerMirroredStrategy`, so `train_cifar_multi_worker.py` has its own loop, which
# calls your functions. A Lightning script has no loop: Lightning calls the methods of your class. Accelerate keeps the
# loop and wraps the objects in it. `torch.nn.DataParallel` wraps only the model. When you translate a DDP loop, its
# results must stay the same. Fill the gaps in `lightning/train_cifar_lightning.py` and
# `accelerate/train_cifar_accelerate.py`:
#
# - `loader`: Lightning puts a DistributedSampler into your DataLoader. Which arguments remain for you?
# - `training_step` and `step`: DDP averages the gradients of the ranks. Which lines of a DDP step does each system take
#   over?
# - `validation`: each rank evaluates its share of the test images. `sync_dist` averages a value over all ranks.
# - `prepare`: which objects does Accelerate need, so that it averages the gradients and splits the images among the
#   ranks?
#
# JAX has no gap. Read `jax/sharded.py`: the network is a function, *optax* provides the optimizers, and *shard_map*
# runs the step on each device with the device's share of the images. The same step serves one process with two devices
# (`train_cifar_shard_map.py`) and two processes (`train_cifar_multi_process.py`).
#
# Each script runs on one worker, then on two. Your DDP script of `02_multi_gpu` runs for comparison. The next two cells
# with jobs take about a minute each.
#
# A run of two epochs is short. Some systems need a large part of it to trace and compile the first step, which would
# hardly count in a long run. So the speed-up below compares the epochs after the first one, and the time of the first
# step is shown next to it. Which system comes closest to twice the throughput with a second worker?

# %%
### BEGIN SOLUTION prediction_speedup:
### write `prediction_speedup = ` and the highest speed-up on two workers that you expect from any
### of these systems
prediction_speedup = 1.7
### END SOLUTION
print(f"I expect a speed-up of {prediction_speedup} at best.")

# %%
from handson.cluster.follow import follow, submit
from handson.notebook import other_frameworks


def run_all(runs):
    """Run each script whose gaps are filled. runs: (script, GPUs, how the ranks start) of each; "none": one process
    starts itself on all GPUs."""
    for script, gpus, ranks in runs:
        if other_frameworks.ready(FOLDER, script):
            mpiprocs = 1 if ranks == "none" else gpus
            select = f"select=1:ngpus={gpus}:mpiprocs={mpiprocs}:ompthreads=1"
            ids = ",".join(map(str, range(gpus)))
            variables = {"SCRIPT": script, "RANKS": ranks, "OPTIONS": f"{OPTIONS} -g {ids}"}
            follow(submit(FOLDER, "-l", select, "-j", "oe", "run_script.sh", **variables))


WITH_PYTORCH = [
    ("../02_multi_gpu/pytorch/train_cifar_multi_gpu.py", 1, "none"),
    ("../02_multi_gpu/pytorch/train_cifar_multi_gpu.py", 2, "none"),
    ("pytorch/train_cifar_data_parallel.py", 1, "none"),
    ("pytorch/train_cifar_data_parallel.py", 2, "none"),
    ("lightning/train_cifar_lightning.py", 1, "mpiexec"),
    ("lightning/train_cifar_lightning.py", 2, "mpiexec"),
    ("accelerate/train_cifar_accelerate.py", 1, "mpiexec"),
    ("accelerate/train_cifar_accelerate.py", 2, "mpiexec"),
]
run_all(WITH_PYTORCH)

# %%
WITH_OTHERS = [
    ("tensorflow/train_cifar_single_gpu.py", 1, "none"),
    ("tensorflow/train_cifar_mirrored.py", 2, "none"),
    ("tensorflow/train_cifar_multi_worker.py", 1, "mpiexec"),
    ("tensorflow/train_cifar_multi_worker.py", 2, "mpiexec"),
    ("jax/train_cifar_shard_map.py", 1, "none"),
    ("jax/train_cifar_shard_map.py", 2, "none"),
    ("jax/train_cifar_multi_process.py", 2, "mpiexec"),
]
run_all(WITH_OTHERS)

# %%
results = other_frameworks.found(EXERCISES)
print("\n".join(other_frameworks.table(results, EXERCISES)))
predicted = globals().get("prediction_speedup")  # None if you skipped it
print("\npredicted speed-up at best:", predicted)
other_frameworks.picture(results)

# %% [markdown]
# - *Images/s*: the training throughput after the first epoch. By then everything is compiled, including JAX's separate
#   step for the short last batch.
# - *Speed-up*: images/s, divided by those of the same system on one worker. Two rows have no run of their own with
#   one worker: mirrored replicas are compared with `fit` on one GPU, and JAX's processes with JAX's single process.
# - *First step*: its time in seconds, which includes tracing and compiling. *Whole run*: images/s including the first
#   step and the evaluation.
# - *Lines that differ*: the number of statements in your scripts that are not in the script for one device. With `-`,
#   one script serves one device and several.
#
# A speed-up below 1 does not mean that your code is wrong. One worker needs only about 10 ms for a step of this small
# network. With two workers, each step also exchanges gradients and starts on both workers. On CPUs, this costs some
# systems 10 ms and more per step, and then the second worker costs more time than it saves. In the longer steps of
# larger networks, such a cost matters less. DataParallel's threads gain here, too, because convolutions take most of
# the step: a section below shows a step in which threads gain nearly nothing.
#
# DDP, Lightning and Accelerate exchange gradients in the same way. If Lightning or Accelerate is faster or slower
# than DDP, the exchange is not the reason. The second epoch takes only about a second, so differences of a quarter
# can be chance: run the jobs again before you trust them. Runs that are marked as disturbed prove nothing about a
# system. The [dictionary](../docs/frameworks.md) lists further things that systems do silently.

# %%
# Save the notebook (Ctrl-S), then run this cell: it checks what you have written so far.
from grader import check

check(
    "frameworks",
    "prediction_speedup",
    "cluster.py",
    "replicas.py",
    "train_cifar_lightning.py",
    "train_cifar_accelerate.py",
)

# %% [markdown]
# ## What `fit` does with the last batch
#
# 1,500 images in batches of 64 leave a last batch of 28. Each replica averages the losses of *its own* images, and
# `fit` averages these averages. If the replicas have different numbers of images, does every image count the same?


# %%
def weights_of_fit(parts):
    """Return the weight of one image of each replica in the loss of a step under `fit`; parts: the number of images of
    each replica."""
    ### BEGIN SOLUTION weights_of_fit:
    ### return a list with one number for each replica: the weight of one of its images in the mean
    ### of the replicas' means. The weights of all images add up to 1
    return [1 / (len(parts) * images) for images in parts]
    ### END SOLUTION


# %%
for parts in ([32, 32], [14, 14], [8, 7], [32, 1]):
    weights = [round(weight, 4) for weight in weights_of_fit(parts)]
    print(f"{parts}: {weights}; with equal weights: {1 / sum(parts):.4f}")

# %% [markdown]
# Your `replica_step` divides the sum of the losses by the number of all images, so every image counts the same.

# %%
check("frameworks", "weights_of_fit")

# %% [markdown]
# ## When DataParallel's threads don't scale
#
# `torch.nn.DataParallel` is a single process with one thread per GPU. It copies the model to the GPUs (*replicate*) and
# splits the batch (scatter). Each thread runs its replica (*parallel apply*). The outputs are collected on the first
# GPU (*gather*), where the loss is computed. Only one thread at a time can run Python code (the *GIL*). Operations, on
# a GPU or in a CPU kernel, run without the GIL.
#
# How much of a step is Python? The next cell measures one step: its length in seconds, and the begin and end of each
# operation. Operations can be nested: an operation and the operations that it calls are separate entries of the list.
# (The cell also measures the numbers for the comparison below. This takes about 20 seconds, or longer if other programs
# run.)

# %%
step, operations = other_frameworks.one_step("convolutions")
print(f"A step of {1000 * step:.2f} ms has {len(operations)} operations. The first ones, in ms:")
for begin, end in operations[:5]:
    print(f"    {1000 * begin:.3f} to {1000 * end:.3f}")


# %%
def seconds_in_python(step, operations):
    """Return the seconds of a step in which no operation runs; step: its length in seconds, operations: [(begin, end)]
    in seconds since the begin of the step."""
    ### BEGIN SOLUTION seconds_in_python:
    ### return the time in the step during which no operation runs. The operations are sorted by
    ### their start times; a called operation lies within its caller
    busy, end_of_all = 0.0, 0.0
    for begin, end in operations:
        busy += max(0.0, end - max(begin, end_of_all))
        end_of_all = max(end_of_all, end)
    return step - busy
    ### END SOLUTION


# %% [markdown]
# The step of a replica takes `python` seconds in Python and `kernels` seconds in operations. While one thread is in an
# operation, another thread can run Python. How many times as fast as one thread can N threads be at best?


# %%
def threads_speedup(python, kernels, threads):
    """Return the best possible speed-up of `threads` replicas, each in a thread, over one replica; python, kernels:
    seconds of one replica's step."""
    ### BEGIN SOLUTION threads_speedup:
    ### return the speed-up: compare the images of `threads` replicas with the shortest time that
    ### their step can take
    together = max(threads * python, python + kernels)
    return threads * (python + kernels) / together
    ### END SOLUTION


# %% [markdown]
# The next cell applies your two functions to two measured steps. The first step has layers so small that Python takes
# about half of the time. The second step has convolutions, and Python takes less than a tenth. The cell also shows
# the measured speed-up of two threads, and of two processes, each of which has its own Python. With tiny layers,
# threads stay far below the best case, because each operation releases the GIL and must then wait to get it back.
# With convolutions, threads come close to the processes. (If a line above reports that other programs used the cores,
# two threads and two processes gain less than they could.)

# %%
other_frameworks.compare_threads(seconds_in_python, threads_speedup)

# %%
from grader import check

check("frameworks")

# %% [markdown]
# ## What you can do now
#
# - Choose a system, and know its silent steps: who splits the batch, who scales the loss, who sums the gradients.
# - Build TF_CONFIG from a node file, and write a distributed step in TensorFlow.
# - Translate a DDP loop to Lightning and to Accelerate without changing its results.
# - Read a step in JAX.
# - Decide when threads are enough, and when you need processes.
#
# Continue with `08_scaling`.
