"""What came of tuning: results, entries of the tuned file, its text, pictures."""
