"""Device helpers: what generated code calls beside plain arithmetic."""
