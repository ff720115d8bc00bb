"""Run one gap of a student's script in its place in `train`, with all the code before it, and observe it.

The script around the gap is the released one. Stand-ins of the probe replace the other gaps and define the names that
these should define, so that one gap's mistakes do not affect another.
"""

import ast
import builtins
import contextlib
import copy
import functools
import inspect
import json
import pickle
import re
import sys
import traceback
from dataclasses import dataclass, field
from unittest import mock

from grader.gaps import TO_DO, parsed
from grader.probes.gap_code import GapCode, Names, filled
from grader.probes.names import used_names
from grader.sandbox.rank import StudentMistake
from grader.sandbox.rank_stacks import STUDENT
from handson.training import banner, options

FUNCTION = "train"
REPORTED = "images", "throughput"  # the arguments of results.finish in a script's last line
OURS = "_of_the_check_"  # prefix of the names that a check adds to the script
CAUSES = {  # words of an error that does not name its cause -> the cause
    "sampler option is mutually exclusive with shuffle": (
        "a DataLoader with a sampler takes its order from the sampler: leave out `shuffle`"
    ),
    "device_ids and output_device arguments only work": (
        "a virtual GPU is a core, and DistributedDataParallel finds the device of the model itself: leave out"
        " `device_ids`"
    ),
    "'DataLoader' object has no attribute 'set_epoch'": (
        "`set_epoch` belongs to the sampler, not to the DataLoader: sampler.set_epoch(epoch)"
    ),
    "Shuffle.__init__()": "`Shuffle` takes only the seed: Shuffle(args.seed)",
    "modified by an inplace operation": (
        "`optimizer.step()` changes parameters that `loss.backward()` still needs: call `loss.backward()` first"
    ),
    "does not have a grad_fn": (
        "the tensor on which `backward` is called, such as `loss`, is not connected to the parameters: it was"
        " computed under no_grad, as everything inside a backward pass is, or it was detached (.item(), .detach(),"
        " .data)"
    ),
    "backward through the graph a second time": (
        "backward runs twice through the same graph: call it once for each forward pass"
    ),
    "is not in list": (
        "`index` searches a list for a value: to get the value at an index, write square brackets, as in args.gpu[0]"
    ),
    "'NoneType' object has no attribute 'device'": (
        "a tensor is None: if it is a gradient for the all-reduce, `zero_grad` has removed it after `backward`"
    ),
    "'NoneType' object has no attribute 'get_future'": (
        "a collective returns a work object only with async_op=True: without it, the collective waits and returns None"
    ),
    "'NoneType' object has no attribute 'wait'": (
        "a collective returns a work object only with async_op=True: without it, the collective waits and returns None"
    ),
    "incompatible function arguments": (
        "a function of PyTorch gets an argument of the wrong type: pass optional arguments by name, as in group=..."
    ),
    "mat1 and mat2 shapes": "the network gets images of a shape other than the script prepares for it",
    "running_mean should contain": ("the network gets images of a shape other than the script prepares for it"),
    "Network.forward() takes 2 positional": (
        "the network (`model.predictor`) takes only images: compute the loss with `model`, the classifier"
    ),
    "'tuple' object does not support item assignment": (
        "a tuple, such as the result of tensor_split, cannot be assigned to, not even with +=: change the tensor in"
        " it with .add_(...) or .copy_(...)"
    ),
    "obj is not None and mpi_comm.rank != root": (
        "`bcast_obj` sends the object of rank 0: pass None on the other ranks"
    ),
    "obj is None and mpi_comm.rank == root": "`bcast_obj` sends the object of rank 0, which cannot be None",
    "Device specifier must be": (
        "an argument for a device gets something that is not a device: are `converter` and `device` swapped?"
    ),
    "has no attribute 'dataset'": (
        "an updater takes iterators, but it gets a data set or a part of one: make an iterator over each"
    ),
    "CUDA environment is not correctly set up": (
        "a number or a name such as '@cupy:0' means a real GPU, but there is none here: pass `device`, or pass `gpus`"
        " to MultiprocessParallelUpdater, which work everywhere"
    ),
    "does not support double buffering": (
        "ChainerMN's own create_multi_node_optimizer supports double buffering only on GPUs: use the one that this"
        " file imports"
    ),
    "got multiple values for argument": (
        "a function gets the same argument twice, by position and by name: `partial` must not name the argument that"
        " comes first in the call"
    ),
    "only for scalar outputs": (
        "`backward()` without a gradient needs one number: reduce a loss to one number, and pass the gradient of any"
        " other tensor, as in output.backward(gradient)"
    ),
    ".numpy() is not supported for tensor subclasses": (
        "the parameters of `model` are shards, as fully_shard makes them, not plain tensors: DistributedDataParallel"
        " keeps them whole"
    ),
    "Expected to have finished reduction": (
        "`replica` starts a forward pass before the gradients of its last pass are averaged: call backward after each"
        " forward pass, and evaluate with `model`"
    ),
}


