"""Sine and cosine between -pi/4 and pi/4, evaluated by each family in code of its own."""

#: sin(r) = r + r^3 Q(r^2) and cos(r) = 1 - r^2/2 + r^4 Q(r^2) on [-pi/4, pi/4]; relative errors 2^-28, 2^-33.
#: Our own fits (tools/fit_polynomials.py), rounded to float32.
SINE = (-0.166666549, 0.00833217815, -0.000195172985)
COSINE = (0.0416666469, -0.00138873675, 2.4438451e-5)
