"""How its known answers are proved right or wrong: see answers.proofs."""

from types import SimpleNamespace

import numpy

from answers.proofs import Run

EXPECTED = {
    "prediction_ring": (64, 1e7),  # bytes
    "prediction_bucket": (1, 1800),  # KB
    "prediction_sooner": (0.1, 100),
    "prediction_period": (1, 36),
    "prediction_staleness": (0, 100),
    "prediction_blocks": (0.1, 1000),
}
NAMED = {
    "prediction_order": ("plain", "float16", "1-bit", "top-1-percent", "double-buffering"),
    "prediction_last": ("1-bit", "local-sgd-4", "block-momentum-4", "asynchronous"),
}
WHOLE = ("prediction_period",)
METHODS = ("plain", "1-bit", "local-sgd-1", "local-sgd-4", "block-momentum-4", "block-momentum-12", "asynchronous")
RESULTS = {method: [SimpleNamespace(throughput=400.0 + 10 * number)] for number, method in enumerate(METHODS)}
MEASURED = {"alpha": 250.0, "beta": 12.0} | dict.fromkeys(("slow", "periods", "served"), RESULTS)  # microseconds, MB/s

IMAGES = "-e 4 -b 4 --size 16 --seed 3 --dataset {folder}/data.npz"
FEW_STEPS = IMAGES.replace("-e 4", "-e 2")  # of signs, which later depend on rounding
# one for each layer, also of a small network
BUCKETS = "DistributedDataParallel(model)", "DistributedDataParallel(model, bucket_cap_mb=0.001)"
FILES = "-e 1 -b 100 --seed 3 --dataset {folder}/digits"  # whose images are in digits_files
TWO_EPOCHS = FILES.replace("-e 1", "-e 2")
# in the second epoch, right after a checkpoint
STOPPED = """            if step == 12 and not found:
                return
"""

RUNS = {
    "pytorch/all_reduce.py": Run("all_reduce.py", 4, ("--largest 1024",)),
    "pytorch/data_parallel.py": Run("train_data_parallel.py", 2, (IMAGES + " --method 1-KB 600-KB",)),
    "pytorch/hooks.py": Run("train_hooks.py", 2, (FEW_STEPS + " --method 1-bit top-1-percent",), replaced=BUCKETS),
    "pytorch/half_and_late.py": Run(
        "train_hooks.py",
        2,
        (IMAGES + " --lr 1e-3 --method float16 bfloat16 float16-double-buffering",),
        replaced=BUCKETS,
    ),
    "pytorch/local_sgd.py": Run("train_local_sgd.py", 2, (IMAGES + " --method local-sgd-4 block-momentum-4",)),
    "pytorch/parameter_server.py": Run("train_parameter_server.py", 2, (IMAGES + " --method asynchronous",)),
    "pytorch/train_restarts.py": Run(
        "train_restarts.py",
        2,
        (TWO_EPOCHS + " --every 4 --noise 60",) * 2,
        goes_on=True,
        replaced=("        table.add", STOPPED + "        table.add"),
    ),
    "pytorch/train_cntk.py": Run("train_cntk.py", 2, (FILES, f"{FILES} --by-hand"), mpi=True),
    "chainer/half_and_late.py": Run(
        "train_hooks.py", 2, (IMAGES + " --method plain float16 float16-double-buffering",), mpi=True
    ),
}

