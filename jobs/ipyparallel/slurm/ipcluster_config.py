"""Engines in a job of Slurm; the controller runs where `ipcluster start` is typed. `python -m grader cluster start` fits it to a site."""

from pathlib import Path

c = get_config()  # noqa: F821

c.Cluster.engine_launcher_class = "slurm"
c.Cluster.controller_ip = "*"  # the engines run on other hosts; all messages are signed with the profile's key
c.ControllerLauncher.controller_args = [
    "--HeartMonitor.period=500",
    "--HeartMonitor.max_heartmonitor_misses=30",
    "--IPController.db_class=NoDB",
]
c.Cluster.send_engines_connection_env = False  # a job's environment can be read with scontrol
c.Cluster.engine_timeout = 600  # seconds that the job may wait in the queue
c.SlurmEngineSetLauncher.batch_template_file = str(Path(__file__).with_name("engines.sh"))
c.SlurmEngineSetLauncher.batch_file_name = str(Path(__file__).with_name("engines_job.sh"))
c.SlurmEngineSetLauncher.namespace = {"nodes": 1, "walltime": "02:00:00"}
