"""ChainerMN in forked ranks: its communicator does over gloo what it does over MPI, which never begins there."""

import numpy

HERE = "tests.grader.chainer_ranks"


def test_ranks_begin_without_mpi_and_with_one_thread(server):
    assert server.run(f"{HERE}:state").observations == [{"mpi": False, "threads": 1}]


def test_ranks_on_nodes_of_two_get_what_the_others_send(server):
    outcome = server.run(f"{HERE}:talk", ranks=3)
    assert [rank.message for rank in outcome.ranks] == [""] * 3
    zero, one, two = outcome.observations
    assert [seen["ranks"] for seen in outcome.observations] == [
        [0, 3, 0, 2, 0, 2],
        [1, 3, 1, 2, 0, 2],
        [2, 3, 0, 1, 1, 2],
    ]
    for seen in outcome.observations:
        assert numpy.array_equal(seen["parameters"], zero["parameters"])
        assert numpy.allclose(seen["mean"], [1.0])
        assert (seen["broadcast"], seen["sum"], seen["all"]) == ("of rank 0", 6, [0, 1, 2])
    assert (zero["gathered"], one["gathered"]) == ([0, 1, 2], None)
    assert (one["received"], two["received"]) == ({"to": 1}, {"to": 2})
    assert [seen["dealt"] for seen in outcome.observations] == [10, 11, 12]
