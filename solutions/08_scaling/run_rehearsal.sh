#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=1:mpiprocs=1:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:10:00
#PBS -N rehearsal

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"

# handson-launcher prints settings by which mpiexec reaches the other nodes of this job: by pbsdsh, srun or ssh.
eval "$(handson-launcher)"

# The ranks sleep for the measured step times of RUN, and all-reduce gradients of its size.
# $PBS_NODEFILE contains a line for each process: the name of its host.
mpiexec -n $(wc -l <"$PBS_NODEFILE") -hostfile "$PBS_NODEFILE" python -m handson rehearse "${RUN:-results/one}" $OPTIONS
