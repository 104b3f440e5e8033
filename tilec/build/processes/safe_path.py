"""The variable that keeps Python from importing from the working folder, and the value tilec gives it."""

SAFE_PATH, OWN_SAFE_PATH = "PYTHONSAFEPATH", "tilec"
