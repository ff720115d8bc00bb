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
# People train on many GPUs with TensorFlow, with PyTorch's older `DataParallel`, with Lightning, Accelerate or JAX. This notebook runs the
# same training in each of them: the same network, the same images, the same batches. What does each system do for you, and what does it leave to
# you?
#
# **In about 110 minutes you will**
#
# - run one training in several systems, and compare what they reach with what they ask of you,
# - make TF_CONFIG of a job's node file, and write the step of a *replica* under a *strategy*,
# - know what belongs inside a strategy's scope, and how a `tf.data` set is divided,
# - translate a DDP loop to Lightning and to Accelerate without changing what it computes,
# - measure how much of a step is Python, and say why the threads of DataParallel can't do what processes can,
# - read each system with the help of a [dictionary](../docs/frameworks.md).
#
# New words are in the [glossary](../docs/glossary.md).

# %%
EXERCISES = "../exercises"
FOLDER = f"{EXERCISES}/07_frameworks"
OPTIONS = "--epoch 2 --size 64"

# %% [markdown]
# These systems are in a second environment, which `make frameworks` makes beside the first one. Scripts find it by themselves. (With conda, this
# notebook runs in an environment of its own, `handson-frameworks`: the first lines of `environment-frameworks.yml` have the commands.)

# %%
from handson import frameworks

print(frameworks.why_not() or "TensorFlow, Lightning, Accelerate and JAX are there.")

# %% [markdown]
# ## How processes find each other
#
# torchrun gives each PyTorch process its rank, and the address of rank 0. TensorFlow's processes know all addresses instead: each has *TF_CONFIG*
# in its environment, with the cluster (the same everywhere) and its own task. A batch job has the hosts in `$PBS_NODEFILE`.
#
# Fill the gap of `tensorflow/cluster.py`, then those of `tensorflow/replicas.py`:
#
# - `scope`: variables that are made inside the *scope* of a strategy have a copy on each replica; others don't. The optimizer has variables, too.
# - `divided`: a `tf.data` set yields *global batches*; the strategy divides each of them among its replicas.
# - `replica_step`: the part of one replica. `apply_gradients` adds up the gradients of all replicas. It does not divide.

# %%
# !cd {FOLDER} && grep -n "# PUT YOUR CODE" */*.py

# %% [markdown]
# ## One training, several systems
#
# `train_cifar_mirrored.py` is one process with a replica on each of two GPUs, trained by Keras's `fit`. What has to be added to the script for one
# GPU? Guess how many lines differ, then look.

# %%
# !cd {FOLDER}/tensorflow && diff train_cifar_single_gpu.py train_cifar_mirrored.py

# %% [markdown]
# Keras's `fit` fails under `MultiWorkerMirroredStrategy`, so `train_cifar_multi_worker.py` has a loop of its own with your functions.
# Lightning has no loop at all: it calls methods of yours. Accelerate keeps the loop, and wraps what is in it. `torch.nn.DataParallel` wraps
# nothing but the model. Whoever translates a DDP loop must not change what it computes: fill the gaps of `lightning/train_cifar_lightning.py` and
# `accelerate/train_cifar_accelerate.py`.
#
# - `loader`: Lightning puts a DistributedSampler into your DataLoader. What is left to you?
# - `training_step` and `step`: DDP takes the mean of the ranks' gradients. Which lines of a DDP step does each system take over?
# - `validation`: each rank sees a part of the test images; `sync_dist` says that a number belongs to all ranks.
# - `prepare`: what does Accelerate have to know, so that gradients are averaged and each rank gets its part of the images?
#
# JAX has no gap for you. Read `jax/sharded.py`: a network is a function, *optax* has the optimizers, *shard_map* runs the step on each device with
# its part of the images, and the same step serves one process with two devices (`train_cifar_shard_map.py`) and two processes (`train_cifar_multi_process.py`).
#
# Each script runs on one worker, then on two. Beside them runs your DDP script of `02_multi_gpu`. The jobs take some minutes together.
#
# A run of two epochs is short: tracing and compiling the first step takes a large part of it in some systems, and would take next to nothing of a
# long one. So the speed-up below is that of the epochs after the first, and the first step stands beside it. Which system will lose least to its
# second worker?

