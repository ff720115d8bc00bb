"""A small PBS for a machine that has none: qsub, qstat, qdel, qrls, pbsnodes and pbsdsh, answering as PBS Professional does.

Reading order: `qsub` -> `options` + `directives` -> `resources` -> `store` (the job is safe now) -> `scheduler` -> `placement` ->
`runner` (one process per job) -> `ending`. Nothing here imports torch, or anything else that is slow to start; notebooks and
scripts ask about a job through `handson.pbs.jobs`.
"""
