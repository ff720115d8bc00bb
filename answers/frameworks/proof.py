"""How its known answers are proved right or wrong: see answers.proofs."""

from answers.proofs import Case, Run


def weights_of_fit(chance):
    return {"parts": [chance.randint(1, 64) for _ in range(chance.randint(1, 8))]}


def seconds_in_python(chance):
    step = chance.uniform(1, 20)
    return {"step": step, "operations": _operations(chance, 0, step, chance.randint(1, 4))}


def _operations(chance, first, last, number):
    """[[begin, end]] of operations after each other between `first` and `last`, each followed by those that it
    calls."""
    times = sorted(chance.uniform(first, last) for _ in range(2 * number))
    of_each = [
        [[begin, end], *_operations(chance, begin, end, chance.choice([0, 0, 1, 2]))]
        for begin, end in zip(times[::2], times[1::2])
    ]
    return sum(of_each, [])


def threads_speedup(chance):
    return {"python": chance.uniform(0.1, 10), "kernels": chance.uniform(0, 50), "threads": chance.randint(1, 16)}


CASES = {"lightning": Case("0,1", 13, 2), "accelerate": Case("0,1", 13, 2)}

ADDRESSES = (
    "    args = options.parse(gpus=None)\n",
    """
    found = [tf_config(["b\\n", "a\\n", "b\\n"], rank, 3000) for rank in range(3)]
    for one in found:
        addresses = [address.rpartition(":") for address in one["cluster"]["worker"]]
        in_range = all(3000 <= int(port) <= 65535 for _, _, port in addresses)
        print("shown:", [host for host, _, _ in addresses], len({*addresses}), in_range, [*one["cluster"]], one["cluster"] == found[0]["cluster"], sorted(one["task"].items()))
    return
""",
)
IMAGES = (
    "    start = time.perf_counter()\n",
    """
    def numbers(images):
        return tf.cast(tf.round(images[:, 0, 0, 0] * 1024), "int32") - 1

    epochs = []
    for _ in range(2):
        steps, right = [], []
        for (images, labels), _ in zip(batches, sizes):
            steps.append(strategy.gather(strategy.run(numbers, (images,)), axis=0).numpy().tolist())
            right.append([train_set.labels[number] for number in steps[-1]] == strategy.gather(labels, axis=0).numpy().tolist())
        epochs.append(sum(steps, []))
        print(f"shown: {[*map(len, steps)]} {sorted(epochs[-1])} with their labels: {all(right)} from far behind: {max(steps[0]) >= 2 * total}")
    print("shown: an order of its own", epochs[0] != epochs[1])
    return
""",
)
TWO_REPLICAS = (
    "    workers.use(comm, args)\n    strategy = tf.distribute.MultiWorkerMirroredStrategy()\n",
    (
        "    strategy = tf.distribute.MirroredStrategy(devices.use([0, 1]))\n"
        "    comm.devices = devices.describe([0, 1])\n"
    ),
)
ODD = (
    "    announce(",
    (
        "    train_set = type(train_set)(**vars(train_set) | {name: vars(train_set)[name][:23] for name in"
        " ('images', 'labels')})\n    announce("
    ),
)
WORKERS = Run(
    "train_cifar_multi_worker.py",
    2,
    ("-e 2 -b 5 --size 16 --lr 0.01 --seed 3 --dataset {folder}/data.npz",),
    mpi=True,
    printed="^shown:",
)
RUNS = {"tensorflow/cluster.py": WORKERS, "tensorflow/replicas.py": WORKERS}
OF_GAP = {
    ("tensorflow/cluster.py", "tf_config"): (WORKERS, WORKERS._replace(ranks=1, replaced=ADDRESSES)),
    ("tensorflow/replicas.py", "scope"): (WORKERS, WORKERS._replace(ranks=1, replaced=TWO_REPLICAS)),
    ("tensorflow/replicas.py", "replica_step"): (
        WORKERS._replace(options=(WORKERS.options[0].replace("0.01", "1e-3"),), replaced=ODD),
    ),
    # which images a step has is left to chance
    ("tensorflow/replicas.py", "divided"): (WORKERS._replace(replaced=IMAGES),),
}
EXPECTED = {"prediction_speedup": (0.2, 4)}  # on two workers
INPUTS = {"weights_of_fit": weights_of_fit, "seconds_in_python": seconds_in_python, "threads_speedup": threads_speedup}
