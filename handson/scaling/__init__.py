"""Will it scale? What a few measured runs say about many workers: `python -m handson predict`, and the functions behind
it for notebooks.

steps: the slowest of N workers. batch_size: how many more images a bigger batch needs. network: seconds of an
all-reduce by formula. simulate: the same by simulation, where no formula knows the network. failures: what many nodes
lose by failures. published: the tables that were published before this course. docs/scaling.md describes the model and
how well it predicts.
"""
