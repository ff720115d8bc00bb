"""How its known answers are proved right or wrong: see answers.proofs."""

from types import SimpleNamespace

from answers.proofs import Run
from handson.pipelines import simulate

EXPECTED = {
    "prediction_slower": (1, 10),
    "prediction_ranks": (1, 64),
    "prediction_gathers": (1, 64),
    "prediction_pipeline": (0.2, 2),  # times one process
    "prediction_forward": (0, 1000),  # all-reduces
    "prediction_times": (0.01, 1000),
}
MEASURED = {"plain": {"plain": [SimpleNamespace(workers=1, batchsize=32, throughput=200.0, log=[{}])]}, "slower": 1.3}
NAMED = {"inside": ("model",)}
SHOWN = {"by_hand": lambda value: [(timeline := simulate(value)).bubble, timeline.held, timeline.end]}
WHOLE = ("largest_batch", "prediction_ranks", "prediction_gathers", "prediction_forward")

TRANSFORMER = (
    "-e 3 -b {{batch}} --size 8 --width 16 --heads 2 --blocks 2 --seed 3 --dataset {folder}/data.npz --gpu-memory"
    " unlimited --method "
)
OF_12, OF_4 = (TRANSFORMER.replace("{{batch}}", batch) for batch in ("12", "4"))
FEWER, ONE = (f"1f1b --micro-batches {count}" for count in (2, 1))  # fewer than stages; than a stage's warm-up, too
OF_5_LAYERS = OF_12.replace("blocks 2", "blocks 3")
LAST_FIRST = (
    "schedules.py",
    "gpipe",
    """
order = range(micro_batches)
operations = [f"F{number}" for number in order] + [f"B{number}" for number in order[::-1]]
""",
)  # with which the stages go backward in another order than forward

RUNS = {
    "pytorch/save_memory.py": Run(
        "train_memory.py", 1, (OF_12.replace("-b 12", "-b 11") + "accumulate-4 checkpoint-and-accumulate-4",)
    ),
    "pytorch/zero.py": Run("train_sharded.py", 3, (OF_4 + "zero",)),
    "pytorch/fully_sharded.py": Run("train_sharded.py", 3, (OF_4 + "fsdp fsdp-bfloat16",)),
    "pytorch/schedules.py": Run(
        "train_pipeline.py", 3, (OF_12 + "gpipe 1f1b --micro-batches 4", OF_12 + FEWER, OF_12 + ONE)
    ),
    "pytorch/pipeline.py": Run(
        "train_pipeline.py", 3, (OF_5_LAYERS + "gpipe 1f1b --micro-batches 4",), beside=LAST_FIRST
    ),
    "pytorch/torch_pipeline.py": Run("train_pipeline.py", 3, (OF_12 + "torch-gpipe torch-1f1b --micro-batches 4",)),
    "pytorch/products.py": Run("train_mesh.py", 4, (OF_4 + "tensor-inside --dropout 0",), nodes=2),
    "pytorch/products_dtensor.py": Run("products_dtensor.py", 2, ("--width 16 --heads 2",)),
    "pytorch/products_sequence.py": Run("products_sequence.py", 2, ("--width 16 --heads 2",)),
    "pytorch/mesh.py": Run("train_mesh.py", 4, (OF_4 + "tensor-inside data-inside --dropout 0",), nodes=2),
    "chainer/chain_list.py": Run(
        "train_pipeline.py",
        3,
        (OF_12.replace(" --gpu-memory unlimited", "") + "naive gpipe --micro-batches 4",),
        mpi=True,
    ),
}

