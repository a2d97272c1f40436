"""A distributed, deterministic emulator of the RoCE fabrics that train large models."""

__version__ = "0.1.0"
