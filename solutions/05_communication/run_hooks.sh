#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=1:mpiprocs=1:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:20:00
#PBS -N hooks

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"

# handson-launcher prints settings by which mpiexec reaches the other nodes of this job: by pbsdsh, srun or ssh.
eval "$(handson-launcher)"

# $PBS_NODEFILE is a file with a line for each process, the name of its host; `wc -l` counts the lines.
mpiexec -n $(wc -l <"$PBS_NODEFILE") -hostfile "$PBS_NODEFILE" python "${TRACK:-pytorch}/train_hooks.py" $OPTIONS
