#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:10:00
#PBS -N multi_node_profile

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
eval "$(handson-launcher)"
OUT="results/multi_node_${TRACK:-pytorch}_profile_${PBS_JOBID%%.*}"

mpiexec -n 4 -hostfile "$PBS_NODEFILE" python -m handson profile $PROFILE -o "$OUT" -- python "${TRACK:-pytorch}/train_cifar_multi_node.py" -o "$OUT" $OPTIONS
