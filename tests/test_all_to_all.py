"""The all-to-all by hand of notebook 09_attention_and_experts: tokens travel as `sends` says, and the first wrong entry
is named."""

import pytest

from handson.notebook import all_to_all

EXPERTS = [[3, 0, 5, 2], [5, 5, 1, 4], [2, 0, 4, 1]]
SENDS = [[1, 2, 1], [1, 0, 3], [2, 1, 1]]
RECEIVES = [list(column) for column in zip(*SENDS)]
OPEN = [[0] * 3] * 3


def shown(sends, receives):
    return all_to_all.by_hand(EXPERTS, sends, receives).alt


@pytest.mark.parametrize(
    ("sends", "receives", "words"),
    [
        (OPEN, OPEN, "sends[0][0] = 0"),
        ([[1, 2, 1], [0, 1, 3], [2, 1, 1]], OPEN, "sends[1][0] = 0"),
        (SENDS, SENDS, "receives[0][1] = 2"),
        ([[1, 2, 1], [1, 3], [2, 1, 1]], RECEIVES, "sends[1] must be"),
        (SENDS, "many", "receives[0] must be"),
        ([[10**9, 0, 0], [1, 0, 3], [2, 1, 1]], RECEIVES, "sends[0][0] = 1000000000"),
        (SENDS, RECEIVES, "correct"),
    ],
)
def test_the_first_wrong_entry_of_an_all_to_all_by_hand_is_named(sends, receives, words):
    assert words in shown(sends, receives)


def test_tokens_arrive_in_the_order_of_the_ranks_and_where_counts_send_them():
    before = [sorted(tokens) for tokens in EXPERTS]
    experts = [[before[source][place] for source, place in rank] for rank in all_to_all.arriving(before, SENDS)]
    assert experts == [[0, 1, 0, 1], [2, 3, 2], [5, 4, 5, 5, 4]]
    assert all_to_all.arriving(before, [[0, 0, 4], [0, 0, 0], [0, 0, 0]])[2] == [(0, 0), (0, 1), (0, 2), (0, 3)]
