"""What languages and build systems read of a package: headers, crates, Python packages, CMake files."""
