"""The checks of the notebook's gaps: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

NOTEBOOK = (
    function(
        "score_bytes",
        "`score_bytes` is the memory of the scores",
        "Multiply heads, queries, keys and 4 bytes. A ring step has one block of keys, and by heads a rank has its"
        " heads.",
    ),
    function(
        "sent_bytes",
        "`sent_bytes` is the number of bytes that a rank sends",
        "The ring sends two tensors N - 1 times. By heads, a rank sends four tensors once, and keeps 1/N of each.",
    ),
    function(
        "keys_seen",
        "`keys_seen` is the number of keys that the queries see",
        "The query at position p sees the positions 0 to p.",
        whole="a number of keys is whole",
    ),
    prediction("prediction_zigzag", 0.5, 4, "1 means as long as with zigzag, 2 means twice as long"),
    function(
        "slowest",
        "`slowest` is the slowdown that the fullest rank causes",
        "Sum the tokens of each rank's experts. Divide the largest sum by the mean of the sums.",
    ),
    prediction(
        "prediction_slowest",
        1,
        2,
        "1 means that both ranks get the same number of tokens, 2 means that one rank gets all",
    ),
)
