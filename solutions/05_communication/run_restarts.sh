#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=1:mpiprocs=1:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:20:00
#PBS -N restarts

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"

# `handson torchrun` runs torchrun with one rank on each node of this job. The ranks' rendezvous is on the first node, this one.
# If a rank dies, torchrun restarts all ranks, up to three times. With KILL_NODE=yes, the last node dies after the first checkpoint, and
# joins the other ranks again when it is back.
python -m handson torchrun --nproc-per-node 1 --max-restarts 3 pytorch/train_restarts.py $OPTIONS
