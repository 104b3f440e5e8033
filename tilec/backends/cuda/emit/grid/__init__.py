"""Which tile of the grid a block takes, and when a launch begins."""
