#!/bin/bash
#SBATCH --partition=lecture
#SBATCH --account=gt00
#SBATCH --nodes={nodes}
#SBATCH --ntasks={n}
#SBATCH --cpus-per-task=1
#SBATCH --time={walltime}
#SBATCH --job-name=ipengines
#SBATCH --output={output_file}

export OMP_NUM_THREADS=1
srun --cpu-bind=none {program_and_args} --profile-dir="{profile_dir}" --cluster-id="{cluster_id}"
