"""Opening after any stop: the log is read to its end, and queues and index are brought in line with it.

Nothing acknowledged is lost, no offset is given twice, and everything that is cut is set aside first.
"""
