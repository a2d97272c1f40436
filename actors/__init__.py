"""The emulated world: links, switches, NICs, hosts, GPUs, the collective library, and the kernel they run on.

Importing it installs the finder of the compiled packet path.
"""

from actors.compiled import finder, moved_names

finder.install()
moved_names.install()
