"""Model families, one a file named by its model_type, and how a checkpoint becomes a stage."""
