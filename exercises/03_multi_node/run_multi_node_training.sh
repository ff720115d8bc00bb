#!/bin/bash
# PUT YOUR CODE: the queue; two nodes, each with two GPUs and an MPI process with one thread for each;
# the group; the time limit
#PBS -q (queue)
#PBS -l (nodes and so on: select=...)
#PBS -l (placement: one chunk on each node)
#PBS -W (group: group_list=...)
#PBS -l (time limit: walltime=...)
#PBS -N multi_node

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
eval "$(handson-launcher)"

mpiexec -n 4 -hostfile "$PBS_NODEFILE" python "${TRACK:-pytorch}/train_cifar_multi_node.py" $OPTIONS
