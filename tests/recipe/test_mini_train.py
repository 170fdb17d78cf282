"""A whole training run on the CPU at toy size: self-check, training, checkpoint pieces, log."""

import io
import json
import math
import tarfile
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, Glm4MoeForCausalLM

from recipe.mini.encode import write
from recipe.mini.evaluate import bigram_perplexity, needle_rows, needles_found, perplexity
from recipe.mini.measure import measure
from recipe.mini.model import MiniModel, Shape
from recipe.mini.needles import DIGITS, LANGUAGES, needle
from recipe.mini.tokenizer import save, train_tokenizer
from recipe.mini.train import score, train
from recipe.mini.trainer import Data, Phase, Settings, Trainer, load

SHAPE = Shape(
    vocab_size=320, hidden_size=32, num_hidden_layers=2, head_dim=16, num_attention_heads=2, num_key_value_heads=1,
    intermediate_size=32, moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2,
)  # fmt: skip
SETTINGS = Settings(
    seconds=6, shape=SHAPE, phases=(Phase(0.0, 2, 160), Phase(0.5, 2, 192)), warm_up=2,
    evaluate_every=2.0, needle_lengths=(160, 192), needle_depths=3,
)  # fmt: skip
_WORDS = {"en": "shelf lamp river stone ", "ja": "本棚と川と石と灯り。", "code": "def f(x):\n    return x\n"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mini")
    random = np.random.default_rng(0)
    (root / "held_out").mkdir()
    for language in LANGUAGES:
        parts = [part + str(random.integers(100)) + "\n" for part in [_WORDS[language]] * 400]
        text = "".join(random.permutation(parts).tolist())
        line = json.dumps({"id": f"x:{language}", "language": language, "text": text}) + "\n"
        with (root / "train.jsonl").open("a") as lines:
            lines.write(line)
        (root / "held_out" / f"{language}.jsonl").write_text(line.replace('"x:', '"y:'))
    forms = ["".join(needle(language, "12345")) for language in LANGUAGES]
    save(train_tokenizer([*_WORDS.values(), *forms] * 50, 700), root / "tokenizer", 512)
    write(root, root / "tokenizer", root / "data")
    return root / "data"


@pytest.fixture(scope="module")
def data(folder: Path) -> Data:
    return load(folder)


def _settings(data: Data) -> Settings:
    shape = Shape(**{**vars(SHAPE), "vocab_size": data.vocabulary})
    return Settings(**{**vars(SETTINGS), "shape": shape})


def test_a_run_trains_and_leaves_a_checkpoint_that_transformers_loads(
    folder: Path, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each look at the clock takes a tenth of a second: as many steps on a busy machine as on an idle one.
    monkeypatch.setattr("recipe.mini.train.time", SimpleNamespace(monotonic=count(0, 0.1).__next__))
    log = train(folder, tmp_path / "out", _settings(data))
    assert log == json.loads((tmp_path / "out" / "log.json").read_text()) | {"settings": log["settings"]}
    assert log["self_check"]["difference_from_transformers"] < 1e-4
    assert {entry["length"] for entry in log["evaluations"]} == {160, 192}
    assert log["final"]["perplexity"]["en"] < data.vocabulary / 2
    pieces = sorted((tmp_path / "out").glob("checkpoint.tar.*"))
    with tarfile.open(fileobj=io.BytesIO(b"".join(piece.read_bytes() for piece in pieces))) as tar:
        tar.extractall(tmp_path, filter="data")
    model = Glm4MoeForCausalLM.from_pretrained(tmp_path / "checkpoint", dtype=torch.float32).eval()
    ids = AutoTokenizer.from_pretrained(tmp_path / "checkpoint")("shelf lamp 12", return_tensors="pt").input_ids
    with torch.no_grad():
        assert torch.isfinite(model(ids).logits).all()
    found = measure(tmp_path / "checkpoint", lengths=[160], depths=2, text=folder / "held_out")
    assert found["perplexity"]["en"] == pytest.approx(log["final"]["perplexity"]["en"], rel=0.01)
    assert set(found["needles"]["160"]) == set(LANGUAGES)
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def test_a_vocabulary_that_does_not_fit_is_refused_before_any_step(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the model 9"):
        train(folder, tmp_path / "out", Settings(seconds=1, shape=Shape(vocab_size=9)))
    assert not (tmp_path / "out").exists()


def test_overused_experts_are_made_less_likely(data: Data) -> None:
    trainer = Trainer(_settings(data), torch.device("cpu"))
    for experts in trainer.model.experts():
        experts.load += torch.tensor([1000.0, 0, 0, 0])
    tokens = torch.randint(1, data.vocabulary, (2, 64))
    trainer.step(tokens, torch.ones(2, 64), progress=0.0)
    for experts in trainer.model.experts():
        assert experts.correction[0] < 0
        assert experts.load.sum() == 0


def test_the_rate_warms_up_and_falls(data: Data) -> None:
    trainer = Trainer(_settings(data), torch.device("cpu"))
    assert trainer.rate(0.0) == pytest.approx(SETTINGS.rate / 2)
    trainer.steps = 10
    assert trainer.rate(0.0) == pytest.approx(SETTINGS.rate)
    assert trainer.rate(1.0) == pytest.approx(SETTINGS.rate * SETTINGS.last_rate)


def test_needles_come_before_perplexity_in_the_choice_of_a_checkpoint() -> None:
    def result(ppl: float, found: float) -> dict[str, dict[str, float]]:
        return {"perplexity": {"en": ppl}, "needles": {"512": 1.0, "1024": found}}

    assert score(result(9.0, 0.95), 0.95) > score(result(5.0, 0.94), 0.95)
    assert score(result(5.0, 1.0), 0.95) > score(result(9.0, 1.0), 0.95)


def test_perplexity_is_that_of_each_document_alone(data: Data) -> None:
    torch.manual_seed(1)
    model = MiniModel(_settings(data).shape).eval()
    documents = [data.held_out["en"][0][:50], data.held_out["en"][0][60:75]]
    logs = [(math.log(perplexity(model, [document])), len(document) - 1) for document in documents]
    together = sum(value * count for value, count in logs) / sum(count for _, count in logs)
    assert perplexity(model, documents) == pytest.approx(math.exp(together), rel=1e-5)


class _Copier(MiniModel):
    """Predicts the digit that stands ``distance`` tokens back: a perfect reader of one needle layout."""

    distance = 0

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(tokens.roll(self.distance, 1), self.shape.vocab_size).float()


def test_a_needle_counts_only_when_every_digit_is_right(data: Data) -> None:
    rows = needle_rows(
        {language: np.concatenate(found) for language, found in data.held_out.items()},
        dict.fromkeys(LANGUAGES, data.forms["en"]), data.digit, length=160, depths=1, seed=0,
    )  # fmt: skip
    form = data.forms["en"]
    model = _Copier(_settings(data).shape)
    model.lm_head = torch.nn.Identity()  # the stand-in's states are its logits
    haystack = len(rows[0]) - form.statement_length - form.question_length
    model.distance = haystack + len(form.after) + len(form.question) + DIGITS - 1
    assert needles_found(model, rows) == 1.0
    rows[0, -1] = 0
    assert needles_found(model, rows) == pytest.approx(2 / 3)


def test_the_bigram_baseline_knows_pairs() -> None:
    stream = np.array([1, 2, 3] * 400, np.uint16)
    document = [np.array([1, 2, 3, 1, 2], np.uint16)]
    assert bigram_perplexity([stream], document, 8) < 1.1
    assert bigram_perplexity([stream], [document[0][::-1].copy()], 8) > 3
