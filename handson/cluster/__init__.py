"""The nodes of a job, real or virtual: how ranks reach them, how to diagnose them, and the site to which they
belong."""
