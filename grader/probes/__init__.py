"""What runs beside a student's code, in its ranks: a probe gives a gap the names it needs, and reports what it made of them.

A probe knows no expected value. It is called as ``probe(rank, ranks, source, case)`` and returns observations: JSON and arrays.
"""
