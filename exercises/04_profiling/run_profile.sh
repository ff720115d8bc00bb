#!/bin/bash
# Here go the #PBS lines of your training script for queue, resources, group and time. The notebooks add them by themselves.
#PBS -N profile

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
: "${SCRIPT:?say which script to record, as in qsub -v SCRIPT=train_steps.py -j oe run_profile.sh}"
OUT="results/${NAME:-${SCRIPT%.py}_${PBS_JOBID%%.*}}"
export TORCH_CPP_LOG_LEVEL=ERROR  # PyTorch would warn of ranges in the midst of which the recording begins

python -m handson profile ${PROFILE:---skip 12 --steps 8} -o "$OUT" -- python "${TRACK:-pytorch}/$SCRIPT" -o "$OUT" $OPTIONS
