"""The error of the Chainer track whose text is meant for the user as it stands."""


class TrackError(ValueError):
    """One sentence for the user: what is wrong, where, and what to do."""


class WorkerError(RuntimeError):
    """One sentence that names a device, or a rank, that failed; its own traceback, where there is one, is a note of the error."""
