#!/bin/bash
# Slurm's TaskProlog: sets the variables of a PBS job that spank_pbs.so does not set. Slurm sets a variable for each line
# "export NAME=VALUE" that is printed here. It runs as the job's user: for the job script on the job's first host, for srun on all hosts.

[ -z "$SLURM_STEP_ID" ] || exit 0   # processes that srun starts inherit the script's variables

PATH="$PATH:/usr/bin:/bin"
echo "export PBS_ENVIRONMENT=PBS_BATCH"

# With qsub -v, Slurm drops all other variables except those whose names begin with SLURM, so the course's qsub stores PATH in this one.
if [ -n "$SLURM_PBS_O_PATH" ]; then
    echo "export PBS_O_PATH=$SLURM_PBS_O_PATH"
    echo "export PATH=$SLURM_PBS_O_PATH"
fi

# The node file: a line for each task, with the name of its host. SLURM_TASKS_PER_NODE is like "2(x3),1": 2 on three hosts, then 1 on one.
nodefile=/tmp/pbs_nodefile.$SLURM_JOB_ID
rm -f "$nodefile"
set -o noclobber                    # never write to a file that another user may have put into /tmp
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

# ompthreads of "#PBS -l select=..." becomes OMP_NUM_THREADS, as in PBS.
threads=$(scontrol write batch_script "$SLURM_JOB_ID" - | sed -n 's/^#PBS  *-l.*[:=,]ompthreads=\([0-9][0-9]*\).*/\1/p' | head -n 1)
[ -z "$threads" ] || echo "export OMP_NUM_THREADS=$threads"
exit 0
