"""The process in which a script is played: a pretended GPU, groups without peers, and a tape of it."""
