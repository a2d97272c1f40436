"""The GPU: its copy engine between compute buffers and channel buffers."""
