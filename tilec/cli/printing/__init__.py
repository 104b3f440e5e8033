"""What commands print with: tables, progress, roads, words for variants and answers."""
