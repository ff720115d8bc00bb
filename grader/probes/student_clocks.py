"""Stand-ins for Python's clocks, by which a student's code measures its own time."""

import datetime
import time
import timeit


def stand_ins(now):
    """[(owner, name, what stands in)] for each clock, which says now(), in seconds."""

    class Calendar(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(now(), tz)

        utcnow = today = now

    class Timer(timeit.Timer):
        def __init__(self, stmt="pass", setup="pass", timer=now, globals=None):
            super().__init__(stmt, setup, now, globals)

    return [
        *((time, clock, now) for clock in ("time", "perf_counter", "monotonic", "process_time")),
        *(
            (time, f"{clock}_ns", lambda: round(1e9 * now()))
            for clock in ("time", "perf_counter", "monotonic", "process_time")
        ),
        (timeit, "default_timer", now),
        (timeit, "Timer", Timer),  # the default of timeit's own is the real clock
        (datetime, "datetime", Calendar),
    ]
