"""The spine: processes, channels and the loop that plans, runs and commits. No torch."""
