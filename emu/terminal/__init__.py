"""What every command needs: options of scenarios and runs, columns, the picture of a run."""
