#!/bin/bash
#PBS -q lecture
#PBS -l select=1:ngpus=2:mpiprocs=2:ompthreads=1
#PBS -W group_list=gt00
#PBS -l walltime=00:10:00
#PBS -N multi_gpu_profile

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
OUT="results/multi_gpu_${TRACK:-pytorch}_profile_${PBS_JOBID%%.*}"

python -m handson profile $PROFILE -o "$OUT" -- python "${TRACK:-pytorch}/train_cifar_multi_gpu.py" -o "$OUT" $OPTIONS
