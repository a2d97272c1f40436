"""Files that were written for an earlier release, brought to today's spelling."""
