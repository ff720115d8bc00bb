#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=2:mpiprocs=2:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:10:00
#PBS -N challenge

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
OUT="results/${NAME:-challenge_${PBS_JOBID%%.*}}"

# handson-launcher prints settings by which mpiexec reaches the other nodes of this job: by pbsdsh, srun or ssh.
eval "$(handson-launcher)"

# $PBS_NODEFILE contains a line for each process: the name of its host.
mpiexec -n $(wc -l <"$PBS_NODEFILE") -hostfile "$PBS_NODEFILE" python pytorch/train_challenge.py -o "$OUT" $OPTIONS
