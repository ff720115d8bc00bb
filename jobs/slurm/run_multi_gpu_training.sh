#!/bin/bash
#SBATCH --partition=lecture
#SBATCH --account=gt00
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --gpus-per-node=2
#SBATCH --time=00:10:00
#SBATCH --job-name=multi_gpu
#SBATCH --output=%x.o%j

export OMP_NUM_THREADS=1    # of each worker

python "${TRACK:-pytorch}/train_cifar_multi_gpu.py" $OPTIONS
