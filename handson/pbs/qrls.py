"""qrls: release jobs that ``qsub -h`` or ``qhold`` holds."""

from handson.pbs import command, qhold


def main():
    command.step_aside("qrls")
    command.run("qrls", release_all, qhold.USAGE.format("qrls"))


def release_all(words):
    kinds, names = qhold.parse(words, "qrls")
    return command.for_each_job("qrls", names, lambda name: qhold.release(name, kinds))
