#!/bin/bash
# Copy to this place the #PBS lines of your training job script: queue, resources, group and time. In a notebook, the course adds them.
#PBS -N single_gpu_profile

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
OUT="results/single_gpu_${TRACK:-pytorch}_profile_${PBS_JOBID%%.*}"

python -m handson profile $PROFILE -o "$OUT" -- python "${TRACK:-pytorch}/train_cifar_single_gpu.py" -o "$OUT" $OPTIONS
