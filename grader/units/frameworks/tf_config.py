"""The check of cluster.py: the TF_CONFIG of each rank of a job."""

from grader.checks import criteria
from grader.checks.check import Check, Criterion

LAST_PORT = 65535


def right_addresses(case):
    return [f"{line.strip()}:{case['port'] + number}" for number, line in enumerate(case["lines"])]


def one_address_each(seen, case, expected):
    ranks, right = len(case["lines"]), right_addresses(case)
    for rank, found in enumerate(seen[0]["found"]):
        if found["roles"] != ["worker"]:
            return (
                f'"cluster" of rank {rank} has the roles {criteria.first_few(found["roles"], 3)}; all {ranks} ranks are'
                ' "worker"'
            )
        addresses = found["addresses"]
        if any("\n" in address for address in addresses):
            return "the addresses contain line ends: remove them with strip()"
        if len(addresses) < ranks and len(addresses) == len({line.strip() for line in case["lines"]}):
            return (
                f"rank {rank} lists {len(addresses)} workers, but the job has {ranks} ranks: a host that is in the file"
                " twice has two workers"
            )
        if len(set(addresses)) < len(addresses):
            return (
                f"two workers have the address {next(one for one in addresses if addresses.count(one) > 1)}: processes"
                " on one host need different ports"
            )
        if len(addresses) != ranks:
            return f"rank {rank} lists {len(addresses)} workers, but the job has {ranks} ranks"
        hosts = [address.rpartition(":")[0] for address in addresses]
        if hosts != [line.strip() for line in case["lines"]]:
            return f"rank {rank} lists the hosts {', '.join(hosts)}: list the hosts of `lines`, in the same order"
        if addresses != seen[0]["found"][0]["addresses"]:
            return f'"cluster" of rank {rank} differs from that of rank 0: all ranks need the same addresses'
        ports = [address.rpartition(":")[2] for address in addresses]
        if not all(port.isdigit() and case["port"] <= int(port) <= LAST_PORT for port in ports):
            return f"the ports are {', '.join(ports)}: use ports from {case['port']} to {LAST_PORT}"
    return None if right else "there are no lines"


def own_place(seen, case, expected):
    for rank, found in enumerate(seen[0]["found"]):
        role, index = found["task"]
        if type(index) is not int and index in (rank, str(rank)):
            return f'"index" of rank {rank} is {index!r}, of type {type(index).__name__}, but it must be an int'
        if (role, index) != ("worker", rank):
            return f'"task" of rank {rank} is {found["task"]}, but it must be the rank itself: worker {rank}'
    return None


CASES = (
    {"lines": ["node1\n", "node2\n"], "port": 20480},
    {"lines": ["r101\n", "r101\n", "r101\n", "r102\n"], "port": 21000},
    {"lines": ["node3\n", "node12\n", "node3\n"], "port": 20480},  # ranks on the hosts in turn
)
ADDRESSES = "each rank has an address"
CHECKS = (
    Check(
        "tf_config",
        "grader.units.frameworks.probes.probe_tf_config:tf_config",
        CASES,
        (
            Criterion(
                "address_rank",
                ADDRESSES,
                2,
                one_address_each,
                'Use f"{line.strip()}:{port + number}" for number and line in enumerate(lines).',
            ),
            Criterion(
                "own_place",
                "each rank has its own index",
                1,
                own_place,
                'Only "task" differs between the ranks: {"type": "worker", "index": rank}.',
                needs="address_rank",
            ),
        ),
        observed=lambda case: {
            "found": ({"roles": [str], "addresses": [str], "task": (object, object)},) * len(case["lines"])
        },
    ),
)
