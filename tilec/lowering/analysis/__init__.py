"""What passes and emission ask about statements: what they read and write, what is known of their values."""
