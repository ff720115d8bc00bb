"""Translate the source of a notebook, a script or a job script: its texts, comments, docstrings and the hints of its
gaps. The code stays as it is.

As in markdown_text, `translate` is a function of a text.
"""

import ast
import io
import re
import tokenize

from grader.gaps import BEGIN, END, MORE, TO_DO
from grader.instructors.translation.markdown_text import has_words, translate_markdown
from handson.words import wrapped

COLUMNS = 99
MARKDOWN = "# %% [markdown]"
CELL = "# %%"
# no text: commands of a notebook, what tools read, code that was commented out, the interpreter and PBS's lines
NO_TEXT = re.compile(r"#(?:!|PBS|SBATCH| *%| *!| noqa| type:| fmt:| ---|$)")
COMMENT = re.compile(r"( *)# ?(.*)")
MAGIC = re.compile(r"^[%!].*", re.MULTILINE)  # a line of a notebook's cell that is not Python
OWN_LINE = re.compile(r"\s|[-*] |\d+\. |.*\S {2,}\S")  # a line of a comment that is not part of a paragraph


def translated_file(text, suffix, translate):
    """Return the text of a source of solutions/ in another language. suffix: .py or .sh."""
    if text.startswith("# ---\n"):
        return _notebook(text, translate)
    return translated_code(text, suffix, translate)


def _notebook(script, translate):
    cells = re.split(r"^(?=# %%(?: \[markdown\])?$)", script, flags=re.MULTILINE)
    return cells[0] + "".join(
        _texts(cell, translate) if cell.startswith(MARKDOWN) else translated_code(cell, ".py", translate)
        for cell in cells[1:]
    )


def _texts(cell, translate):
    """Return a cell of a percent script whose lines are comments."""
    first, *lines = cell.rstrip("\n").split("\n")
    english = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
    other = translate_markdown(english, translate)
    end = cell[len(cell.rstrip("\n")) :]
    return "\n".join([first, *(f"# {line}".rstrip() for line in other.split("\n"))]) + end


def translated_code(text, suffix, translate):
    """Return code with its comments, docstrings and the hints of gaps in another language."""
    text = "\n".join(_hints(text.split("\n"), translate))
    if suffix == ".py":
        text = _docstrings(text, translate)
    kept = _in_strings(text) if suffix == ".py" else set()
    lines, block, solution = [], [], False
    for number, line in enumerate(text.split("\n"), start=1):
        comment = COMMENT.fullmatch(line) if number not in kept and not solution else None
        if comment and not NO_TEXT.match(line.strip()) and not line.lstrip().startswith("###"):
            if block and block[0][1] != comment[1]:
                lines, block = lines + _comment(block, translate), []
            block.append((line, *comment.groups()))
            continue
        lines, block = lines + _comment(block, translate), []
        solution = bool(BEGIN.fullmatch(line)) or solution and not END.fullmatch(line)
        lines.append(line if solution or number in kept else _behind_code(line, suffix, translate))
    return "\n".join(lines + _comment(block, translate))


def _hints(lines, translate):
    """Return the lines with the hints of gaps translated. A translated hint is one line."""
    done, number = [], 0
    while number < len(lines):
        begin, end = BEGIN.fullmatch(lines[number]), number + 1
        if begin:
            while end < len(lines) and MORE.fullmatch(lines[end]):
                end += 1
            hint = " ".join(filter(None, [begin[3], *(MORE.fullmatch(line)[1] for line in lines[number + 1 : end])]))
            if (other := translate(hint)) != hint:
                lines[number:end], end = [f"{begin[1]}### BEGIN SOLUTION {begin[2]}: {other}"], number + 1
        done += lines[number:end]
        number = end
    return done


