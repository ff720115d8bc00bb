#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=1:mpiprocs=1:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:20:00
#PBS -N other_system

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"
: "${SCRIPT:?say which script to run, as in qsub -v SCRIPT=tensorflow/train_cifar_multi_worker.py -j oe run_script.sh}"

# handson-launcher prints settings by which mpiexec reaches the other nodes of this job: by pbsdsh, srun or ssh.
eval "$(handson-launcher)"

# mpiexec starts a rank for each line of $PBS_NODEFILE. With RANKS=none, one process uses all GPUs, without mpiexec.
if [ "$RANKS" = none ]; then
    python "$SCRIPT" $OPTIONS
else
    mpiexec -n $(wc -l <"$PBS_NODEFILE") -hostfile "$PBS_NODEFILE" python "$SCRIPT" $OPTIONS
fi
