"""Imported once by the server that compile processes are forked from: what every compilation needs."""

from __future__ import annotations

import tvm  # noqa: F401

import tilec.build.records
import tilec.codegen.cpu
import tilec.ir.verifier
import tilec.language.elaborate
import tilec.lowering.pipeline
import tilec.lowering.to_tir  # noqa: F401
