"""Find the messages in a program's source: each text with words, and with {placeholders} for the values of
f-strings."""

import ast
import itertools
import re

from handson.catalogue import WORD

# calls and keywords whose texts are no messages, or, as a command's help, are not translated
NOT_SHOWN = {"compile", "search", "match", "fullmatch", "sub", "findall", "finditer", "environ", "execute", "TypeVar"}
NOT_SHOWN_AS = {"help", "metavar", "probe", "oracle", "id", "needs", "pattern", "encoding", "wanted_pattern"}
# calls and keywords for labels, where one word is a text, too
LABELS = {
    "text",
    "_box",
    "_worker",
    "_arrow",
    "set_title",
    "set_xlabel",
    "set_ylabel",
    "bar_chart",
    "bars",
    "annotate",
    "translated",
    "aligned",
    "speak",
    "marked",
    "phrase",
}
LABELS_AS = {"xlabel", "ylabel", "label", "title"}
CODE = re.compile(
    r"[;{}<>]\n|^\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|import|from|def|class)\b|^[<.#@/]|</|\w\(\w*\)\n"
    r"|^(?:-|kubectl )(?!.* [a-z]{2,} [a-z]{2,} )"  # an option or a command without a sentence about it
    r"|### |^(?:AND |OR |&& |state IN|hostname |link |qdisc |addr |cd -- |python -m )|^(?:white|black|center)$"
)
A_SENTENCE = 3  # spaces of a dictionary's key that is a message
ALONE = re.compile(r"(?<=[.!?])(?: \{\w+\})+$")  # values behind the last sentence
IN_BACKTICKS = re.compile(r"`[^`]*`")
# what functions of handson.words make of {number} and a noun, or of {kind}
COUNTED = {
    "counted": ("{number} {noun}", "{number} {noun}s"),
    "there": ("there is {number} {noun}", "there are {number} {noun}s"),
}
OF_WORDS = {"a_kind": ("a {kind}", "an {kind}"), "enough": ("{number} is enough", "{number} are enough")}


def templates(source):
    """Return the texts of a Python source, in their order, each once."""
    finder = _Finder()
    finder.visit(ast.parse(source))
    return list(finder.found)


class _Finder(ast.NodeVisitor):
    def __init__(self):
        self.found, self.labels = {}, False

    def _add(self, text):
        text = ALONE.sub("", text.strip())
        words = WORD.findall(IN_BACKTICKS.sub(" ", re.sub(r"\{\w+\??\}", " ", text)))
        several = len(words) + text.count("`") // 2 > 1 and re.search(r"[a-z]{2,}[,:;]? \S|\S [a-z]{2,}", text)
        if words and (several or self.labels) and not CODE.search(text):
            self.found.setdefault(text)

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            numbers = itertools.count(1)
            self._add(re.sub(r"\{\}", lambda found: f"{{value{next(numbers)}}}", node.value))

    def visit_JoinedStr(self, node):
        parts, names = [], set()
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(part.value)
            elif not (parts and parts[-1].startswith("{") and parts[-1].endswith("}")):
                parts.append(_placeholder(part.value, names))
        self._add("".join(parts))
        self._of_values(node)

    def _of_values(self, node):
        labels, self.labels = self.labels, False
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)
        self.labels = labels

    def visit_Call(self, node):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in NOT_SHOWN:
            return
        if name in COUNTED and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
            for form in COUNTED[name]:
                self.found.setdefault(form.replace("{noun}", node.args[1].value))
        self.found |= dict.fromkeys(OF_WORDS.get(name, ()))
        labels, self.labels = self.labels, self.labels or name in LABELS
        self.visit(node.func)
        for one in node.args:
            self.visit(one)
        for keyword in node.keywords:
            if keyword.arg not in NOT_SHOWN_AS:
                self.labels = keyword.arg in LABELS_AS
                self.visit(keyword.value)
        self.labels = labels

    def _visit_body(self, node):
        for default in node.args.defaults if hasattr(node, "args") else ():
            self.visit(default)
        for one in node.body:
            if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)):  # a docstring
                self.visit(one)

    visit_Module = visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _visit_body

    def visit_Dict(self, node):
        labels = self.labels
        for key in filter(None, node.keys):
            if labels or _is_sentence(key):  # what is marked, or a misconception
                self.visit(key)
        self.labels = False
        for value in node.values:
            self.visit(value)
        self.labels = labels

    def visit_Compare(self, node):
        self.visit(node.left)

    def visit_Subscript(self, node):
        self.visit(node.value)
        if isinstance(node.ctx, ast.Store) and _is_sentence(node.slice):
            self.visit(node.slice)

    def visit_AnnAssign(self, node):
        if node.value:
            self.visit(node.value)


def _is_sentence(node):
    return sum(str(one.value).count(" ") for one in ast.walk(node) if isinstance(one, ast.Constant)) >= A_SENTENCE


def _placeholder(value, names):
    """Return the placeholder's name for a value of an f-string. If a translation may leave the value out, such as the s
    of a plural, the name ends with a question mark."""
    constants = [one.value for one in _choices(value) if isinstance(one, ast.Constant)]
    if constants and len(constants) == len(_choices(value)) and all(" " not in str(one) for one in constants):
        name, mark = re.sub(r"\W", "", str(next(filter(None, constants), ""))) or "s", "?"
    else:
        name, mark = _name(value), ""
    number = 1
    while (unique := f"{name}{number if number > 1 else ''}{mark}") in names:
        number += 1
    names.add(unique)
    return f"{{{unique}}}"


def _choices(value):
    """Return the possible values of an expression, if they are literals in it."""
    if isinstance(value, ast.IfExp):
        return [*_choices(value.body), *_choices(value.orelse)]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and isinstance(value.left, ast.Constant):
        return [value.left] if isinstance(value.left.value, str) else [value]
    return [value]


def _name(value):
    if isinstance(value, ast.Name):
        return value.id.strip("_") or "value"
    if isinstance(value, ast.Attribute):
        return value.attr.strip("_")
    if isinstance(value, (ast.Subscript, ast.Await, ast.Starred)):
        return _name(value.value)
    if isinstance(value, ast.Call):
        name = getattr(value.func, "id", getattr(value.func, "attr", "value"))
        arguments = [one for one in value.args if not isinstance(one, ast.Constant)]
        return (
            _name(arguments[0])
            if name in ("len", "join", "str", "repr", "counted", "sum", "min", "max") and arguments
            else name.strip("_")
        )
    if isinstance(value, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        return _name(value.elt)
    if isinstance(value, ast.JoinedStr):
        return next((_name(one.value) for one in value.values if isinstance(one, ast.FormattedValue)), "value")
    if isinstance(value, ast.BoolOp):
        return _name(value.values[0])
    if isinstance(value, ast.BinOp):
        return "number" if not isinstance(value.left, (ast.Name, ast.Attribute)) else _name(value.left)
    return "value"
