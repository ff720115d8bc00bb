#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=1:mpiprocs=1:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:05:00
#PBS -N doctor

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"

# handson-launcher prints settings by which mpiexec reaches the other nodes of this job: by pbsdsh, srun or ssh.
eval "$(handson-launcher)"

python -m handson doctor
