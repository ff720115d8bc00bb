#!/bin/bash
### BEGIN SOLUTION resources: request the queue; one node, with two processes of one thread, and a GPU for each; the group; the time limit
#PBS -q lecture
#PBS -l select=1:ngpus=2:mpiprocs=2:ompthreads=1
#PBS -W group_list=gt00
#PBS -l walltime=00:10:00
### GIVEN #PBS -q (queue)
### GIVEN #PBS -l (nodes and so on: select=...)
### GIVEN #PBS -W (group: group_list=...)
### GIVEN #PBS -l (time limit: walltime=...)
### END SOLUTION
#PBS -N multi_gpu

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"

python "${TRACK:-pytorch}/train_cifar_multi_gpu.py" $OPTIONS