class StopScript(BaseException):
    """Ends the script once the probe has all observations."""


def options_of(program, workers, add_options=None, **values):
    """Return `args` of a training script without options, as handson.training.options.training_parser parses them, but
    with `values`."""
    args = copy.deepcopy(_options_of(program, workers, add_options))  # a copy, because a student's code may change them
    vars(args).update(values)
    return args


@functools.lru_cache(16)  # creating a parser takes longer than many gaps
def _options_of(program, workers, add_options):
    return options.training_parser(program, list(range(workers)), add_options).parse_args([])


def reported_numbers(names, rank):
    """Return the numbers of REPORTED on rank 0, and whether the type of `images` is an integer type ("whole"). On other
    ranks the numbers are read but not reported, so they may be anything, and are 0 here. Raises Wrong."""
    if rank == 0:
        return {name: names.as_number(name) for name in REPORTED} | {"whole": names.is_whole("images")}
    if missing := [name for name in REPORTED if name not in names]:
        raise StudentMistake(
            f"`{missing[0]}` is missing here: the script's last line reads it on every rank, although only rank 0"
            " reports it"
        )
    return dict.fromkeys(REPORTED, 0.0) | {"whole": True}


def only_one(gpus):
    """Raise StudentMistake if `devices.use` was called for several GPUs."""
    if len(set(gpus)) > 1:
        asked = ", ".join(map(str, gpus))
        raise StudentMistake(
            f"`devices.use` is called for GPUs {asked}, but it prepares this process for the GPU that it uses: call"
            " it for that one only"
        )


@dataclass
class Script:
    """A student's gap in the function `function` of a script.

    source: as for GapCode, and the gap's name (gap) and hint (hint), the released text with emptied gaps (given), the
    line of the student's file for each of its lines (lines), and the student's code in the other gaps (others: {gap:
    [code, line]}). stand_ins: {other gap: (the names that it defines, function)}; the function's parameters are names
    of the script, and it returns a value for each defined name. before: {name: value} set just before the gap.
    replaced: (module, name, value) of attributes that change while the script runs. instead: {name of a function of the
    script: its replacement}.
    """

    source: dict
    stand_ins: dict
    before: dict = field(default_factory=dict)
    replaced: tuple = ((banner.TableOutput, "write", lambda output, text: None),)
    function: str = FUNCTION
    instead: dict = field(default_factory=dict)

    def run(self, see, *arguments, begin=lambda names: None):
        """Call the function, and return its result. begin(Names) is called before each execution of the gap, and
        see(Names) after it. Raise StopScript to end the script."""
        passages, returned = [], None

        def before(names):
            passages.append({name: names[name] for name in needed & names.keys()})
            begin(Names(names))

        def after(names):
            if other := [name for name, value in passages.pop().items() if not _alike(names.get(name), value)]:
                raise StudentMistake(
                    f"your code changes the value of `{other[0]}`, which the script needs further down: use another"
                    " name"
                )
            see(Names(names))

        with contextlib.ExitStack() as stack:
            for module, name, value in self.replaced:
                stack.enter_context(mock.patch.object(module, name, value))
            names, train, used, made_here, may_return, needed = self._made
            # the student's file may have replaced it
            stack.enter_context(contextlib.redirect_stdout(sys.__stdout__))
            names = names | {f"{OURS}locals": locals, f"{OURS}begin": before, f"{OURS}end": after}
            exec(train, names)
            nothing = [
                name
                for name, value in inspect.signature(names[self.function]).bind(*arguments).arguments.items()
                if value is None and name in used
            ]
            with contextlib.suppress(StopScript), filled(), causes(nothing, made_here, self._none):
                returned = names[self.function](*arguments)
        if passages and not may_return:
            raise StudentMistake(
                "your code leaves the gap before its last line: does it have a `return`, `break` or `continue`?"
            )
        return returned

    def _none(self, error):
        """Return (the names that are None in the gap's expression in which an error arose; whether it calls
        `gather`)."""
        for (frame, _), place in zip(traceback.walk_tb(error.__traceback__), traceback.extract_tb(error.__traceback__)):
            if (place.filename, place.name) == (STUDENT + self.source["file"], self.function):
                begin, end = (place.lineno, place.colno), (place.end_lineno, place.end_colno)
                nodes = [node for node in ast.walk(_tree(self.source)) if isinstance(node, (ast.Name, ast.Attribute))]
                inside = [
                    node
                    for node in nodes
                    if begin <= (node.lineno, node.col_offset) and (node.end_lineno, node.end_col_offset) <= end
                ]
                names = [
                    node.id
                    for node in inside
                    if isinstance(node, ast.Name) and frame.f_locals.get(node.id, error) is None
                ]
                return names, any(isinstance(node, ast.Attribute) and node.attr == "gather" for node in inside)
        return [], False

    @functools.cached_property
    def _made(self):
        """Return (the names of the student's module and ours, the compiled function, the names that the gap uses, those
        that it defines, whether it may return itself, those that it must not change)."""
        student = GapCode(self.source)
        stand_ins = tuple(
            (gap, names, tuple(inspect.signature(function).parameters))
            for gap, (names, function) in self.stand_ins.items()
        )
        train, used, made_here, may_return, needed = _compiled(
            json.dumps(self.source), self.function, stand_ins, tuple(self.before), frozenset(vars(student.module))
        )
        ours = {name: function for name, (_, function) in self.stand_ins.items()} | {
            f"before_{name}": value for name, value in self.before.items()
        }
        return (
            vars(student.module) | self.instead | {OURS + name: value for name, value in ours.items()},
            train,
            used,
            made_here,
            may_return,
            needed,
        )


