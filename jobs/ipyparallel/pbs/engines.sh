#!/bin/bash
#PBS -q {queue}
#PBS -l select={nodes}:ncpus={n // nodes}:mpiprocs={n // nodes}:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list={group}
#PBS -l walltime={walltime}
#PBS -N ipengines
#PBS -j oe

cd "$PBS_O_WORKDIR"
export PATH="$PBS_O_PATH"
eval "$(handson-launcher)"

mpiexec -n {n} -hostfile "$PBS_NODEFILE" {program_and_args} --profile-dir="{profile_dir}" --cluster-id="{cluster_id}"
