#!/bin/bash
#PBS -q lecture
#PBS -l select={nodes}:ncpus={n // nodes}:mpiprocs={n // nodes}:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime={walltime}
#PBS -N ipengines
#PBS -j oe
#PBS -o {output_file}

cd "$PBS_O_WORKDIR"
export PATH="$PBS_O_PATH"
eval "$(handson-launcher)"

mpiexec -n {n} -hostfile "$PBS_NODEFILE" {program_and_args} --profile-dir="{profile_dir}" --cluster-id="{cluster_id}"
