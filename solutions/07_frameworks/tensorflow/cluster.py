"""TF_CONFIG for the processes of a job. TensorFlow's processes find each other with this variable: it contains the
addresses of all processes, and the process's own index."""


def tf_config(lines, rank, port):
    """Return the content of TF_CONFIG for process `rank` of a job, as a dictionary.

    lines: the lines of $PBS_NODEFILE. Each line is the host of a process, in the order of the ranks. Processes on one
    host need different ports. port: the first port that you may use.
    """
    ### BEGIN SOLUTION tf_config:
    ### return {"cluster": {"worker": [addresses]}, "task": {"type": "worker", "index": ...}}. The
    ### addresses are "host:port" strings of all ranks, in order, and equal on all ranks. Count the
    ### ports up from `port`, over all ranks or over the ranks of a host
    workers = [f"{line.strip()}:{port + number}" for number, line in enumerate(lines)]
    return {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
    ### END SOLUTION
