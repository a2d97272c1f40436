"""The report of a run: one HTML file that shows fabric, jobs, faults and steps over time."""
