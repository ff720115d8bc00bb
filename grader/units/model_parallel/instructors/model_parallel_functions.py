"""The answers to the gaps in notebook 06_model_parallel, by its parts."""

from grader.units.model_parallel.instructors import memory_functions, pipeline_functions, products_functions

ANSWERS = memory_functions.ANSWERS | pipeline_functions.ANSWERS | products_functions.ANSWERS
