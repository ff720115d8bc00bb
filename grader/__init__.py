"""The instructor's tool: ``python -m grader release`` builds what students receive from the solutions."""
