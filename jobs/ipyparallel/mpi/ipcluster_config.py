"""Engines that mpiexec starts on this machine, or on the machines of a host file (`mpi_args`). docs/grading_on_a_cluster.md explains how to use this file."""

c = get_config()  # noqa: F821

c.Cluster.engine_launcher_class = "mpi"
c.Cluster.controller_ip = "127.0.0.1"  # "*" if engines run on other hosts
c.ControllerLauncher.controller_args = [
    "--HeartMonitor.period=500",
    "--HeartMonitor.max_heartmonitor_misses=30",
    "--IPController.db_class=NoDB",
]
c.Cluster.send_engines_connection_env = False  # engines read the profile's files instead, which no other user can read
c.MPILauncher.mpi_args = []  # such as ["-hostfile", "hosts"]
