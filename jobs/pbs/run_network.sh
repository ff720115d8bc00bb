#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=1:mpiprocs=1:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:05:00
#PBS -N network

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
eval "$(handson-launcher)"

mpiexec -n 2 -hostfile "$PBS_NODEFILE" python -m handson network -o "results/network_${PBS_JOBID%%.*}.png"
