"""The first notebook: a first job."""
