"""A disk in memory that fails on command and by seed, for tests of crashes and full disks.

`faulty_disk.py` opens with the fault model. It imports `disk.media`.
"""
