"""Why is a run not faster? This package records what the processes of a run do, reads such profiles, and reports what
they show.

`tools` runs a command under nvprof, nsys or one of our `recorders`; `recording` is what a recorded process reports to
them; `readers` turn the files of all tools into the `timeline` model; `analysis` computes the shares and the verdict,
`explain` the causes of lost efficiency; `report`, `figure` and `perfetto` show the results. `usage` samples how busy
devices are, and `watch` shows it.
"""
