"""What a training loop of one's own does on the replicas of a strategy: train_cifar_multi_worker.py uses these
functions."""

from handson.tensorflow import UNTUNED

import tensorflow as tf


def build(strategy, make_model, make_optimizer):
    """(model, optimizer) with variables on all replicas of `strategy`. make_model() returns a Keras model,
    make_optimizer() an optimizer; it makes its own variables when its `build` is called with the model's trainable
    variables."""
    ### BEGIN SOLUTION scope:
    ### `model` and `optimizer`: made so that the strategy has all their variables, the optimizer's
    ### too
    with strategy.scope():
        model = make_model()
        optimizer = make_optimizer()
        optimizer.build(model.trainable_variables)
    ### END SOLUTION
    return model, optimizer


def divided(strategy, images, labels, total, seed):
    """A tf.data set that the strategy divides among its replicas: for each step, the batches of all replicas. images,
    labels: arrays."""
    options = tf.data.Options().merge(UNTUNED)
    ### BEGIN SOLUTION divided:
    ### `batches`: shuffled anew in each epoch (by `seed`, with a buffer that holds all images),
    ### `total` images in each step over all replicas; every image once an epoch, also where several
    ### processes share the data (AutoShardPolicy.DATA)
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=seed).batch(total)
    batches = strategy.experimental_distribute_dataset(dataset.with_options(options))
    ### END SOLUTION
    return batches


def replica_step(model, optimizer, images, labels, total):
    """One replica's part of a step, called by strategy.run: `images` and `labels` are its part of the `total` images of
    all replicas (a whole number).

    Returns the outputs, and a loss that all replicas' losses add up to: the mean over the `total` images."""
    ### BEGIN SOLUTION replica_step:
    ### `outputs`, `loss`, and a step with the optimizer's `apply_gradients`, which adds up the
    ### gradients of all replicas
    with tf.GradientTape() as tape:
        outputs = model(images, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        loss = tf.reduce_sum(losses) / total
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    ### END SOLUTION
    return outputs, loss
