"""Sentences on what BentoCloud offers and Hotplate does not yet, as the client prints them."""

from __future__ import annotations

CODE = (
    "Hotplate does not offer code spaces ('bentoml code', dev: true) yet: deploy the folder with "
    "'bentoml deploy . -n NAME', and after a change with "
    "'bentoml deployment update NAME --bento .'; 'bentoml serve --reload' tries it on your machine"
)
