#!/bin/bash
#SBATCH --partition={partition}
#SBATCH --account={account}
#SBATCH --nodes={nodes}
#SBATCH --ntasks={n}
#SBATCH --cpus-per-task=1
#SBATCH --time={time_limit}
#SBATCH --job-name=ipengines
#SBATCH --output=%x.o%j

export OMP_NUM_THREADS=1
srun --cpu-bind=none {program_and_args} --profile-dir="{profile_dir}" --cluster-id="{cluster_id}"