@functools.lru_cache(32)  # a gap has several cases
def _compiled(source, function, stand_ins, before, of_module):
    """Return (the compiled function, the names that the gap uses, those that it defines, whether only a `return`
    follows it, those that it must not change). source: as JSON; stand_ins: (gap, the names that it defines, the
    parameters); before: names; of_module: the names of the student's module."""
    source = json.loads(source)
    file, gap = STUDENT + source["file"], _tree(source)
    given, names = _given_out(source["given"], tuple(source["lines"]), function)
    needed = (
        _given(ast.walk(gap)) & names & _needed_after(source["given"], source["gap"]) if function == FUNCTION else set()
    )
    needed -= set(re.findall(r"\w+", " ".join(re.findall("`.*?`", source["hint"]))))
    train, made_here = pickle.loads(given), _given(ast.walk(gap))
    of_stand_ins = {name for _, names, _ in stand_ins for name in names.split()}
    used = used_names(gap)
    place = next((place for place, node in enumerate(train.body) if gap_of(node) == source["gap"]), len(train.body))
    may_return = all(isinstance(node, ast.Return) for node in train.body[place + 1 :]) and place < len(train.body)
    others = _needed(used - of_stand_ins - made_here - names - of_module - vars(builtins).keys(), source["others"])
    _Filled(source["gap"], gap.body, {gap: rest for gap, *rest in stand_ins}, others, before).visit(train)
    return compile(ast.Module([train], []), file, "exec"), used, made_here, may_return, needed


def _tree(source):
    """Return the code of a gap, with the line numbers of the student's file."""
    return parsed("\n" * (source["line"] - 1) + source["code"])


@functools.lru_cache(4)  # shared by all gaps of a file in one rank
def _given_out(text, lines, function):
    """Return (the released function, pickled, with the line numbers of the student's file; the names that it
    defines)."""
    train, nodes = _function(text, function)
    moved = pickle.loads(pickle.dumps(train))
    _move(ast.walk(moved), lines)
    return pickle.dumps(moved), _given(nodes)


@functools.lru_cache(4)
def _function(text, name):
    """Return (a function of a script, all of its nodes)."""
    function = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return function, list(ast.walk(function))


def _needed_after(text, gap):
    """Return the names that lines of `train` use after a gap."""
    _, nodes = _function(text, FUNCTION)
    line = next(node.lineno for node in nodes if gap_of(node) == gap)
    return {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.lineno > line
    }


