"""Mechanisms that a plain RoCE fabric does without; each is imported where a scenario asks for it."""
