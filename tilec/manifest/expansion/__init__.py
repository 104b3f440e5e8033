"""From the models of a manifest to its variants: targets, guards, overrides, configs, and what must hold."""
