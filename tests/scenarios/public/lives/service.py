"""What happens when a service starts, and how it says that it is well."""

import bentoml

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

happened = []


@bentoml.service(image=image)
class Lives:
    @bentoml.on_deployment
    def prepare() -> None:
        print("prepared once for all workers")

    def __init__(self) -> None:
        happened.append("made")

    @bentoml.on_startup
    def start(self) -> None:
        happened.append("started")

    @bentoml.on_startup
    async def connect(self) -> None:
        happened.append("connected")

    @bentoml.on_shutdown
    async def close(self) -> None:
        happened.append("closed")

    def __is_alive__(self) -> bool:
        return "closed" not in happened

    async def __is_ready__(self) -> bool:
        return "connected" in happened

    @bentoml.api
    def story(self) -> list:
        return happened
