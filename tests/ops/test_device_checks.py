"""The script that checks a GPU without pytest: it runs here in the interpreter, and it can fail."""

import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import device_attention
import device_checks
import device_steps
import device_sums

TINY = (5, 6, 4, 1, True)  # N, K, H, groups, bias


@pytest.fixture
def few(monkeypatch):
    """One call of each family that runs here, with few criteria."""
    kept = {name: device_sums.CRITERIA[name] for name in ("mode2", "mode3", "ce", "ce_vr", "bce")}
    monkeypatch.setattr(device_sums, "CRITERIA", kept)
    monkeypatch.setattr(device_sums, "WAYS", [device_sums.WAYS[0], device_sums.WAYS[-1]])
    plan = device_checks.families(small=True)
    plan["sampled"] = [(device_sums.sampled, TINY, "float32")]
    plan["every word"] = [(device_sums.every_word, (4, 30, 5, True), "float32")]
    plan = {name: calls[:1] for name, calls in plan.items()}
    monkeypatch.setattr(device_checks, "families", lambda small: plan)


def test_a_few_of_each_family_pass(few, capsys):
    results = device_checks.report(small=True, jobs=1)
    assert not any(each.wrong for each in results.values()), results
    of_a_gpu = {"blocks", "CUDA graph", "recorder"}
    assert all(each.cases and each.worst <= 1 for name, each in results.items() if name not in of_a_gpu)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(results) == 11
    assert printed[0].split() == ["sampled", "2", "cases", "worst", f"{results['sampled'].worst:.3g}", "pass"]
    assert torch.cuda.is_available() or printed[-1].endswith("skipped: there is no GPU")


def test_a_wrong_kernel_is_found(monkeypatch):
    true = device_sums.fused.softplus_sum

    def off(*given, **options):
        logit, total = true(*given, **options)
        return logit, total * 1.00001

    monkeypatch.setattr(device_sums.fused, "softplus_sum", off)
    monkeypatch.setattr(device_sums, "CRITERIA", {"mode3": device_sums.CRITERIA["mode3"]})
    monkeypatch.setattr(device_sums, "WAYS", device_sums.WAYS[:1])
    found = device_checks.checked(True, device_sums.sampled, TINY, "float32")
    assert found.cases == 1
    assert found.wrong[0].startswith("mode3 systematic log_uniform (5, 6, 4, 1, True) float32: loss ")


def test_wrong_attention_is_found(monkeypatch):
    true = device_attention.short_attention
    monkeypatch.setattr(device_attention, "short_attention", lambda three: true(three + 1e-4 * three[:, -1:]))
    found = device_checks.checked(True, device_attention.attention, (2, 3, 1, 16), "float32")
    assert found.cases == len(found.wrong) == 2
    assert found.wrong[0].startswith("attention (2, 3, 1, 16) float32: mixed ")
    assert found.wrong[1].startswith("causal (2, 3, 1, 16) float32: earlier positions inf")


def test_wrong_rows_and_what_breaks_off_are_found(monkeypatch):
    monkeypatch.setattr(device_steps.FusedRows, "update", lambda *_: None)
    found = device_checks.checked(True, device_steps.updates, 4, 9, 3, False)
    assert found.cases == len(found.wrong) == 3
    found = device_checks.checked(True, device_steps.drawn, "k", 9, 3)
    assert "drawn ('k', 9, 3): ValueError" in found.wrong[0]
