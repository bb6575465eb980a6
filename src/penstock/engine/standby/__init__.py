"""Standby instances: ready to take over while another instance runs the application.

    standby.py          what a standby runs: a warm-up and a follower
    warmup.py           starts Spark and its workers ahead of time
    follower.py         keeps replicas on this host up to date
    update_listener.py  `StandbyUpdateListener` and its notifier
"""
