"""The `emu` command: one file per subcommand, imported when it is asked for."""

import gc
import os
import sys

if os.path.basename(sys.argv[0]) == "emu":  # noqa: PTH119  the command itself, not a test of it; before all imports
    gc.disable()  # what is imported stays, and `emu.cli.main` has the collector on again
