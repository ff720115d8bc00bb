"""Why is it not faster? Recording what the processes of a run do, reading such profiles, and telling what they say.

`record` runs a command under nvprof, nsys or the recorders of the two tracks; `readers` turn files of all of these into the
`timeline` model; `analysis` has the shares and the verdict, `explain` where efficiency went, `figure` and `perfetto` draw.
"""
