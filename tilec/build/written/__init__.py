"""What a build writes beside the library, and what of a variant people read: sources, stages, assembly."""
