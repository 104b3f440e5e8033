"""What an author is told of a kernel that says what can hardly be meant, or what no rule allows."""
