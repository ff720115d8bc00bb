"""Train a language model with your solution or with the plain solution: mpiexec -n 4 python train_challenge.py
--method challenge plain"""

from functools import partial

import challenge

from handson.pytorch import challenge_runs, plain_training

METHODS = {
    "challenge": challenge.train,
    "plain": plain_training.train,
    "whole-batch": partial(plain_training.train, micro_batches=1),
}

if __name__ == "__main__":
    challenge_runs.train_each(METHODS)
