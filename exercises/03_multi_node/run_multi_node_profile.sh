#!/bin/bash
# Copy to this place the #PBS lines of your training job script: queue, resources, group and time. In a notebook, the course adds them.
#PBS -N multi_node_profile

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"

# handson-launcher prints settings by which mpiexec reaches the other nodes of this job: by pbsdsh, srun or ssh.
eval "$(handson-launcher)"
OUT="results/multi_node_${TRACK:-pytorch}_profile_${PBS_JOBID%%.*}"

# $PBS_NODEFILE is a file with a line for each process, the name of its host; `wc -l` counts the lines.
mpiexec -n $(wc -l <"$PBS_NODEFILE") -hostfile "$PBS_NODEFILE" python -m handson profile $PROFILE -o "$OUT" -- python "${TRACK:-pytorch}/train_cifar_multi_node.py" -o "$OUT" $OPTIONS
