#!/bin/bash
# PUT YOUR CODE: request the queue; one node, with two processes of one thread, and a GPU for each;
# the group; the time limit
#PBS -q (queue)
#PBS -l (nodes and so on: select=...)
#PBS -W (group: group_list=...)
#PBS -l (time limit: walltime=...)
#PBS -N multi_gpu

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"

python "${TRACK:-pytorch}/train_cifar_multi_gpu.py" $OPTIONS
