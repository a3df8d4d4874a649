"""The report: one self-contained HTML page about a posterior, for a data officer and a statistician.

`nadpvi.Posterior.report` and ``nadpvi report`` write it. The public side: nothing here can see records,
except test rows that the reader hands in, which the page marks as outside the guarantee.
"""
