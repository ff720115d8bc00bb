#!/bin/bash
# PUT YOUR CODE: request the queue; one node, with one process of one thread, and a GPU; the group;
# the time limit
#PBS -q (queue)
#PBS -l (nodes and so on: select=...)
#PBS -W (group: group_list=...)
#PBS -l (time limit: walltime=...)
#PBS -N single_gpu

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"

python "${TRACK:-pytorch}/train_cifar_single_gpu.py" $OPTIONS
