"""The layout of an application on a log.

    execution_graph.py  stages, tasks, and the topics between them
    internal_topics.py  names, settings and creation of the application's own topics
    upgrade_check.py    checks a changed topology against the existing state, and migrates it
"""
