"""Nodes of a job, real or virtual: how to reach them, what is wrong with them, and the site that they belong to."""
