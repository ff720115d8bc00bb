-- Slurm's job_submit plugin: give a PBS job script the GPUs of its line "#PBS -l select=...:ngpus=2", which sbatch passes over.

function slurm_job_submit(job, partitions, uid)
    local ngpus = string.match("\n" .. (job.script or ""), "\n#PBS +%-l +select=[^\n]*:ngpus=([1-9]%d*)")
    if ngpus and not job.tres_per_node and not job.tres_per_job and not job.tres_per_task then
        -- Slurm 22.05 writes it so; if `scontrol show job` shows TresPerNode=gres/gpu:2 for `sbatch --gpus-per-node=2`, write gres/gpu:
        job.tres_per_node = "gres:gpu:" .. ngpus
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end