def _alike(one, other):
    """Return whether a value can replace another: equal numbers, or objects of the same type, such as a loader with
    another order."""
    return type(one) is type(other) and (not isinstance(one, (int, float)) or one == other)


@contextlib.contextmanager
def causes(nothing=(), made_here=(), none=lambda error: ((), False)):
    """Context manager that raises StudentMistake with the cause of an error that does not name it. nothing: arguments
    that the gap uses, and that are None; made_here: the names that the gap assigns or imports; none: as
    Script._none."""
    try:
        yield
    except UnboundLocalError as error:
        if name := next((name for name in made_here if f"'{name}'" in str(error)), None):
            raise StudentMistake(
                f"this gap assigns or imports `{name}`, so `{name}` has no value in the lines of `train` above it:"
                " use another name"
            ) from error
        raise
    except (RuntimeError, TypeError, AttributeError, ValueError, AssertionError) as error:
        # the assertion itself, if it has no message
        said = str(error) or traceback.extract_tb(error.__traceback__)[-1].line or ""
        cause = next((cause for words, cause in CAUSES.items() if words in said), None)
        names, gathers = none(error) if "'NoneType'" in said else ((), False)
        if gathers:
            cause = (
                "`gather` returns the list on rank 0 only, and None on the other ranks: `allgather` returns it on"
                " all ranks"
            )
        for name in names:
            cause = (
                f"`{name}` is None on this rank: only rank 0 has the data"
                if name in nothing
                else cause or f"`{name}` is None here"
            )
        if cause:
            raise StudentMistake(cause) from error
        raise


class _Filled(ast.NodeTransformer):
    """Insert the student's code into its gap, and stand-ins into the other gaps. The script's own output is left
    out."""

    def __init__(self, gap, code, stand_ins, others, before):
        self.gap, self.code, self.stand_ins, self.others, self.before = gap, code, stand_ins, others, before

    def visit_Raise(self, node):
        gap = gap_of(node)
        if gap is None:
            return node
        if gap == self.gap:
            before = [f"{name} = {OURS}before_{name}" for name in self.before]
            return [
                *_at(node, *before, f"{OURS}begin({OURS}locals())"),
                *self.code,
                *_at(node, f"{OURS}end({OURS}locals())"),
            ]
        names, parameters = self.stand_ins[gap]
        gives = f"{', '.join(names.split())} = " if names else ""
        return [*self.others.get(gap, ()), *_at(node, f"{gives}{OURS}{gap}({', '.join(parameters)})")]

    def generic_visit(self, node):
        return node if isinstance(node, ast.expr) else super().generic_visit(node)  # gaps are statements

    def visit_Expr(self, node):
        call = node.value
        return (
            None if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print" else node
        )


def gap_of(node):
    """Return the name of the gap in an unfilled gap's `raise` statement, or None."""
    match node:
        case ast.Raise(exc=ast.Call(func=ast.Name("NotImplementedError"), args=[ast.Constant(str(text))])) if (
            text.startswith(TO_DO)
        ):
            return text.removeprefix(f"{TO_DO}: ")


def _at(node, *statements):
    """Return statements at the position of `node`."""
    tree = ast.parse("\n".join(statements))
    for part in ast.walk(tree):
        if hasattr(part, "lineno"):
            part.lineno, part.end_lineno, part.col_offset, part.end_col_offset = node.lineno, node.lineno, 0, 0
    return tree.body


def _move(nodes, lines):
    """Set the line numbers of released nodes to those of the student's file."""
    for node in nodes:
        if hasattr(node, "lineno"):
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = (
                lines[node.lineno - 1],
                lines[node.end_lineno - 1],
                0,
                0,
            )


def _needed(names, others):
    """Return {other gap: statements} of the student's other gaps that define any of `names`, which the gap uses and no
    other code defines."""
    found = {}
    for gap, (text, line) in others.items() if names else ():
        with contextlib.suppress(SyntaxError, ValueError):
            tree = parsed("\n" * (line - 1) + text)
            if names & _given(ast.walk(tree)):
                found[gap] = tree.body
    return found


def _given(nodes):
    """Return the names that some nodes define: variables, parameters, functions, classes, imports."""
    found = set()
    for node in nodes:
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.arg(arg=name)
            ):
                found.add(name)
            case ast.alias(name=name, asname=short):
                found.add((short or name).split(".")[0])
    return found
