"""How TensorFlow's processes find each other: each has TF_CONFIG in its environment, with the addresses of all of them,
and its own place."""


def tf_config(lines, rank, port):
    """The content of TF_CONFIG for process `rank` of a job, as a dictionary.

    lines: the lines of $PBS_NODEFILE, the name of a host for each process, in the order of the ranks; several processes
    of a host need a port each. port: the first one that may be used.
    """
    # PUT YOUR CODE: return {"cluster": {"worker": [addresses, "host:port", of all ranks in order]},
    # "task": {"type": "worker", "index": ...}}, the same "cluster" on all ranks. Ports count up from
    # `port`, over all ranks or over those of a host
    raise NotImplementedError("PUT YOUR CODE: tf_config")
