"""Libraries of operators for frameworks, beside a package's own one."""
