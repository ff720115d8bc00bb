"""What people read in their own language: messages, tables and figures."""

import subprocess
import sys

import pytest

from handson import language
from handson.catalogue import Messages, read
from handson.words import aligned, width, wrapped

JAPANESE = Messages(
    {
        "`{name}` is {value}, but it must be {wanted}": "`{name}` は {value} ですが、{wanted}でなければなりません",
        "a list": "リスト",
        "rank": "ランク",
        "The job has ended.": "ジョブが終わりました。",
        "{number} node{s?} wait": "{number} ノードが待っています",
        "the run failed{place}": "実行に失敗しました{place}",
        "; its output is in {path}": "。出力は {path} にあります",
        "{points} of {all}": "{all} 点中 {points}",
        "ranks {some} and {last}": "ランク {some}、{last}",
        "{ranks} on {node}": "{node} に{ranks}",
        "the parameters of step {step} change": "ステップ {step} のパラメーターが変わります",
        "the loss is not finite": "損失が有限ではありません",
        "on rank {rank}": "ランク {rank} では",
        "with {number} ranks": "{number} ランクのとき",
        "line {number} of {file}": "{file} の {number} 行目",
        "its own numbers twice": "自分の数が 2 回",
        "the numbers of {ranks}": "{ranks}の数",
        "the numbers of {ranks} once": "{ranks}の数が 1 回",
        "{number} worker": "{number} ワーカー",
        "requests nothing": "は何も要求していません",
        "job {job} {problem}": "ジョブ {job} は{problem}",
        "ended with status {status}": "ステータス {status} で終了しました",
        "nothing adds them up: {what}": "足し合わせる処理がありません：{what}",
        "{what} differ on {ranks} from rank 0: are they averaged?": "{ranks}で{what}が異なります。平均しましたか",
        "the parameters after step {step}": "ステップ {step} の後のパラメーター",
    }
)


@pytest.mark.parametrize(
    ("english", "other"),
    [
        ("`x` is 3, but it must be a list", "`x` は 3 ですが、リストでなければなりません"),
        ("`rank` is a list, but it must be 2", "`rank` はリストですが、2 でなければなりません"),
        ("1 node wait", "1 ノードが待っています"),
        ("2 nodes wait", "2 ノードが待っています"),
        ("The job has ended. 2 nodes wait.", "ジョブが終わりました。2 ノードが待っています。"),
        ("Nobody knows. The job has ended.", "Nobody knows. ジョブが終わりました。"),
        ("the run failed; its output is in a.o1", "実行に失敗しました。出力は a.o1 にあります"),
        ("2 of 3", "3 点中 2"),
        ("ZeRO on node1", "node1 に ZeRO"),
        ("two parts of 3", "two parts of 3"),
        ("ranks 0 and 1 on node1; ranks 2 and 3 on node2", "node1 にランク 0、1；node2 にランク 2、3"),
        ("a part of what the student wrote", "a part of what the student wrote"),
        ("the parameters of the model never change", "the parameters of the model never change"),
        ("2 nodes, which are busy, wait", "2 nodes, which are busy, wait"),
        (
            "`x` is 3, but it must be 2: the loss is not finite",
            "`x` は 3 ですが、2 でなければなりません。損失が有限ではありません",
        ),
        ("on rank 1, the loss is not finite", "ランク 1 では、損失が有限ではありません"),
        (
            "the loss is not finite (with 4 ranks, line 3 of a.py)",
            "損失が有限ではありません（4 ランクのとき、a.py の 3 行目）",
        ),
        ("its own numbers twice, and the numbers of rank once", "自分の数が 2 回、ランクの数が 1 回"),
        # of several forms, that which leaves the fewest English words
        (
            "the parameters after step 2 differ on ranks 1 and 2 from rank 0: are they averaged?",
            "ランク 1、2 でステップ 2 の後のパラメーターが異なります。平均しましたか",
        ),
        (
            "job 3 ended with status 1; its output is in a.o3",
            "ジョブ 3 はステータス 1 で終了しました。出力は a.o3 にあります",
        ),
        ("`rank` is a list, gloo and 2, but it must be 2", "`rank` はリスト、gloo、2 ですが、2 でなければなりません"),
        ("0.5 with 1 worker", "0.5 with 1 worker"),  # 0.5 with 1 is no number
        ("`#PBS -l` requests nothing", "`#PBS -l` は何も要求していません"),
        ("rank  a list   unknown", "ランク  リスト   unknown"),  # columns of a table
    ],
)
def test_a_message_is_translated_with_its_values(english, other):
    assert JAPANESE.translate(english) == other


