#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=1:mpiprocs=1:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:20:00
#PBS -N script

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
: "${SCRIPT:?say which script to run, as in qsub -v SCRIPT=attention.py -j oe run_script.sh}"
OUT="results/${NAME:-${SCRIPT%.py}_${PBS_JOBID%%.*}}"

# handson-launcher prints settings by which mpiexec reaches the other nodes of this job: by pbsdsh, srun or ssh.
eval "$(handson-launcher)"

# PROFILE="--skip 5 --steps 8" records some steps.
# $PBS_NODEFILE contains a line for each process: the name of its host. `wc -l` counts the lines.
mpiexec -n $(wc -l <"$PBS_NODEFILE") -hostfile "$PBS_NODEFILE" python ${PROFILE:+-m handson profile $PROFILE -o "$OUT" -- python} "${TRACK:-pytorch}/$SCRIPT" -o "$OUT" $OPTIONS