# %%
### BEGIN SOLUTION prediction_speedup:
### write `prediction_speedup = ` and the highest speed-up on two workers that you expect of any
### system here
prediction_speedup = 1.7
### END SOLUTION
print(f"I expect a speed-up of {prediction_speedup} at best.")

# %%
from handson.cluster.follow import follow, submit
from handson.notebook import other_frameworks

RUNS = [  # script, GPUs; ranks under mpiexec, or one process that takes all GPUs
    ("../02_multi_gpu/pytorch/train_cifar_multi_gpu.py", 1, "none"),
    ("../02_multi_gpu/pytorch/train_cifar_multi_gpu.py", 2, "none"),
    ("pytorch/train_cifar_data_parallel.py", 1, "none"),
    ("pytorch/train_cifar_data_parallel.py", 2, "none"),
    ("tensorflow/train_cifar_single_gpu.py", 1, "none"),
    ("tensorflow/train_cifar_mirrored.py", 2, "none"),
    ("tensorflow/train_cifar_multi_worker.py", 1, "mpiexec"),
    ("tensorflow/train_cifar_multi_worker.py", 2, "mpiexec"),
    ("lightning/train_cifar_lightning.py", 1, "mpiexec"),
    ("lightning/train_cifar_lightning.py", 2, "mpiexec"),
    ("accelerate/train_cifar_accelerate.py", 1, "mpiexec"),
    ("accelerate/train_cifar_accelerate.py", 2, "mpiexec"),
    ("jax/train_cifar_shard_map.py", 1, "none"),
    ("jax/train_cifar_shard_map.py", 2, "none"),
    ("jax/train_cifar_multi_process.py", 2, "mpiexec"),
]
for script, gpus, ranks in RUNS:
    if other_frameworks.ready(FOLDER, script):
        mpiprocs = 1 if ranks == "none" else gpus
        select = f"select=1:ngpus={gpus}:mpiprocs={mpiprocs}:ompthreads=1"
        ids = ",".join(map(str, range(gpus)))
        variables = {"SCRIPT": script, "RANKS": ranks, "OPTIONS": f"{OPTIONS} -g {ids}"}
        follow(submit(FOLDER, "-l", select, "-j", "oe", "run_script.sh", **variables))

# %%
results = other_frameworks.found(EXERCISES)
print("\n".join(other_frameworks.table(results, EXERCISES)))
print(f"\nYou expected a speed-up of {prediction_speedup} at best.")
other_frameworks.picture(results)

# %% [markdown]
# - *Images/s*: in training, after the first epoch; then all is compiled, in JAX also the step with the short last batch. *Speed-up*: of these, over
#   the same system on one worker (mirrored replicas: over `fit`; JAX's processes: over its one process).
# - *First step*: where a system traces and compiles it, this takes longer than any other. *Whole run*: images/s with it, and with evaluation.
# - *Lines that differ*: so many statements of your scripts are not in the script for one device. With `-`, one script serves one device and several.
#
# DDP, Lightning and Accelerate exchange gradients in the same way: what the last two gain or lose against DDP is theirs. The second epoch takes
# only a few seconds, so small differences can be chance: run the jobs again before you believe them. Runs that are marked as disturbed say nothing
# about a system. More of what systems do without a word is in
# the [dictionary](../docs/frameworks.md).

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
# 1,500 images in batches of 64 leave a last batch of 28. Each replica takes the mean of the losses of *its* images, and `fit` takes the mean of
# these means. Where the parts are unequal, do all images count the same?


