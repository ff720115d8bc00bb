#!/bin/bash
# Make this host (Debian, Ubuntu) part of a classroom's Slurm. Run it as root on every host, with the same arguments, the login host first:
#     ./set_up.sh LOGIN "NodeName=node[1-2] CPUs=16 RealMemory=60000 Gres=gpu:2"
# LOGIN is the host where jobs are submitted, as `hostname -s` prints it. The second argument is what `slurmd -C` prints on a node, with
# the names of all nodes, and with Gres=gpu:N if each has N NVIDIA GPUs. Running it again changes nothing.
set -euo pipefail
[ $# = 2 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
login=$1 nodes=$2 here=$(dirname "$(readlink -f "$0")") etc=${SLURM_ETC:-/etc/slurm}

apt-get install -y munge slurm-wlm slurm-wlm-torque
mkdir -p "$etc"
for file in pbs_jobs.conf plugstack.conf job_submit.lua task_prolog.sh task_epilog.sh; do
    sed "s|/etc/slurm|$etc|" "$here/$file" >"$etc/$file"
done
chmod 755 "$etc"/task_*.sh

gpus=$(sed -n 's/.*Gres=gpu:\([0-9]*\).*/\1/p' <<<"$nodes")
if [ -n "$gpus" ]; then
    echo "Name=gpu File=/dev/nvidia[0-$((gpus - 1))]" >"$etc/gres.conf"
else
    sed -i 's/^JobSubmitPlugins=pbs,lua/JobSubmitPlugins=pbs    /' "$etc/pbs_jobs.conf"
    rm -f "$etc/gres.conf"
fi
cat >"$etc/slurm.conf" <<END
ClusterName=classroom
SlurmctldHost=$login
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
${gpus:+GresTypes=gpu}
$nodes
PartitionName=lecture Nodes=ALL Default=YES MaxTime=01:00:00
Include $etc/pbs_jobs.conf
END

systemctl restart munge
if [ "$(hostname -s)" = "$login" ]; then
    systemctl restart slurmctld
    echo "Now run the same command on every node."
else
    systemctl restart slurmd
    echo "Now copy /etc/munge/munge.key of $login here (owner munge, mode 0400), and: systemctl restart munge slurmd"
fi
