"""Why a job slowed down, stalled or failed, from what an operator sees and nothing else.

`emu.views.diagnosis.causes` is the way in; `emu.views.diagnosis.view` is all that is looked at. Each family
of causes has a file. No module here may know what a scenario's faults are (import-linter): they are the truth
that a diagnosis is scored against.
"""
