"""qrls: release jobs from the hold that ``qsub -h`` or ``qhold`` put on them."""

from handson.pbs import command, qhold


def main():
    command.step_aside("qrls")
    command.run("qrls", release_all, qhold.USAGE.format("qrls"))


def release_all(words):
    kinds, names = qhold.parse(words, "qrls")
    return command.for_each_job("qrls", names, lambda name: qhold.release(name, kinds))
