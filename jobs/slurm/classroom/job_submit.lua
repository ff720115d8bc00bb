-- Slurm's job_submit plugin: give a PBS job script the GPUs of its line "#PBS -l select=...:ngpus=2", which sbatch ignores.

-- What sbatch itself sends for --gpus-per-node: gres:gpu:2 up to Slurm 23.02, gres/gpu:2 from 23.11 on. To find out, submit a job with
-- `sbatch --gpus-per-node=2`: `scontrol show job` shows it as TresPerNode.
local version = io.popen("scontrol --version"):read("*a")           -- "slurm 23.11.4"
local gpus = (tonumber(string.match(version, "(%d+%.%d+)")) or 99) < 23.11 and "gres:gpu:" or "gres/gpu:"

function slurm_job_submit(job, partitions, uid)
    local ngpus = string.match("\n" .. (job.script or ""), "\n#PBS +%-l +select=[^\n]*:ngpus=([1-9]%d*)")
    if ngpus and not job.tres_per_node and not job.tres_per_job and not job.tres_per_task then
        job.tres_per_node = gpus .. ngpus
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end
