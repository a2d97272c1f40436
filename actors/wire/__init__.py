"""Packets, frames and messages: what is carried between devices, with its real sizes."""
