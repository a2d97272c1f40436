"""What stands in for the hardware (links, switches, NICs, hosts, GPUs), and the Ray actors that host it."""

import emu  # noqa: F401  importing it installs the finder of the compiled packet path
