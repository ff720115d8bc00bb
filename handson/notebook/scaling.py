"""The parts of notebook 08_scaling that are not its lesson: a single-worker run, rehearsals with more, and figures."""

import time
from pathlib import Path

import numpy

from handson import figures
from handson.cluster.follow import follow, submit
from handson.language import speak
from handson.notebook import runs as of_student
from handson.profiling import usage
from handson.scaling import measured_runs, published
from handson.training import results
from handson.training.options import LEARNING_RATE

STEPS, WARM_UP = 60, 5


def one_worker(exercises, out, size=64):
    """Return the folder of the student's last single-worker run with measured steps. If there is none, run one now, in
    `out`.

    Runs of larger networks than convnet are left out, because their gradients would need minutes per step on the
    notebook's slow network."""
    runs = of_student.find(exercises, unit="single_gpu", profiled=False)
    if found := [run for run in runs if run.steps and run.parameters and run.model in (None, "convnet")]:
        return found[-1].folder
    if not (Path(out) / "result.json").exists():
        results.write(_measured(size), out)
    return str(out)


def _measured(size, batchsize=32):
    """Return the Result of some steps of ConvNet on random images."""
    import torch

    from handson.pytorch.model import ConvNet

    torch.set_num_threads(1)
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.9)
    images, labels = torch.randn(batchsize, 3, size, size), torch.randint(10, (batchsize,))
    moments = []
    with usage.watched(workers=1):
        for _ in range(STEPS + WARM_UP + 1):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            moments.append(time.perf_counter())
    steps = numpy.diff(moments[WARM_UP:]).round(7).tolist()
    return results.Result(
        unit="single_gpu",
        script="train_cifar_single_gpu",
        track="pytorch",
        profiled=False,
        workers=1,
        nodes=1,
        device="1 virtual GPU",
        dataset="random images",
        size=size,
        batchsize=batchsize,
        epochs=1,
        seed=0,
        images=STEPS * batchsize,
        seconds=sum(steps),
        train_seconds=sum(steps),
        steps=steps,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )


def rehearse(folder, one, workers, network, per_node=1, options="", steps=20):
    """Return the measured run of `workers` ranks that sleep instead of computing, for the step times of the run `one`,
    on as many nodes as they fill. Raises JobFailed."""
    name = f"rehearsal_{workers}_{network}{options.replace(' ', '')}"
    variables = {"RUN": str(Path(one).resolve()), "OPTIONS": f"--steps {steps} -o results/{name} {options}"}
    select = f"{workers // per_node}:ngpus=1:mpiprocs={per_node}:ompthreads=1"
    resources = ["-l", f"select={select}", "-l", "place=scatter"]
    follow(submit(folder, *resources, "-j", "oe", "run_rehearsal.sh", **variables, HANDSON_NETWORK=network))
    [[run], _, remarks] = measured_runs.read([Path(folder) / "results" / name])
    for remark in remarks:
        speak(remark)
    return run


def curves(series, ylabel, workers=tuple(2**power for power in range(10)), ideal=True):
    """Draw functions of the number of workers. series: name -> function."""
    drawing, axes = figures.axes(6.4, 3.8)
    for (name, function), style in zip(series.items(), figures.SERIES):
        axes.plot(workers, [function(number) for number in workers], **style, label=name)
    if ideal:
        axes.plot(workers, workers, **figures.IDEAL)
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel=ylabel)
    axes.set_xticks(workers, [f"{number:,}" for number in workers])
    axes.minorticks_off()
    figures.numbers_of_log_axis(axes)
    axes.legend(fontsize="small", edgecolor="none")
    words = " ".join(
        f"{name}: " + ", ".join(f"{float(f'{function(number):.3g}'):,.10g} at {number}" for number in workers) + "."
        for name, function in series.items()
    )
    return figures.picture(drawing, f"{ylabel} against workers. {words}")


def _percent(share):
    """Return a share in percent with its sign, but 0 without one."""
    return f"{share:+.0%}" if round(share, 2) else "0%"


def eks(step):
    """Print the tables of EKS next to the values of the student's function `step`, with the parameters that fit all
    rows."""
    rows = [(*key, workers, rate) for key, of_table in published.EKS.items() for workers, rate in of_table.items()]
    seconds = published.fit_eks(rows)
    speak("Seconds that fit best: " + ", ".join(f"{name} {value:.2f}" for name, value in seconds.items()))
    speak("\niterations/s                   workers  published  your model  error")
    for instance, table, workers, rate in rows:
        network = seconds[f"network {instance}" + " placement group" * (table == "placement group")]
        found = 1 / step(
            seconds["input"],
            seconds[f"compute {instance}"],
            network / (1 + ("float16" in table)),
            workers,
            "double" in table,
        )
        speak(f"{instance}, {table:26}  {workers:>6}  {rate:>9.3f}  {found:>10.3f}  {_percent(found / rate - 1)}")
