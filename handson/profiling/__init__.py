"""Why is a run not faster? This package records the processes of a run, reads such profiles, and reports the causes.

`tools` runs a command under nvprof, nsys or one of the course's `recorders`; a recorded process reports to them through
`recording`. `readers` convert the files of all tools to the `timeline` model; `analysis` computes the shares and the
verdict, `explain` the causes of lost efficiency; `report`, `figure` and `perfetto` show the results. `usage` samples
the utilisation of devices, and `watch` shows it.
"""
