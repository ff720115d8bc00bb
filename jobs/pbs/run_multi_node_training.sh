#!/bin/bash
### BEGIN SOLUTION resources: the queue; two nodes, each with two GPUs and an MPI process with one thread for each; the group; the time limit
#PBS -q lecture
#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:10:00
### GIVEN #PBS -q (queue)
### GIVEN #PBS -l (nodes and so on: select=...)
### GIVEN #PBS -l (placement: one chunk on each node)
### GIVEN #PBS -W (group: group_list=...)
### GIVEN #PBS -l (time limit: walltime=...)
### END SOLUTION
#PBS -N multi_node

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
eval "$(handson-launcher)"

mpiexec -n 4 -hostfile "$PBS_NODEFILE" python "${TRACK:-pytorch}/train_cifar_multi_node.py" $OPTIONS
