"""Searches and explanations that a change of the code's shape must not change.

    python -m pytest -m full tests/golden            # compare with what is stored
    PYTHONPATH=tests python -m golden ../shared/data  # store what this version gives

400 searches over SciFact, NPL, CISI and Cranfield and 400 explanations by all families. Stored are ids, scores, parts
of scores and the largest rows, each row by the CRC-32 of its name; no text of a data set is stored.
"""
