"""Machine code of CPU targets."""
