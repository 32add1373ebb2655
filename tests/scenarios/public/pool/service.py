"""Two processes of several threads each."""

import os
import threading
import time

import bentoml

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")


@bentoml.service(image=image, workers=2, threads=3, resources={"cpu": "500m"})
class Pool:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls = 0
        self.worker = bentoml.server_context.worker_index

    @bentoml.api
    def work(self, seconds: float = 0.05) -> dict:
        with self.lock:
            self.calls += 1
        time.sleep(seconds)
        return {"pid": os.getpid(), "worker": self.worker, "thread": threading.get_ident()}
