"""The checks of the notebook's gaps: titles, hints and points, and no answers."""

from grader.checks.notebook_functions import function, prediction

NOTEBOOK = (
    function(
        "score_bytes",
        "the bytes of the scores",
        "heads x queries x keys numbers of 4 bytes: of all, of one block of the ring, or of a rank's heads.",
    ),
    function(
        "sent_bytes",
        "the bytes that a rank sends",
        "The ring sends two tensors N - 1 times; by heads, four tensors go once, of which 1/N stays.",
    ),
    function(
        "keys_seen",
        "how many keys a rank's queries see",
        "The query at place p sees the places 0 to p.",
        whole="there is no half key",
    ),
    prediction("prediction_zigzag", 0.5, 4, "1 means as long as with zigzag, 2 twice as long"),
    function(
        "slowest",
        "how long the fullest rank lets all wait",
        "Add up the tokens of each rank's experts; divide the most by the mean.",
    ),
    prediction("prediction_slowest", 1, 2, "1 means that both ranks get equally many tokens, 2 that one gets all"),
)
