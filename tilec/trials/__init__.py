"""Cases and their verdicts, as verify, bench and tune share them: facts, arrays, oracle, comparison."""
