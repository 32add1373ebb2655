"""Sentence embeddings with all-MiniLM-L6-v2, as a BentoML service."""

from __future__ import annotations

import bentoml
import torch
from transformers import AutoModel, AutoTokenizer

IMAGE = bentoml.images.Image(python_version="3.11").requirements_file("requirements.txt")


@bentoml.service(image=IMAGE, traffic={"concurrency": 2, "timeout": 60}, threads=2)
class Embedder:
    model_files = bentoml.models.BentoModel("all-minilm-l6-v2:latest")

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.tokenizer = AutoTokenizer.from_pretrained(self.model_files.path)
        self.model = AutoModel.from_pretrained(self.model_files.path)

    @bentoml.api
    @torch.inference_mode()
    def embed(self, sentences: list[str]) -> list[list[float]]:
        """One vector of length 1 and 384 numbers per sentence."""
        tokens = self.tokenizer(sentences, padding=True, truncation=True, return_tensors="pt")
        states = self.model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        means = (states * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(means).tolist()
