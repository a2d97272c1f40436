"""A PyTorch script as a load: one rank is played on a CPU and recorded, and all ranks are emulated."""
