"""The commands ``python -m handson kubernetes ...``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
Site = Annotated[str | None, typer.Option(help="Name of a site with a table [kubernetes]. Default: the chosen site.")]


class Training(StrEnum):
    torchrun = "torchrun"
    mpi = "mpi"
    mpijob = "mpijob"
    trainjob = "trainjob"


def _cluster(site):
    """Return the site's cluster. If the site names no context, ask before kubectl's current one is used."""
    from handson.cluster.kubernetes import cluster_jobs

    kubectl = cluster_jobs.cluster(site)
    if not kubectl.at.context:
        typer.confirm(
            f"The site {kubectl.site.name} names no context. Use the current one, {kubectl.current()}?", abort=True
        )
    return kubectl


@app.command()
def render(
    site: Site = None,
    folder: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for the overlays. Default: jobs/kubernetes/overlays/SITE."),
    ] = None,
):
    """Write a site's kustomize overlays. `kubectl kustomize FOLDER/PART` then shows the manifests; nothing is sent to a
    cluster."""
    from handson.cluster import site as sites
    from handson.cluster.kubernetes.render import parts, render

    folder = render(site or sites.chosen(), folder)
    typer.echo(f"{folder}: {', '.join(parts())}")


@app.command()
def apply(
    site: Site = None,
    grader: Annotated[
        bool, typer.Option("--grader", help="Create the grader instead: a controller and its engines.")
    ] = False,
):
    """Create the objects that training needs: namespace, volume, claim and network rules."""
    from handson.cluster.kubernetes import cluster_jobs

    cluster_jobs.apply(_cluster(site), "grader" if grader else "course", typer.echo)


@app.command()
def keys(site: Site = None):
    """Create the Secret with ssh keys for `mpi`. The keys are neither written to a file nor shown."""
    from handson.cluster.kubernetes import cluster_jobs

    cluster_jobs.keys(_cluster(site), typer.echo)


@app.command(context_settings={"ignore_unknown_options": True})
def submit(
    training: Annotated[Training, typer.Argument(help="Way to start the training.")],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- OPTIONS...", help="Options of the training script, such as -- --epoch=1."),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(help="Path of the script. Default: exercises/03_multi_node/pytorch/train_cifar_multi_node.py."),
    ] = None,
    site: Site = None,
    wait: Annotated[bool, typer.Option("--follow/--no-follow", help="Follow the job until it has ended.")] = True,
):
    """Send your script of 03_multi_node to the cluster, and follow its log."""
    from handson.cluster.follow import follow
    from handson.cluster.kubernetes import cluster_jobs

    job = cluster_jobs.submit(_cluster(site), training.value, script, options or (), typer.echo)
    typer.echo(job)
    if wait:
        follow(job, say=typer.echo)


@app.command("follow")
def follow_job(training: Training, site: Site = None):
    """Show what a job waits for, then its log, and how it ends. After Ctrl-C, the job continues."""
    from handson.cluster.follow import follow

    follow(f"{_cluster(site).site.name}/{training.value}", say=typer.echo)


@app.command()
def delete(training: Training, site: Site = None):
    """Delete a job, whether or not it has ended. Its results stay on the shared volume."""
    from handson.cluster.kubernetes import cluster_jobs

    cluster_jobs.delete(_cluster(site), training.value, typer.echo)
