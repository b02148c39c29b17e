"""Modules that read like single-device maths; how they split and what they cache is declared."""
