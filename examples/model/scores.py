"""A processor that scores whole batches with a model: which flights will leave late?

A model is cheap per call and dear per number of calls, so it is given a batch at a time. This one is a logistic regression
in plain Python, column by column; with numpy, ONNX or PyTorch only `Model.probabilities` would look different.
"""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from inbound import Batch, BatchEventProcessor, BatchResponse, Context


class Options(BaseModel):
    """What the configuration may set under `processor.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path = Field(description="the model: a JSON file with `bias` and `weights`, by name of feature")
    scores: Path = Field(description="folder for the scores; each process appends to a file of its own")
    late_from: float = Field(default=0.5, gt=0, lt=1, description="probability from which a flight counts as late")


class Model(BaseModel):
    """A logistic regression."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    bias: float
    weights: dict[str, float] = Field(min_length=1)

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model. Raises OSError, or ValueError with what is wrong with it."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, p['loc'])) or 'the file'}: {p['msg']}" for p in error.errors(include_url=False)
            )
            raise ValueError(f"{path} is no model: {problems}") from None

    def probabilities(self, flights: list[dict[str, Any]]) -> list[float]:
        """Return one probability per flight; what a flight lacks counts as 0."""
        sums = [self.bias] * len(flights)
        for name, weight in self.weights.items():
            column = [float(flight.get(name) or 0.0) for flight in flights]
            sums = [total + weight * value for total, value in zip(sums, column, strict=True)]
        return [1 / (1 + math.exp(-max(-700.0, min(700.0, total)))) for total in sums]


class Scores(BatchEventProcessor):
    """Scores flights, and writes a line per batch."""

    Options = Options

    def open(self, context: Context) -> None:
        self._options: Options = context.options
        self._log = context.log
        self._model = Model.load(self._options.model)  # no model, no work: an error here ends the process
        context.log.info("model %s: %d features", self._options.model, len(self._model.weights))
        self._options.scores.mkdir(parents=True, exist_ok=True)
        path = self._options.scores / f"{context.consumer_id}.{os.getpid()}.jsonl"
        self._file = open(path, "ab")  # noqa: SIM115 - closed in close()
        self._lock = threading.Lock()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        flights: list[Any] = [event.get_data() for event in batch.events]
        for record, reason in batch.undecodable:
            self._log.warning("%s/%d@%d is no event: %s", batch.topic, batch.partition, record.offset, reason)
        scores = [
            {"offset": offset, "late": probability >= self._options.late_from, "probability": round(probability, 4)}
            for offset, probability in zip(batch.event_offsets, self._model.probabilities(flights), strict=True)
        ]
        line = {"topic": batch.topic, "partition": batch.partition, "scores": scores}
        with self._lock:  # several workers write
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()  # before the commit: what is committed has its scores
        return BatchResponse.advance()

    def close(self) -> None:
        self._file.close()
