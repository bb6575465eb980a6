"""Moves an application to its workers, and failures back to the driver.

    bundle           `Bundle`: everything a worker needs to run any task of the application
    pack             encodes a bundle, and explains why one cannot be encoded
    pickling         pickles functions and classes that workers cannot import
    failure          `Failure`: an exception that travels from a worker to the driver
    state_directory  resolves a relative state directory on the hosts of a cluster
    escaping         escapes text that UTF-8 cannot represent
"""