# Gradients of up to some 50,000: float16 holds each of them and their mean, but not their sum.
LARGE = Run(
    "train_hooks.py",
    2,
    (IMAGES + " --method float16 --lr 1e-10",),
    replaced=("F.cross_entropy(", "120_000 * F.cross_entropy("),
)
NOT_HALF = RUNS["chainer/half_and_late.py"]._replace(
    options=(IMAGES + " --method float16-double-buffering",),
    replaced=('"float16-double-buffering": ("float16"', '"float16-double-buffering": ("float32"'),
)
# of rank 0
NO_GRADIENTS = Run(
    "train_hooks.py",
    2,
    (FEW_STEPS + " --method top-1-percent",),
    replaced=("F.cross_entropy(", "rank * F.cross_entropy("),
)
LATE = Run("train_hooks.py", 2, (IMAGES + " --method double-buffering float16-double-buffering",), replaced=BUCKETS)
SLOW_WORKER = Run(  # with so many steps that it comes in time for some
    "train_parameter_server.py",
    3,
    (IMAGES.replace("-e 4", "-e 60") + " --method asynchronous-slow-worker",),
    in_any_order=True,
)
TWO_WORKERS = Run("train_parameter_server.py", 3, (IMAGES + " --method synchronous",))
CNTK = RUNS["pytorch/train_cntk.py"]
RESTARTS = RUNS["pytorch/train_restarts.py"]
MODEL = "    model = SmallNet"
# after the restart, the buckets are elsewhere
OTHERS = "    others = [torch.empty(1000 * number) for number in range(100 * (args.epoch - 1))]\n"
RESTARTS_ELSEWHERE = RESTARTS._replace(
    options=(f"{FILES} --noise 60", f"{TWO_EPOCHS} --noise 60"), replaced=(MODEL, OTHERS + MODEL)
)
RESTARTS_OF_BUCKETS = RESTARTS._replace(
    options=tuple(f"{epochs} --every 4 --noise 60" for epochs in (FILES, TWO_EPOCHS)),
    replaced=("find_unused_parameters=True", "find_unused_parameters=True, bucket_cap_mb=0.001"),
)
# Gradients that float32 cannot hold, of parameters that are float64; the loss that is shown stays as it is.
CLASSIFIER = "    model = L.Classifier(WideNet(len(test_set.classes))"
IN_DOUBLE = """    chainer.global_config.dtype, forward = numpy.float64, WideNet.forward
    WideNet.forward = lambda network, images: forward(network, chainer.functions.cast(images, "float64"))
    loss_of = chainer.functions.softmax_cross_entropy
"""
LARGE_LOSS = ", lambda *given: (loss := loss_of(*given)) + 1e40 * (loss - loss.array)"
DOUBLE = RUNS["chainer/half_and_late.py"]._replace(
    options=(IMAGES + " --method plain --lr 1e-42",), replaced=(CLASSIFIER, IN_DOUBLE + CLASSIFIER + LARGE_LOSS)
)
START = "    start = time.perf_counter()\n"
END = "    trainer.summarize_training_progress()\n"
SAVED = """    tell, save = (lambda line: comm.rank or print(line, flush=True)), trainer.save_checkpoint
    trainer.save_checkpoint = lambda *arguments: (tell(f"A checkpoint after {trainer.total_number_of_samples_seen}"), save(*arguments))
"""
OF_GAP = {
    ("pytorch/half_and_late.py", "half"): (RUNS["pytorch/half_and_late.py"], LARGE),
    ("pytorch/half_and_late.py", "late"): (LATE,),
    ("chainer/half_and_late.py", "half"): (RUNS["chainer/half_and_late.py"], NOT_HALF, DOUBLE),
    ("pytorch/hooks.py", "one_bit"): (RUNS["pytorch/hooks.py"], RESTARTS_ELSEWHERE),
    ("pytorch/hooks.py", "top_k"): (RUNS["pytorch/hooks.py"], NO_GRADIENTS),
    ("pytorch/parameter_server.py", "serve"): (RUNS["pytorch/parameter_server.py"], SLOW_WORKER),
    ("pytorch/parameter_server.py", "work"): (RUNS["pytorch/parameter_server.py"], TWO_WORKERS),
    ("pytorch/train_restarts.py", "state"): (RESTARTS, RESTARTS_OF_BUCKETS),
    ("pytorch/train_cntk.py", "source"): (
        CNTK._replace(options=(TWO_EPOCHS,)),
        CNTK._replace(options=(FILES,), replaced=("CLASSES = 10", "CLASSES = 12")),
        CNTK._replace(options=(FILES,), replaced=("randomize=True", "randomize=False")),
    ),
    ("pytorch/train_cntk.py", "learner"): (
        CNTK._replace(options=(FILES, f"{FILES} --bits 1 --warm-up 200", f"{FILES} --block-size 400")),
    ),
    ("pytorch/train_cntk.py", "session"): (
        CNTK._replace(
            options=(FILES, f"{TWO_EPOCHS} --restore", FILES),
            goes_on=True,
            printed="Finished|A checkpoint",
            replaced=(START, SAVED + START),
        ),
    ),
    ("pytorch/train_cntk.py", "loop"): (
        CNTK._replace(
            options=(f"{TWO_EPOCHS} --by-hand",),
            printed="samples",
            replaced=(END, f'    comm.rank or print("samples", trainer.total_number_of_samples_seen)\n{END}'),
        ),
        # the last part of rank 1 is empty
        CNTK._replace(
            options=(f"{FILES} --by-hand",), replaced=("max_samples=args.epoch * args.samples", "max_samples=401")
        ),
    ),
}


def bytes_sent(chance):
    return {
        "algorithm": chance.choice(("naive", "ring", "doubling")),
        "n": chance.randint(1, 10 ** chance.randint(1, 8)),
        "ranks": 2 ** chance.randint(1, 10),
    }


def alpha_beta(chance):
    """Messages of growing size, whose times are a little off the line."""
    sizes = sorted(chance.sample([4**power for power in range(2, 14)], chance.randint(3, 8)))
    alpha, beta = chance.uniform(1e-5, 1e-2), chance.uniform(1e6, 1e9)
    return {
        "sizes": numpy.array(sizes),
        "seconds": numpy.array([chance.uniform(1, 1.2) * (alpha + size / beta) for size in sizes]),
    }


def ring_wins_from(chance):
    return {
        "alpha": chance.uniform(1, 10_000),
        "beta": chance.uniform(0.1, 10_000),
        "ranks": 2 ** chance.randint(2, 10),
    }


def hook_bytes(chance):
    return {
        "method": chance.choice(("plain", "float16", "1-bit", "top-1-percent")),
        "parameters": 800 * chance.randint(1, 10 ** chance.randint(1, 6)),
    }


def block_bytes(chance):
    return {
        "parameters": chance.randint(1, 10**8),
        "steps": chance.randint(1, 1000),
        "period": chance.randint(1, 50),
        "ranks": chance.randint(2, 64),
    }


def lost_share(chance):
    return {
        "interval": chance.uniform(10, 10_000),
        "checkpoint": chance.uniform(0.1, 300),
        "between": chance.uniform(1e4, 1e7),
    }


INPUTS = {
    "bytes_sent": bytes_sent,
    "alpha_beta": alpha_beta,
    "ring_wins_from": ring_wins_from,
    "hook_bytes": hook_bytes,
    "block_bytes": block_bytes,
    "lost_share": lost_share,
}