MESH = RUNS["pytorch/mesh.py"]
PRODUCTS = RUNS["pytorch/products.py"]
OF_SIX = MESH._replace(ranks=6, options=(OF_4 + "data-inside --dropout 0",))
UNEVEN = OF_SIX._replace(
    replaced=(
        "    sampler = make_sampler",
        """
    import dataclasses

    train_set = dataclasses.replace(train_set, images=train_set.images[1:], labels=train_set.labels[1:])  # 23 images, which three parts can't divide
    sampler = make_sampler""",
    )
)
OF_A_KIND = MESH._replace(
    replaced=(
        "    sampler = make_sampler",
        """
    from answers.proofs.watched_script import note

    kind = make_mesh("meta", comm.inter_size, ranks_of_a_node(comm), METHODS[method]).device_type
    note("update", [kind == "meta"])
    sampler = make_sampler""",
    )
)
DRAWS = OF_SIX._replace(
    replaced=(
        "    seed_dropout(args.seed, comm.rank)",
        """
    from answers.proofs.watched_script import note_draws

    note_draws(seed_dropout)""",
    )
)
OF_THREE = PRODUCTS._replace(  # ranks, which don't divide 64
    ranks=3,
    nodes=1,
    options=(PRODUCTS.options[0] + " --width 12 --heads 3",),
    replaced=(
        "    model = products",
        """
    for block in whole.blocks:
        block.mlp.up, block.mlp.down = torch.nn.Linear(12, 64), torch.nn.Linear(64, 12)
    model = products""",
    ),
)
SHARED = PRODUCTS._replace(
    replaced=(
        "    replica = make_replica",
        """
    def shift(part, tokens):  # by something that gets the same gradient, later than `tokens` does
        return tokens[0] + part.by,

    for block in model.blocks:
        part, block.mlp.factor = block.mlp.part, torch.nn.Parameter(torch.ones(()))
        block.mlp.register_forward_pre_hook(lambda mlp, tokens: setattr(mlp.part, "by", tokens[0].detach() * mlp.factor))
        part.register_forward_pre_hook(shift)
        part.register_forward_hook(lambda part, tokens, term: term.tanh())  # which needs its result for the gradient
    replica = make_replica""",
    )
)
PIPELINE = RUNS["pytorch/pipeline.py"]
OF_GAP = {
    # as many nodes as ranks on each hide which is which
    ("pytorch/mesh.py", "mesh"): (MESH, MESH._replace(ranks=2, nodes=1), OF_A_KIND),
    ("pytorch/mesh.py", "sampler"): (MESH, UNEVEN),  # two, and three parts of the images
    ("pytorch/mesh.py", "dropout"): (DRAWS,),
    ("pytorch/products.py", "columns"): (PRODUCTS, OF_THREE),
    ("pytorch/products.py", "rows"): (PRODUCTS, OF_THREE),
    ("pytorch/products.py", "enter_backward"): (PRODUCTS, SHARED),
    ("pytorch/products.py", "leave_forward"): (PRODUCTS, SHARED),
    # of which few are held
    ("pytorch/pipeline.py", "backward"): (
        PIPELINE,
        PIPELINE._replace(options=(OF_5_LAYERS + "1f1b --micro-batches 12",)),
    ),
}
DIVIDED = ("my_layers",)


def block_parameters(chance):
    return {"width": chance.randint(1, 512)}


def state_bytes(chance):
    return {"parameters": chance.randint(1, 10**10)}


def activation_bytes(chance):
    return {name: chance.randint(1, 256) for name in ("batch", "tokens", "width", "blocks")}


def largest_batch(chance):
    of_an_image, network = chance.randint(1, 10**7), chance.randint(0, 10**9)
    return {
        "limit": network + chance.randint(0, 100) * of_an_image + chance.choice((0, chance.randrange(of_an_image))),
        "network": network,
        "of_an_image": of_an_image,
    }


def sharded_bytes(chance):
    return {
        "method": chance.choice(["ddp", "zero", "fsdp"]),
        "parameters": chance.choice([int, float])(chance.randint(1, 10**10)),
        "ranks": chance.randint(1, 1024),
    }


def bubble(chance):
    return {"stages": chance.randint(2, 64), "micro_batches": chance.randint(1, 256)}


def held_bytes(chance):
    stages = chance.randint(2, 16)
    sizes = {"micro_batches": chance.randint(1, 32), "activations": float(chance.randint(1, 10**9))}
    return {
        "schedule": chance.choice(["gpipe", "1f1b"]),
        "stage": chance.choice((0, chance.randrange(stages))),
        "stages": stages,
        **sizes,
    }


def products_bytes(chance):
    return {name: chance.randint(1, 256) for name in ("blocks", "images", "tokens", "width", "ranks")}


def images_bytes(chance):
    return {
        "parameters": chance.randint(1, 10**8),
        "model_ranks": chance.randint(1, 16),
        "image_ranks": chance.randint(1, 16),
    }


def step_seconds(chance):
    return {
        "computing": chance.uniform(0.001, 10),
        "sent": chance.randint(1, 10**8),
        "ranks": chance.randint(1, 16),
        "rate": chance.uniform(1, 10_000),
    }


def images_of_equal_bytes(chance):
    return {
        "blocks": chance.randint(1, 100),
        "tokens": chance.randint(1, 1000),
        "width": chance.randint(1, 4096),
        "parameters": chance.randint(1, 10**8),
    }


checkpointed_bytes = activation_bytes
INPUTS = {
    "block_parameters": block_parameters,
    "state_bytes": state_bytes,
    "activation_bytes": activation_bytes,
    "checkpointed_bytes": checkpointed_bytes,
    "largest_batch": largest_batch,
    "sharded_bytes": sharded_bytes,
    "bubble": bubble,
    "held_bytes": held_bytes,
    "products_bytes": products_bytes,
    "images_bytes": images_bytes,
    "step_seconds": step_seconds,
    "images_of_equal_bytes": images_of_equal_bytes,
}