def _comment(block, translate):
    """Return the lines of a block of comments: each paragraph of it is one text."""
    lines, paragraph = [], []

    def end():
        if paragraph:
            english = " ".join(text for _, _, text in paragraph)
            indent = paragraph[0][1]
            other = translate(english) if has_words(english) else english
            prefix = f"{indent}# "
            lines.extend(
                [line for line, _, _ in paragraph] if other == english else wrapped(other, COLUMNS, prefix, prefix)
            )
            paragraph.clear()

    for line, indent, text in block:
        if OWN_LINE.match(text) or not text:
            end()
            other = translate(text.strip()) if has_words(text) else text
            lines.append(
                line if other == text.strip() else f"{indent}# {text[: len(text) - len(text.lstrip())]}{other}"
            )
        else:
            if text.startswith(TO_DO):  # the hint of a gap, below a comment
                end()
            paragraph.append((line, indent, text))
    end()
    return lines


def _behind_code(line, suffix, translate):
    """Return a line of code with a translated comment at its end."""
    if " # " not in line and "\t# " not in line or line.lstrip().startswith("#"):
        return line
    place = _place_of_comment(line) if suffix == ".py" else line.rfind(" # ") + 1
    english = line[place + 1 :].strip() if place else ""
    if not place or not has_words(english) or NO_TEXT.match(line[place:]):
        return line
    return f"{line[:place]}# {translate(english)}"


def _place_of_comment(line):
    try:
        for token in tokenize.generate_tokens(io.StringIO(line.lstrip()).readline):
            if token.type == tokenize.COMMENT:
                return token.start[1] + len(line) - len(line.lstrip())
    except (tokenize.TokenError, SyntaxError):
        found = line.rfind("  # ")  # the comment of a line inside brackets
        return found + 2 if found >= 0 else 0
    return 0


def _in_strings(text):
    """Return the numbers of lines that a string of several lines covers, where # begins no comment."""
    covered, begin = set(), None
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            kind = tokenize.tok_name[token.type]
            if kind == "FSTRING_START":  # Python 3.12 and later have this token; f-strings may be nested
                begin = begin or token.start[0]
            first = token.start[0] if kind == "STRING" else begin if kind == "FSTRING_END" else None
            if first and first < token.end[0]:
                covered |= set(range(first, token.end[0] + 1))
            begin = None if kind == "FSTRING_END" else begin
    except (tokenize.TokenError, SyntaxError):
        pass
    return covered


def _docstrings(text, translate):
    """Return the source with its docstrings translated, paragraph by paragraph."""
    lines = text.split("\n")
    for node in reversed(_with_docstring(text)):
        first, end = node.lineno - 1, node.end_lineno
        source = "\n".join(lines[first:end])
        opened = re.match(r' *"""', source)
        if not opened or not source.endswith('"""') or "\\" in source or _in_solution(lines, first):
            continue
        indent = " " * node.col_offset
        paragraphs = re.split(r"\n\s*\n", source[opened.end() : -3].strip())
        others = [_paragraph(one, indent, translate) for one in paragraphs]
        if others == paragraphs:
            continue
        several = len(others) > 1 or end - first > 1 and source.rstrip('"').endswith("\n" + indent)
        body = f"\n\n{indent}".join(one.lstrip() for one in others)
        closing = f"\n{indent}" if several else ""
        lines[first:end] = f'{indent}"""{body}{closing}"""'.split("\n")
    return "\n".join(lines)


def _in_solution(lines, number):
    markers = [line for line in lines[:number] if BEGIN.fullmatch(line) or END.fullmatch(line)]
    return bool(markers and BEGIN.fullmatch(markers[-1]))


def _paragraph(paragraph, indent, translate):
    english = re.sub(r"\n\s*", " ", paragraph.strip())
    other = translate(english) if has_words(english) else english
    return paragraph if other == english else "\n".join(wrapped(other, COLUMNS, indent, indent))


def _with_docstring(text):
    """Return the nodes of docstrings, in order of their lines."""
    try:
        tree = ast.parse(MAGIC.sub("#", text))
    except SyntaxError:
        return []
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, places)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
        and isinstance(node.body[0].value.value, str)
    ]
    return sorted(found, key=lambda node: node.lineno)
