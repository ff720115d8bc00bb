"""The parts of a custom training loop that run on the replicas of a strategy. train_cifar_multi_worker.py uses these
functions."""

from handson.tensorflow import UNTUNED

import tensorflow as tf


def build(strategy, make_model, make_optimizer):
    """Return (model, optimizer) with variables on all replicas of `strategy`. make_model() returns a Keras model, and
    make_optimizer() an optimizer. The optimizer creates its variables when you call its `build` with the model's
    trainable variables."""
    ### BEGIN SOLUTION scope:
    ### set `model` and `optimizer`, and create them so that the strategy holds all their
    ### variables, including those of the optimizer
    with strategy.scope():
        model = make_model()
        optimizer = make_optimizer()
        optimizer.build(model.trainable_variables)
    ### END SOLUTION
    return model, optimizer


def divided(strategy, images, labels, total, seed):
    """Return a tf.data set that the strategy splits among its replicas. It yields the batches of all replicas for each
    step. images, labels: arrays."""
    options = tf.data.Options().merge(UNTUNED)
    ### BEGIN SOLUTION divided:
    ### set `batches` to a tf.data set that is reshuffled in each epoch (with `seed`, and a buffer
    ### as large as the data set), in batches of `total` images for all replicas together. Use
    ### AutoShardPolicy.DATA, so that several processes do not use an image twice
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=seed).batch(total)
    batches = strategy.experimental_distribute_dataset(dataset.with_options(options))
    ### END SOLUTION
    return batches


def replica_step(model, optimizer, images, labels, total):
    """Run one replica's part of a step. strategy.run calls this function. `images` and `labels` are the replica's part
    of a global batch of `total` images.

    Return the outputs and the replica's loss. The losses of all replicas must add up to the mean loss of the global
    batch."""
    ### BEGIN SOLUTION replica_step:
    ### compute `outputs` and `loss`. Then run a step with the optimizer's `apply_gradients`, which
    ### sums the gradients of all replicas
    with tf.GradientTape() as tape:
        outputs = model(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        loss = tf.reduce_sum(losses) / total
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    ### END SOLUTION
    return outputs, loss
