"""The errors of the Chainer track whose text is meant for the user as it stands."""

from handson.errors import OneSentence


class TrackError(OneSentence, ValueError):
    """What cannot work. With `on_all_ranks`, every rank of a multi-node run has found it out, and rank 0 alone says it."""

    def __init__(self, sentence, on_all_ranks=False):
        super().__init__(sentence)
        self.on_all_ranks = on_all_ranks


class WorkerError(OneSentence, RuntimeError):
    """Names a device, or a rank, that failed; its own traceback, where there is one, is a note of the error."""

    status = 1
