"""Policy: which tokens run in the next step, and what a step's result means for each request."""
