#!/bin/bash
# PUT YOUR CODE: request the queue; two nodes, each with two MPI processes of one thread, and a GPU
# for each; the group; the time limit
#PBS -q (queue)
#PBS -l (nodes and so on: select=...)
#PBS -l (placement: one chunk on each node)
#PBS -W (group: group_list=...)
#PBS -l (time limit: walltime=...)
#PBS -N multi_node

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"

# handson-launcher prints settings by which mpiexec reaches the other nodes of this job: by pbsdsh, srun or ssh.
eval "$(handson-launcher)"

# $PBS_NODEFILE is a file with a line for each process, the name of its host; `wc -l` counts the lines.
mpiexec -n $(wc -l <"$PBS_NODEFILE") -hostfile "$PBS_NODEFILE" python "${TRACK:-pytorch}/train_cifar_multi_node.py" $OPTIONS
