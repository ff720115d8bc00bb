#!/bin/bash
#SBATCH --partition=lecture
#SBATCH --account=gt00
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --gpus-per-node=2
#SBATCH --time=00:10:00
#SBATCH --job-name=multi_node
#SBATCH --output=%x.o%j

export OMP_NUM_THREADS=1    # of each worker

# handson-launcher prints settings by which mpiexec reaches the other nodes of this job: by srun.
eval "$(handson-launcher)"

# Without -hostfile, mpiexec asks Slurm for the job's hosts, and how many ranks each of them takes.
mpiexec -n "$SLURM_NTASKS" python "${TRACK:-pytorch}/train_cifar_multi_node.py" $OPTIONS
