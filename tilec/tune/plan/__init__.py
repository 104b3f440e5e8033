"""What is to be tuned: problems, the points where they are timed, configs that are worth compiling."""
