"""Tries every function and constant of a course's packages as the answer to the functions in notebooks.

tests/grader/test_no_answers.py copies this file into an unpacked bundle and runs it there: what it imports as grader
and handson is the bundle's. Functions are called nowhere but in a sandbox, some of them in each process. Usage: python
every_function.py SEED FILE.json
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

import numpy

COURSE = Path(__file__).resolve().parent
PACKAGES = ("grader", "handson")
CALL = 0.3  # seconds that a call may take
OFTEN, CALL_OF_SLOW = 3, 0.03  # after so many calls that took longer, a function's calls may take less
FUNCTION = 10  # seconds that all calls of a function may take
GAP = 1.5  # seconds that its calls for one gap may take, where that was too little
AT_ONCE = 8
TOGETHER = 30  # functions that are tried in one process
LARGEST = 200  # numbers of a value that is looked at
DEEPEST = 12  # containers, closures and fields in one another
late = []  # an alarm for each call that it had to end


def modules():
    """The names of all modules of the packages."""
    found = []
    for package in PACKAGES:
        for path in sorted((COURSE / package).rglob("*.py")):
            parts = path.relative_to(COURSE).with_suffix("").parts
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(found)


def everything():
    """(functions by name, [constants], {module: why it can't be imported}) of all modules: module-level ones, methods
    as functions, and what stands in containers, fields, closures and defaults of these."""
    functions, constants, failed, seen = {}, {}, {}, set()

    def visit(name, thing, depth):
        if isinstance(thing, (int, float, str, bool)):
            constants.setdefault(repr(thing), (name, thing))
            return
        if id(thing) in seen or depth > DEEPEST or isinstance(thing, (ModuleType, BuiltinFunctionType)):
            return
        seen.add(id(thing))
        kept.append(thing)  # so that no other thing gets its id
        if isinstance(thing, (staticmethod, classmethod)):
            visit(name, thing.__func__, depth + 1)
        elif isinstance(thing, property):
            visit(name, thing.fget, depth + 1)
        elif isinstance(thing, functools.partial):
            functions[name] = thing
            visit(f"{name}.func", thing.func, depth + 1)
        elif isinstance(thing, (FunctionType, MethodType)) or hasattr(thing, "__wrapped__"):
            if (getattr(thing, "__module__", "") or "").split(".")[0] in PACKAGES:
                functions[name] = thing
                inner = inspect.unwrap(thing)
                for number, cell in enumerate(getattr(inner, "__closure__", None) or ()):
                    with contextlib.suppress(ValueError):  # it is empty
                        visit(f"{name}.closure{number}", cell.cell_contents, depth + 1)
                for number, default in enumerate((*(inner.__defaults__ or ()), *(inner.__kwdefaults__ or {}).values())):
                    visit(f"{name}.default{number}", default, depth + 1)
        elif isinstance(thing, type):
            if thing.__module__.split(".")[0] in PACKAGES:
                for key, value in vars(thing).items():
                    visit(f"{name}.{key}", value, depth + 1)
        elif isinstance(thing, dict):
            constants.setdefault(repr(thing)[:LARGEST], (name, thing))
            for key, value in list(thing.items()):
                visit(f"{name}[{key!r:.30}]", value, depth + 1)
        elif isinstance(thing, (list, tuple, set, frozenset)):
            constants.setdefault(repr(thing)[:LARGEST], (name, thing))
            for number, value in enumerate(thing):
                visit(f"{name}[{number}]", value, depth + 1)
        elif dataclasses.is_dataclass(thing) or type(thing).__module__.split(".")[0] in PACKAGES:
            for key, value in getattr(thing, "__dict__", {}).items():
                visit(f"{name}.{key}", value, depth + 1)
        else:
            constants.setdefault(repr(thing)[:LARGEST], (name, thing))  # arrays

    kept = []
    for name in modules():
        try:
            module = importlib.import_module(name)
        except BaseException as error:
            failed[name] = f"{type(error).__name__}: {error}"
            continue
        for key, value in vars(module).items():
            if not key.startswith("__"):
                visit(f"{name}.{key}", value, 0)
    return functions, list(constants.values()), failed


def found(rank, ranks, calls):
    """What the packages give in the box. calls: {gap: encoded arguments of each call}.

    Returns {"values": {gap: [[function, its value for each call], ...]}, "constants": [[name, value], ...], "failed":
    modules that can't be imported, "functions": how many there are, "tried": how many take as many arguments as one of
    the gaps has}.
    """
    assert Path("/etc/passwd").read_text().startswith("student:"), (
        "only in a sandbox: all functions are called, also those that write and delete"
    )
    functions, constants, failed = everything()
    first = {gap: _decoded(of_gap[0]) for gap, of_gap in calls.items()}
    works = [(name, _forms(function, first)) for name, function in functions.items()]
    works = [(name, forms) for name, forms in works if forms]
    groups = [works[begin : begin + TOGETHER] for begin in range(0, len(works), TOGETHER)]
    values, unfinished = _tried(groups, functions, calls, FUNCTION)
    # what ended the process gives nothing
    one_by_one = [[(name, [form]) for form in forms] for name, forms in works if name in unfinished]
    for gap, more in _tried(one_by_one, functions, calls, GAP)[0].items():
        values[gap] += more
    constants = [
        [name, plain] for name, plain in ((name, _plain(value)) for name, value in constants) if plain is not None
    ]
    return {
        "values": values,
        "constants": constants,
        "failed": failed,
        "functions": len(functions),
        "tried": len(works),
    }


def _forms(function, first):
    """[(gap, way)]: the gaps whose arguments a function takes, by position or by keyword. first: {gap: arguments of its
    first call}."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    return [(gap, way) for gap, arguments in first.items() for way in _ways(signature, list(arguments))]


def _ways(signature, names):
    """The different ways to give a function arguments with some names: a list of "position" and "keyword"."""
    ways = {}
    for way, given, by_name in (("position", names, {}), ("keyword", [], dict(zip(names, names)))):
        with contextlib.suppress(TypeError):
            bound = signature.bind(*given, **by_name).arguments
            if bound not in ways.values():
                ways[way] = bound
    return list(ways)


def _tried(groups, functions, calls, seconds):
    """({gap: [[function, values], ...]}, the functions that didn't come to their end) of groups [(function's name, its
    forms), ...].

    A group is tried in one process, from its end on. If a function ends the process, takes more than `seconds`, or
    spoils the process for the next one, the others go on in a new one.
    """
    values, unfinished, waiting, running = {gap: [] for gap in calls}, set(), list(groups), {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            group = waiting.pop()
            reading, pid = _begin(functions, group, calls)
            running[reading] = [group, pid, b"", time.monotonic() + seconds, []]
        ready, _, _ = select.select(list(running), [], [], 0.2)
        if not ready:
            print(end=".", flush=True)  # a box ends ranks in which nothing happens
        for reading, one in list(running.items()):
            group, pid, rest, until, told = one
            if reading in ready and (piece := os.read(reading, 1 << 16)):
                *lines, one[2] = (rest + piece).split(b"\n")
                told += [_line(line, group) for line in lines]
                one[3] = time.monotonic() + seconds if lines else until
            elif reading in ready or time.monotonic() > until:
                del running[reading]
                os.close(reading)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                for gap, name, answers in (line for line in told if len(line) == 3):
                    values[gap].append([name, answers])
                # of those tried: whether the next one can be tried there
                sound = [line[1] for line in told if len(line) == 2]
                left = group[: len(group) - len(sound)]
                if left and all(sound):
                    unfinished.add(left.pop()[0])
                waiting += [left] if left else []
    return values, unfinished


def _line(line, group):
    try:
        return json.loads(line)
    except ValueError:
        raise ValueError(
            f"one of {', '.join(name for name, _ in group)} has written {line[:100]!r} where results are told"
        ) from None


def _sign(calls):
    """What is the same in every process that nothing has spoilt."""
    import torch  # here, since the box has loaded it

    numbers = numpy.random.default_rng(0).random((3, 4))
    computed = [
        numbers.mean(axis=1).tolist(),
        torch.from_numpy(numbers).sum().item(),
        sum([1, 2.5]),
        max(2, 3),
        sorted({3, 1}),
    ]
    return repr([computed, len(os.listdir(COURSE)), _decoded(next(iter(calls.values()))[0])])


def _begin(functions, group, calls):
    """Call the functions of a group in a process of its own: (where it tells what they return, the process).

    It tells [gap, function, answers], and [function, whether the process is as before] when all forms of one have been
    tried.
    """
    sign = _sign(calls)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return reading, pid
    try:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        signal.signal(signal.SIGALRM, _late)
        pid_here = os.getpid()
        # small numbers, as calls have them, are those of the processes that try the functions
        end, os.kill = os.kill, lambda process, number: None
        # MPI has nothing to join here, and would end this process, a quarter of a second later
        sys.modules["mpi4py"] = None
        # a fifth of the time went into groups of one rank, and waiting for others
        sys.modules["torch.distributed"].init_process_group = None
        for name, forms in reversed(group):
            late.clear()
            for gap, way in forms:
                with contextlib.suppress(BaseException):
                    answers = [_called(functions[name], _decoded(call), way) for call in calls[gap]]
                    # two processes that write would mix their lines
                    if answers and None not in answers and os.getpid() == pid_here:
                        os.write(writing, json.dumps([gap, name, answers]).encode() + b"\n")
                signal.setitimer(signal.ITIMER_REAL, 0)
                _end_children(end)
                if os.getpid() != pid_here:  # it has forked
                    os._exit(0)
            sound = False
            with contextlib.suppress(BaseException):
                sound = _sign(calls) == sign
            os.write(writing, json.dumps([name, sound]).encode() + b"\n")
            if not sound:
                break
    finally:
        os._exit(0)


def _end_children(end):
    """End processes that a function has started: they would load PyTorch, only to find that nobody waits for them. end:
    os.kill."""
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with contextlib.suppress(OSError):
            end(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)


def _late(number, frame):
    late.append(number)
    raise TimeoutError


def _called(function, arguments, way):
    seconds = CALL if len(late) < OFTEN else CALL_OF_SLOW
    signal.setitimer(signal.ITIMER_REAL, seconds, CALL)
    value = function(*arguments.values()) if way == "position" else function(**arguments)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if (plain := _plain(value)) is None or isinstance(plain, str):
        raise ValueError
    return plain


def _plain(value):
    """A value as a probe would take it, as a text or numbers; None for what is none."""
    from grader.probes import notebooks

    if isinstance(value, str):
        return value[:100]
    try:
        numbers = notebooks._numbers(value)
    except Exception:
        return None
    return numbers.tolist() if numbers.size <= LARGEST else None


def _decoded(call):
    from grader.probes import notebooks

    return notebooks.decoded(call)


def main(seed):
    """Run `found` in a sandbox, and have the bundle's own judges say which values are right: what `found` gives, and
    {"right": [[unit, gap, the name of a function or constant], ...]}."""
    from grader import course, sandbox
    from grader.checks import criteria, notebook_functions
    from grader.sandbox import Server

    assert Path(course.__file__).is_relative_to(COURSE)
    gaps = {}
    for unit, parts in course.UNITS.items():
        for check in [
            check for part in parts for check in part.checks if check.probe == "grader.probes.notebooks:value"
        ]:
            case = {"unit": unit, "seed": seed} | check.cases[0]
            gaps[f"{unit} {check.gap}"] = check.criteria[0], case | check.given(case)
    server = Server(("grader.probes.libraries", "matplotlib.pyplot"))
    limits = sandbox.Limits(cpu_seconds=300, wall_seconds=400, waiting_seconds=400)
    try:
        calls = {gap: case["calls"] for gap, (_, case) in gaps.items()}
        (rank,) = server.run("every_function:found", [calls], 1, limits, [*sandbox.interpreter_paths(), COURSE]).ranks
    finally:
        server.stop()
    if rank.status:
        raise SystemExit(f"{rank.status}: {rank.message} {rank.output[-2000:]}")
    seen, right = rank.observations, []
    for gap, (criterion, case) in gaps.items():
        # a judge says in a sentence what is wrong: a millisecond, and there are 100,000
        first = notebook_functions.calls(case)[0].right
        constant = [[name, [value] * len(case["calls"])] for name, value in seen["constants"]]
        for name, values in seen["values"][gap] + constant:
            with contextlib.suppress(Exception):  # what can't be judged is no answer
                if criteria.close(values[0], first) and criterion.judge([{"values": values}], case, None) is None:
                    right.append([*gap.split(), name])
    return seen | {"right": right}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(int(sys.argv[1]))))  # what is tried may print
