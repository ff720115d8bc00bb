"""The units: a folder for each, which says what is checked in solutions/NN_topic. grader/course.py finds them by their
names."""
