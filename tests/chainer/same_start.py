"""One start for both tracks: the weights of PyTorch's ConvNet in Chainer's, the same batches, and training on them by
PyTorch."""

import numpy

STEPS, BATCH, SIZE, CLASSES, RATE = 5, 8, 32, 10, 0.02


def batch(worker, step, size=SIZE, samples=BATCH):
    """Images of noise, with labels, that only this worker sees in this step."""
    random = numpy.random.RandomState(1000 * worker + step)
    return random.rand(samples, 3, size, size).astype("f"), random.randint(CLASSES, size=samples).astype("i")


def torch_model(seed=0):
    import torch

    from handson.pytorch.model import ConvNet

    torch.manual_seed(seed)
    return ConvNet(CLASSES)


def chainer_model(weights):
    """Chainer's ConvNet, in a Classifier, with the `weights` (see `numbers`) of PyTorch's."""
    import handson.chainer  # noqa: F401
    from handson.chainer.model import ConvNet

    import chainer.links as L

    model = L.Classifier(ConvNet(CLASSES))
    for name, array in arrays(model).items():
        array[...] = weights[name]
    return model


def numbers(model):
    """name -> array, a copy, of the parameters and running statistics of PyTorch's ConvNet."""
    return {
        name: tensor.detach().numpy().copy() for name, tensor in model.state_dict().items() if "num_batches" not in name
    }


def arrays(classifier, of=lambda parameter: parameter.array):
    """PyTorch's name -> array of the parameters and running statistics of Chainer's ConvNet. `of`: takes it from a
    parameter."""
    *blocks, _, linear = classifier.predictor
    found = {"6.weight": of(linear.W), "6.bias": of(linear.b)}
    for index, (convolution, normalization, _) in enumerate(blocks):
        found |= {
            f"{index}.0.weight": of(convolution.W),
            f"{index}.1.weight": of(normalization.gamma),
            f"{index}.1.bias": of(normalization.beta),
            f"{index}.1.running_mean": normalization.avg_mean,
            f"{index}.1.running_var": normalization.avg_var,
        }
    return found


def train_ddp(comm, first_only_forward=False):
    """What a rank of PyTorch's DistributedDataParallel has after STEPS: its `numbers`.

    first_only_forward: the first batch changes nothing but the running statistics, as under ChainerMN.
    """
    import torch
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel

    model = torch_model()
    replica = DistributedDataParallel(model, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for step in range(STEPS):
        images, labels = map(torch.from_numpy, batch(comm.rank, step))
        if step == 0 and first_only_forward:
            with torch.no_grad():
                replica(images)
            continue
        optimizer.zero_grad()
        F.cross_entropy(replica(images), labels.long()).backward()
        optimizer.step()
    return numbers(model)
