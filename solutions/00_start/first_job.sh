#!/bin/bash
#PBS -q lecture
#PBS -l select=1:ncpus=1
#PBS -W group_list=gt00
#PBS -l walltime=00:01:00
#PBS -N first_job

cd "${PBS_O_WORKDIR:-.}"

echo "This is job $PBS_JOBID on $(hostname), in the folder $PWD."
echo "It may use $(nproc) of the machine's cores."
