"""The model as a file, and as an estimator of scikit-learn.

The file is JSON with the parameters of a fitted pipeline. scikit-learn's own way is pickle, but
loading a pickle runs code from the file: whoever can write it controls every worker.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Self

import msgspec

from fraud_scoring.features import FEATURES
from penstock.extras import explain_missing_extra

log = logging.getLogger(__name__)


class Parameters(msgspec.Struct, frozen=True):
    """The parameters of a fitted pipeline: StandardScaler, then LogisticRegression."""

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    coefficients: tuple[float, ...]
    intercept: float


class FraudModel:
    """A fitted pipeline that scores payments."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._scaler, self._regression = pipeline[0], pipeline[1]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a model file and create the estimator. Slow: call it once per worker."""
        parameters = msgspec.json.decode(path.read_bytes(), type=Parameters)
        check(parameters, path)
        model = cls(pipeline_of(parameters))
        log.info("Model '%s' loaded in process %d", path.name, os.getpid())
        return model

    def save(self, path: Path) -> None:
        """Write the model file."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self.parameters()), indent=2))

    def parameters(self) -> Parameters:
        """The fitted parameters."""
        return Parameters(
            FEATURES, tuple(self._scaler.mean_.tolist()), tuple(self._scaler.scale_.tolist()),
            tuple(self._regression.coef_[0].tolist()), float(self._regression.intercept_[0]),
        )

    def score(self, features: tuple[float, ...]) -> tuple[float, str]:
        """The probability of fraud, and the feature that raises it most."""
        scaled = self._scaler.transform([features])
        probability = self._regression.predict_proba(scaled)[0, 1]
        contributions = scaled[0] * self._regression.coef_[0]
        return float(probability), FEATURES[int(contributions.argmax())]


def check(parameters: Parameters, path: Path) -> None:
    """Fail if a model was trained with other features, or is incomplete."""
    if parameters.features != FEATURES:
        raise ValueError(
            f"Model '{path}' has the features {', '.join(parameters.features)}. "
            f"This application computes {', '.join(FEATURES)}. Train the model again."
        )
    for name in ("mean", "scale", "coefficients"):
        if len(getattr(parameters, name)) != len(FEATURES):
            raise ValueError(f"Model '{path}': '{name}' needs {len(FEATURES)} numbers.")


def new_pipeline() -> Any:
    """A pipeline that is not fitted."""
    with explain_missing_extra("examples"):
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    return make_pipeline(StandardScaler(), LogisticRegression())


def pipeline_of(parameters: Parameters) -> Any:
    """A pipeline with the given parameters. Their names in scikit-learn end with `_`."""
    pipeline = new_pipeline()
    import numpy as np

    scaler, regression = pipeline[0], pipeline[1]
    scaler.mean_, scaler.scale_ = np.array(parameters.mean), np.array(parameters.scale)
    scaler.var_ = scaler.scale_**2
    regression.coef_ = np.array([parameters.coefficients])
    regression.intercept_ = np.array([parameters.intercept])
    regression.classes_ = np.array([False, True])
    scaler.n_features_in_ = regression.n_features_in_ = len(parameters.features)
    return pipeline
