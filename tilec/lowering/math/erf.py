"""The error function as a quotient of polynomials, evaluated by each family in code of its own."""

#: erf(x) = x P(x^2) / Q(x^2) on [0, 3.92], where erf has rounded to 1; relative error 2^-29. Our own fit
#: (tools/fit_polynomials.py), rounded to float32.
ERF_P = (
    1.12837917, 0.185136217, 0.0542440071, 0.00383864735, 0.000376755323, 4.60911591e-06, -1.27992582e-08,
)  # fmt: skip
ERF_Q = (1.0, 0.497406106, 0.113874056, 0.0154300851, 0.00130152501, 6.23980573e-05)
ERF_LIMIT = 3.92