@pytest.mark.timeout(60)
def test_a_message_made_of_hostile_text_does_not_hang():
    words = [f"is{chr(97 + number % 26) * (1 + number // 26)}" for number in range(300)]
    messages = Messages({f"{{a}} {word} {{b}}": "{a}{b}" for word in words})
    for text in (
        "`" * 5000,
        " x ".join(words)[:5000],
        "node isa x; its isb is " * 200,
        ". " * 2500,
        "a isa. b c isb. " * 300,
    ):
        messages.translate(text)


def test_a_text_that_is_outdated_or_not_translated_stays_english(tmp_path):
    path = tmp_path / "a.po"
    path.write_text(
        '#: x\n#, fuzzy\nmsgid "old"\nmsgstr "旧"\n\nmsgid "none"\nmsgstr ""\n\nmsgid ""\n"a\\"b\\n"\nmsgstr "丙"\n'
    )
    assert read(path) == {'a"b\n': "丙"}


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({}, "en"),
        ({"LANG": "ja_JP.UTF-8"}, "ja"),
        ({"LANG": "ja_JP.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "ja_JP.UTF-8", "HANDSON_LANGUAGE": "en"}, "en"),
        ({"HANDSON_LANGUAGE": "../.."}, "en"),
    ],
)
def test_the_language_is_that_of_the_variable_or_of_the_system(variables, code, monkeypatch):
    for name in ("HANDSON_LANGUAGE", *language.OF_THE_SYSTEM):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert language.chosen() == code


def test_what_was_released_in_a_language_speaks_it(tmp_path, monkeypatch):
    (tmp_path / "ja").mkdir()
    (tmp_path / "CHOSEN").write_text("ja\n")
    for name in ("HANDSON_LANGUAGE", *language.OF_THE_SYSTEM):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(language, "LOCALE", tmp_path)
    language.available.cache_clear(), language._released.cache_clear()
    try:
        assert language.chosen() == "ja"
    finally:
        language.available.cache_clear(), language._released.cache_clear()


def test_english_reads_no_catalogue():
    code = "import sys; from handson.errors import translated; assert translated('a list') == 'a list'; "
    code += "sys.exit('handson.catalogue' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], env={"HANDSON_LANGUAGE": "en"}, check=True)


def test_an_error_is_shown_in_the_users_language(monkeypatch):
    from handson.errors import OneSentence

    monkeypatch.setenv("HANDSON_LANGUAGE", "ja")
    monkeypatch.setattr("handson.catalogue.messages", lambda folder: JAPANESE)
    assert OneSentence("The job has ended.")._render_traceback_() == ["ジョブが終わりました。"]


def test_columns_of_a_table_are_aligned_where_letters_are_wide():
    lines = aligned(("名前", "n"), [("ab", "1"), ("仮想ノード", "2")])
    assert {width(line) for line in lines} == {len("仮想ノード") * 2 + 3}


def test_a_wide_text_is_wrapped_by_columns_and_no_line_begins_with_a_full_stop():
    text = "各ランクが `dist.all_reduce(x)` を呼び出すと終わります。待つ（ハングする）ことも、あります。" * 3
    for columns in range(24, 60):
        lines = wrapped(text, columns, "# ", "# ")
        assert max(map(width, lines)) <= columns + 2  # a full stop may stand out
        assert not any(line[2] in "、。）" or line[-1] == "（" for line in lines)
        assert "".join(line[2:] for line in lines).replace(" ", "") == text.replace(" ", "")


def test_an_english_text_is_wrapped_as_by_textwrap():
    import textwrap

    text = "a well-known text whose lines are wrapped as ever " * 5
    assert wrapped(text, 30, "- ", "  ") == textwrap.wrap(text, 30, initial_indent="- ", subsequent_indent="  ")


@pytest.fixture
def in_japanese(monkeypatch):
    monkeypatch.setattr("handson.labels.chosen", lambda: "ja")
    monkeypatch.setattr("handson.labels.translated", lambda text: JAPANESE.translate(text))


def _figure():
    from handson.figures import axes

    drawing, one = axes()
    one.set(xlabel="a list", yticks=[0, 1], yticklabels=["a list", "b"])
    return drawing, one


def test_the_labels_of_a_figure_are_translated(in_japanese, monkeypatch):
    from handson.labels import in_language

    monkeypatch.setattr("handson.labels.font_of", lambda code: "DejaVu Sans")
    drawing, one = _figure()
    assert in_language(drawing, "The job has ended.") == "ジョブが終わりました。"
    assert one.get_xlabel() == "リスト"
    assert [label.get_text() for label in one.get_yticklabels()] == ["リスト", "b"]


def test_a_figure_stays_english_where_no_font_has_the_letters(in_japanese, monkeypatch):
    from handson.labels import in_language

    monkeypatch.setattr("handson.labels.font_of", lambda code: None)
    drawing, one = _figure()
    in_language(drawing, "")
    assert one.get_xlabel() == "a list"
