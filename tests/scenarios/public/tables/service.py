"""Adds up tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import bentoml
import pandas as pd
from bentoml.validators import DataframeSchema

image = bentoml.images.Image(lock_python_packages=False).requirements_file("requirements.txt")

Sales = Annotated[pd.DataFrame, DataframeSchema(orient="records", columns=["city", "amount"])]


@bentoml.service(image=image, resources={"cpu": "1"})
class Tables:
    @bentoml.api
    def totals(self, sales: Sales, least: int = 0) -> pd.DataFrame:
        totals = sales.groupby("city", as_index=False)["amount"].sum()
        return totals[totals["amount"] >= least]

    @bentoml.api
    def total(self, csv: Path) -> float:
        return float(pd.read_csv(csv)["amount"].sum())
