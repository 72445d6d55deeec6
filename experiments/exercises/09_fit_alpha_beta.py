"""Exercise 9: alpha and beta of a link.

A message of m bytes takes about alpha + m * beta seconds: alpha to start, beta for each byte. With both one can say
beforehand which all-reduce is the fastest. They are fitted to measured times::

    seconds
      |                         .  x
      |                  x   .
      |           .   .
      |    x  .                       slope: beta
      |   .
    alpha
      +---------------------------- bytes

Messages have from 4 bytes to many megabytes, so their times differ by a factor of thousands. If the squares of the
errors in seconds were minimised, the largest message alone would decide. Minimise the squares of the *relative*
errors, (alpha + m * beta - t) / t, over all messages.

You need: ``numpy.linalg.lstsq(A, b, rcond=None)[0]``, which minimises the squares of A x - b. What are A and b here?

Read: `python -m mxdp.experiments run links`.
Check: python -m mxdp.exercises check experiments/exercises/09_fit_alpha_beta.py
"""


def fit_alpha_beta(nbytes, seconds):
    """Return (alpha, beta) in seconds and seconds a byte, for lists of sizes and of measured times.

    >>> alpha, beta = fit_alpha_beta([0, 1000, 2000], [1.0, 2.0, 3.0])
    >>> print(f"{alpha:.3f} {beta:.3f}")
    1.000 0.001
    """
    raise NotImplementedError
