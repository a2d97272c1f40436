"""A fabric as text and as SVG."""
