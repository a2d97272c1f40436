"""One rank of a script: its streams, its calls, its ends, and the program on its host that steps them."""
