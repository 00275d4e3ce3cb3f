import pytest
import torch
import torch.nn.functional as F

from selfnorm import Output

C, H = 37, 6


def filled(**options):
    torch.manual_seed(0)
    output = Output(C, H, **options)
    torch.nn.init.normal_(output.weight)
    torch.nn.init.normal_(output.bias)
    return output


def logits(output, hidden):
    return hidden @ output.weight.T + output.bias


@pytest.mark.parametrize("most", [1 << 20, 40], ids=["whole", "cut"])
@pytest.mark.parametrize("link", ["log", "logsigmoid"])
def test_score_log_z_and_log_prob(link, most):
    output, hidden, ids = filled(link=link), torch.randn(2, 5, H), torch.randint(0, C, (2, 5))
    every = logits(output, hidden) if link == "log" else F.logsigmoid(logits(output, hidden))
    score = every.gather(2, ids[..., None])[..., 0]
    torch.testing.assert_close(output.score(hidden, ids), score)
    torch.testing.assert_close(output.log_z(hidden, most), every.logsumexp(-1))
    torch.testing.assert_close(output.log_prob(hidden, ids, most), score - every.logsumexp(-1))
    several = torch.randint(0, C, (2, 5, 4))
    torch.testing.assert_close(output.score(hidden, several), every.gather(2, several))
    torch.testing.assert_close(
        output.log_prob(hidden, several), every.gather(2, several) - every.logsumexp(-1, keepdim=True)
    )


def test_scores_of_a_criterion_that_needs_log_z_are_normalized():
    output, hidden = filled(link="log", normalize=True), torch.randn(4, H)
    every = output.score(hidden, torch.arange(C).expand(4, C))
    torch.testing.assert_close(every.exp().sum(1), torch.ones(4))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("link", ["log", "logsigmoid"])
def test_topk_is_the_top_of_all_scores(link, normalize):
    output, hidden = filled(link=link, normalize=normalize), torch.randn(3, 2, H)
    scores, ids = output.topk(hidden, 5, most=40)
    every = output.score(hidden, torch.arange(C).expand(3, 2, C))
    torch.testing.assert_close(scores, every.topk(5).values)
    assert torch.equal(ids, every.topk(5).indices)
    with pytest.raises(ValueError, match="choose k from 1 to 37"):
        output.topk(hidden, 38)


@pytest.mark.parametrize("link", ["log", "logsigmoid"])
def test_training_starts_at_the_unigram_and_z_1(link):
    counts = torch.randint(0, 1000, (C,))
    counts[3] = 0
    output = Output(C, H, link=link).start_from(counts)
    unigram = (counts + 1) / (counts + 1).sum()
    hidden = torch.randn(2, H)
    torch.testing.assert_close(output.log_z(hidden), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        output.score(hidden, torch.arange(C).expand(2, C)).exp()[0], unigram.float(), atol=1e-6, rtol=1e-4
    )


def test_a_vocabulary_of_one_word_still_starts_finite():
    assert torch.isfinite(Output(1, H).start_from(torch.tensor([5])).bias).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Output(0, H), "at least 1 word"),
        (lambda: Output(C, H, link="logsigmod"), "did you mean 'logsigmoid'"),
        (lambda: Output(C, H).start_from(torch.ones(C - 1)), "one count for each of 37 words"),
        (lambda: Output(C, H, bias=False).start_from(torch.ones(C)), "bias=True"),
        (lambda: Output(C, H).score(torch.ones(4, H), torch.ones(3, dtype=torch.long)), "do not go with hidden"),
    ],
)
def test_wrong_use_is_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_one_vector_and_one_word():
    output, hidden = filled(), torch.ones(H)
    for score in (output.score, output.log_prob):
        torch.testing.assert_close(score(hidden, torch.tensor(3)), score(hidden[None], torch.tensor([3]))[0])


def test_no_positions():
    output = filled()
    assert output.log_z(torch.zeros(0, H)).shape == (0,)
    assert output.topk(torch.zeros(0, H), 3)[0].shape == (0, 3)
