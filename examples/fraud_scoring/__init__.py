"""Fraud scoring: card payments are scored with a scikit-learn model, loaded once per worker."""
