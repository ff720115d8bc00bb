"""The first job, and what the course needs."""