# %%
def weights_of_fit(parts):
    """The weight of one image of each replica in the loss of a step, under `fit`; parts: how many images each replica
    has."""
    ### BEGIN SOLUTION weights_of_fit:
    ### return a list with a number for each replica: how much one of its images counts in the mean of
    ### the replicas' means; the weights of all images add up to 1
    return [1 / (len(parts) * images) for images in parts]
    ### END SOLUTION


# %%
for parts in ([32, 32], [14, 14], [8, 7], [32, 1]):
    print(
        parts, [round(weight, 4) for weight in weights_of_fit(parts)], "; with equal weights", round(1 / sum(parts), 4)
    )

# %% [markdown]
# Your `replica_step` divides the sum of the losses by the number of all images, so that each image counts the same.

# %%
check("frameworks", "weights_of_fit")

# %% [markdown]
# ## Why DataParallel's threads don't scale
#
# `torch.nn.DataParallel` is one process with a thread for each GPU: it copies the model to the GPUs (*replicate*), divides the batch (*scatter*),
# lets each thread run its replica (*parallel apply*), and collects the outputs on the first GPU (*gather*), where the loss is computed. Python runs
# in one thread at a time (the *GIL*); what runs inside an operation, on a GPU or in a kernel on the CPU, does not hold it.
#
# How much of a step is Python? Here is one, measured: its seconds, and when its operations began and ended. An operation can call others, which
# then are in the list as well. (The cell also measures what comes below, which takes some 20 seconds; where other programs run, longer.)

# %%
step, operations = other_frameworks.one_step("convolutions")
print(f"A step of {1000 * step:.2f} ms has {len(operations)} operations. The first ones, in ms:")
for begin, end in operations[:5]:
    print(f"    {1000 * begin:.3f} to {1000 * end:.3f}")


# %%
def seconds_in_python(step, operations):
    """The seconds of a step in which no operation runs; step: its length in seconds, operations: [(begin, end)] in
    seconds since its begin."""
    ### BEGIN SOLUTION seconds_in_python:
    ### return the seconds of the step outside of all operations; these are sorted by their begin,
    ### and one that another calls lies inside of it
    busy, end_of_all = 0.0, 0.0
    for begin, end in operations:
        busy += max(0.0, end - max(begin, end_of_all))
        end_of_all = max(end_of_all, end)
    return step - busy
    ### END SOLUTION


# %% [markdown]
# A replica's step takes `python` seconds of Python and `kernels` seconds inside of operations, and while one thread is in an operation, another one
# may be in Python. How much faster are N threads than one, at best?


# %%
def threads_speedup(python, kernels, threads):
    """The speed-up of `threads` replicas in threads over one replica, at best; python, kernels: seconds of one
    replica's step."""
    ### BEGIN SOLUTION threads_speedup:
    ### return the speed-up: the images of `threads` replicas, and the time that their step takes at
    ### least
    together = max(threads * python, python + kernels)
    return threads * (python + kernels) / together
    ### END SOLUTION


# %% [markdown]
# Your two functions, with steps that were measured here: of layers so small that most time is Python's, and of convolutions. Beside them, what two
# threads really gain, and what two processes do, of which each has a Python of its own. Threads stay below what is possible at best: each operation
# gives the lock away and then has to wait for it again. (Did a line above say that other programs took much of the cores? Two threads and two processes
# then gain less than they could.)

# %%
other_frameworks.compare_threads(seconds_in_python, threads_speedup)

# %%
from grader import check

check("frameworks")

# %% [markdown]
# ## What you can do now
#
# - Choose a system, and know what it does silently: who divides the batch, who scales the loss, who adds up the gradients.
# - Make TF_CONFIG of a node file, and write a distributed step in TensorFlow.
# - Translate a DDP loop to Lightning and to Accelerate without changing what is computed.
# - Read a step in JAX.
# - Say when threads are enough, and when processes are needed.
