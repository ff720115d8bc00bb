"""A small PBS for a machine that has none: qsub, qstat, qdel and their relatives, answering as OpenPBS 23.06 does
(docs/embedded_pbs.md).

Reading order: `qsub` -> `options` + `directives` -> `resources` -> `store` (the job is safe now) -> `scheduler` ->
`placement` -> `runner` (one process per job) -> `ending`. Nothing here imports torch, or anything else that is slow to
start; notebooks and scripts ask about a job through `handson.pbs.jobs`.
"""
