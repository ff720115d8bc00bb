#!/bin/bash
#PBS -q lecture
#PBS -l select=1:ngpus=2:mpiprocs=2:ompthreads=1
#PBS -W group_list=gt00
#PBS -l walltime=00:10:00
#PBS -N profile

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
: "${SCRIPT:?set SCRIPT to the name of the script to record, as in qsub -v SCRIPT=train_steps.py -j oe run_profile.sh}"
OUT="results/${NAME:-${SCRIPT%.py}_${PBS_JOBID%%.*}}"
export TORCH_CPP_LOG_LEVEL=ERROR  # no warnings about ranges that are open when the recording begins

python -m handson profile ${PROFILE:---skip 12 --steps 8} -o "$OUT" -- python "${TRACK:-pytorch}/$SCRIPT" -o "$OUT" $OPTIONS
