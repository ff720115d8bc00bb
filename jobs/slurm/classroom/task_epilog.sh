#!/bin/bash
# Slurm's TaskEpilog: remove the node file that task_prolog.sh made for the job's script.
[ -n "$SLURM_STEP_ID" ] || rm -f "/tmp/pbs_nodefile.$SLURM_JOB_ID"
