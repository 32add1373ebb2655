"""Saves the model that the service loads."""

import pickle

import bentoml
import numpy as np
from safetensors.numpy import save_file

centres = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])
with bentoml.models.create(
    "flowers", labels={"kind": "centres"}, metadata={"accuracy": 0.9}
) as model:
    save_file({"centres": centres}, model.path_of("centres.safetensors"))
    with open(model.path_of("names.pkl"), "wb") as file:
        pickle.dump(["setosa", "versicolor", "virginica"], file)
