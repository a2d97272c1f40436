"""Ways in and out of the emulator, each a folder that can be left out."""
