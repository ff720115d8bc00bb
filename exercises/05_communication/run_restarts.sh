#!/bin/bash
#PBS -q lecture
#PBS -l select=2:ngpus=1:mpiprocs=1:ompthreads=1
#PBS -l place=scatter
#PBS -W group_list=gt00
#PBS -l walltime=00:20:00
#PBS -N restarts

cd "${PBS_O_WORKDIR:-.}"
export PATH="${PBS_O_PATH:-$PATH}"

# torchrun runs on each node, and all ranks meet at the first one, where this script runs. If a rank dies, all ranks are started again, up to three times.
# Every start meets at a new address (TORCH_DISABLE_SHARE_RDZV_TCP_STORE); a node that says nothing for 6 seconds is gone.
first=$(hostname) nodes=$(uniq "$PBS_NODEFILE" | wc -l)
run="cd '$PWD' && PATH='$PATH' PBS_JOBID='$PBS_JOBID' OMP_NUM_THREADS=1 TORCH_CPP_LOG_LEVEL=ERROR TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 \
    torchrun --nnodes $nodes --nproc-per-node 1 --max-restarts 3 --rdzv-backend c10d --rdzv-id '$PBS_JOBID' \
    --rdzv-endpoint '$first:29400' --rdzv-conf keep_alive_interval=2 pytorch/train_restarts.py $OPTIONS"

# handson-agent starts a command on a node of this job, as pbsdsh, srun or ssh would. $PBS_NODEFILE is a file with the name of a node in each line.
status=0 pids=""
on() { handson-agent "$1" "$run" || { code=$?; [ $code -eq 137 ] && handson-agent "$1" "$run"; } || return $code; } # 137: the node was killed, and is back now
for node in $(uniq "$PBS_NODEFILE"); do
    on "$node" &
    pids="$pids $!"
done
for pid in $pids; do wait "$pid" || status=1; done
exit $status
