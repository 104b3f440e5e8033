"""TOML manifest to frozen models to expanded variants. `load_manifest` is the way in."""

from __future__ import annotations

from tilec.manifest.expansion.expand import load_manifest, load_manifests
from tilec.manifest.expansion.variants import KernelPlan, Plan, Variant, of_all_hosts

__all__ = ["KernelPlan", "Plan", "Variant", "load_manifest", "load_manifests", "of_all_hosts"]
