"""SGD with momentum, as in the lecture's scripts of both tracks, and the typical mistakes in it."""

MOMENTUM = 0.9


def step(velocity, gradient, lr, momentum=MOMENTUM, nesterov=False):
    """(the next velocity, the change of the parameters)."""
    velocity = momentum * velocity - lr * gradient
    return velocity, momentum * velocity - lr * gradient if nesterov else velocity


def mistakes(library, default):
    """{sentence: the arguments of `step` that this mistake leads to}. default: the default learning rate of the track's library."""
    rules = {
        "it updates without momentum": {"momentum": 0},
        f"the learning rate is not args.lr ({library}'s default, {default}, is used)": {"lr": default},
    }
    rules |= {f"the learning rate is not args.lr but {lr}": {"lr": lr} for lr in (0.1, 0.01) if lr != default}
    return rules | {"it uses Nesterov's momentum; the lecture's is the plain one": {"nesterov": True}}
