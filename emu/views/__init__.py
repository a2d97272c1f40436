"""What people see of a run: diagnoses, reports, captures, timelines."""
