"""Names and shapes of results: series, `summary.json`, and the paths into it. `emu.summary` fills them."""
