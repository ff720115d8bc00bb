"""The book of the course: `execute` runs the notebooks, `sources` collects the pages, and conf.py builds them with
Sphinx. It runs on the instructor's machine; students do not receive it."""
