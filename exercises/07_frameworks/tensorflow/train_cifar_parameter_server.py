"""Train with TensorFlow's ParameterServerStrategy: mpiexec -n 4 python train_cifar_parameter_server.py --help

Rank 0 is the chief, which schedules the steps. Rank 1 holds the parameters. All other ranks are workers, which compute
gradients. No worker waits for another worker."""

import time

from handson.tensorflow import reports, workers
from handson.tensorflow.model import get_model

import keras
import tensorflow as tf
from cluster import tf_config

from handson.training import data, options, results
from handson.training import tensorflow_rendezvous as rendezvous
from handson.training.banner import announce


def train(strategy, args, train_set, test_set):
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    keras.utils.set_random_seed(args.seed)
    with strategy.scope():  # variables are on the parameter server
        model = get_model(args.model, train_set.images.shape[1:], args.size, len(train_set.classes))
        optimizer = keras.optimizers.SGD(args.lr, momentum=0.9)
        optimizer.build(model.trainable_variables)
    table = reports.Table(reports.evaluator(model, test_set, args.batchsize))

    def batches():
        """Return the data set of a worker. Each worker shuffles all images by itself, so an epoch has some images
        twice, and others not at all."""
        return (
            tf.data.Dataset.from_tensor_slices((train_set.images, train_set.labels))
            .shuffle(len(train_set))
            .repeat()
            .batch(args.batchsize)
        )

    @tf.function
    def step(iterator):
        def part(images, labels):
            with tf.GradientTape() as tape:
                outputs = model(images, training=True)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # this worker's gradients only
            return loss, tf.reduce_mean(tf.cast(tf.equal(tf.argmax(outputs, 1), labels), "float32"))

        return strategy.run(part, args=next(iterator))

    iterator = iter(coordinator.create_per_worker_dataset(batches))
    steps = -(-len(train_set) // args.batchsize)

    start = time.perf_counter()
    table.begin()
    for _ in range(args.epoch):
        found = []
        for scheduled in [coordinator.schedule(step, args=(iterator,)) for _ in range(steps)]:
            found.append(scheduled.fetch())  # waits until a worker has finished the step
            table.step()
        table.add(*(sum(map(float, means)) / steps for means in zip(*found)))
    seconds = time.perf_counter() - start

    images = steps * args.batchsize * args.epoch
    results.report(args, images / seconds, images, seconds, table.log, table.seconds)


def roles(lines, rank, port):
    """Return the TF_CONFIG of a rank of a job. The first two ranks are not workers."""
    return rendezvous.with_parameter_server(tf_config(lines, rank, port))


def main():
    args = options.parse(gpus=None)
    comm = rendezvous.meet(args, rendezvous.of_job(roles), ("chief", "ps", "worker"))
    if comm.rank > 0:
        workers.serve(comm)  # serves until the chief ends
    workers.coordinate(comm)
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    train_set, test_set = data.load_arrays(args.dataset)
    announce("a parameter server", args, train_set, comm.devices, comm)
    args.workers = comm.size - 2
    train(strategy, args, train_set, test_set)


if __name__ == "__main__":
    main()
