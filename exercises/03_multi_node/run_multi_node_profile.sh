#!/bin/bash
# Here go the #PBS lines of your training script for queue, resources, group and time; the notebooks take them from there.
#PBS -N multi_node_profile

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
eval "$(handson-launcher)"
OUT="results/multi_node_${TRACK:-pytorch}_profile_${PBS_JOBID%%.*}"

mpiexec -n 4 -hostfile "$PBS_NODEFILE" python -m handson profile $PROFILE -o "$OUT" -- python "${TRACK:-pytorch}/train_cifar_multi_node.py" -o "$OUT" $OPTIONS
