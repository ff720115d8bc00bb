"""Known answers, which prove the checks, and the one driver that runs them. They run at the instructor's; students never
receive this package."""
