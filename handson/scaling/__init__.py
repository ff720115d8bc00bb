"""Will it scale? Predictions for many workers from a few measured runs: `python -m handson predict`, and its functions
for notebooks.

slowest_worker: the slowest of N workers. batch_size: the additional images that a bigger batch needs. message_times:
the time of an all-reduce by formula. simulate: the same by simulation, for networks without a formula. failures: the
cost of failures on many nodes. published: tables that were published before this course. docs/scaling.md describes the
model and its errors.
"""
