"""A small PBS for a machine without one: qsub, qstat, qdel and related commands, which answer as OpenPBS 23.06 does
(docs/embedded_pbs.md).

Reading order: `qsub` -> `options` + `directives` -> `resources` -> `store` (the job is safe now) -> `scheduler` ->
`placement` -> `runner` (one process per job) -> `ending`. No module imports torch, or another library that is slow to
start. Notebooks and scripts read a job's state with `handson.pbs.jobs`.
"""
