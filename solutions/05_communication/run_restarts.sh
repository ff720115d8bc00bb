#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=1:mpiprocs=1:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:20:00
#PBS -N restarts

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"

# `handson torchrun` runs torchrun on each node of this job, with one rank there, and all ranks meet on this node, the first.
# If a rank dies, all ranks are started again, up to three times. A node that was killed joins them when it is back: with KILL_NODE=yes,
# the last node dies after the first checkpoint.
python -m handson torchrun --nproc-per-node 1 --max-restarts 3 pytorch/train_restarts.py $OPTIONS
