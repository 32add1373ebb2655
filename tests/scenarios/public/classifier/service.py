"""A model from the store: `python save_model.py`, then `bentoml deploy .`"""

import pickle

import bentoml
import numpy as np
from bentoml.models import BentoModel
from safetensors.numpy import load_file

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")


@bentoml.service(image=image, resources={"cpu": "1", "memory": "1Gi"}, traffic={"timeout": 10})
class Classifier:
    model = BentoModel("flowers:latest")

    def __init__(self) -> None:
        self.centres = load_file(self.model.path_of("centres.safetensors"))["centres"]
        with open(self.model.path_of("names.pkl"), "rb") as file:
            self.names = pickle.load(file)

    @bentoml.api
    def classify(self, rows: np.ndarray) -> list:
        distances = np.linalg.norm(rows[:, None] - self.centres[None], axis=2)
        return [self.names[index] for index in distances.argmin(axis=1)]

    @bentoml.api
    def about(self) -> dict:
        info = self.model.info
        return {"labels": info.labels, "accuracy": info.metadata["accuracy"]}
