#!/bin/bash
# Slurm's TaskProlog: what spank_pbs.so leaves out of the environment of a PBS job. Slurm sets a variable for each line
# "export NAME=VALUE" that is printed here. It runs as the job's user, on a job's first host for the script, on all for what srun starts.

[ -z "$SLURM_STEP_ID" ] || exit 0   # what srun starts inherits the script's variables

PATH="$PATH:/usr/bin:/bin"
echo "export PBS_ENVIRONMENT=PBS_BATCH"

# qsub -v makes Slurm drop all other variables but those whose names begin with SLURM; the course's qsub leaves the PATH in this one.
if [ -n "$SLURM_PBS_O_PATH" ]; then
    echo "export PBS_O_PATH=$SLURM_PBS_O_PATH"
    echo "export PATH=$SLURM_PBS_O_PATH"
fi

# A line with a host's name for each of its tasks. SLURM_TASKS_PER_NODE is like "2(x3),1": 2 on three hosts, then 1 on one.
nodefile=/tmp/pbs_nodefile.$SLURM_JOB_ID
rm -f "$nodefile"
set -o noclobber                    # in /tmp, never write to what somebody else may have put there
{
    tasks=()
    for word in ${SLURM_TASKS_PER_NODE//,/ }; do
        hosts=1
        [[ $word =~ x([0-9]+) ]] && hosts=${BASH_REMATCH[1]}
        for ((i = 0; i < hosts; i++)); do tasks+=("${word%%(*}"); done
    done
    i=0
    for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
        for ((n = 0; n < tasks[i]; n++)); do echo "$host"; done
        i=$((i + 1))
    done
} >"$nodefile" && echo "export PBS_NODEFILE=$nodefile"

# ompthreads of "#PBS -l select=..." becomes the number of threads, as PBS has it.
threads=$(scontrol write batch_script "$SLURM_JOB_ID" - | sed -n 's/^#PBS  *-l.*[:=,]ompthreads=\([0-9][0-9]*\).*/\1/p' | head -n 1)
[ -z "$threads" ] || echo "export OMP_NUM_THREADS=$threads"
exit 0
