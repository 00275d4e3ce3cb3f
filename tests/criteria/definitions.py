"""The criteria once more, from the paper's equations, on a full matrix of logits [N, C]: the tests' truth."""

import torch
from torch.nn.functional import logsigmoid


def loss(name, s, targets, rows, alpha=0.1):
    """`rows`: for each position its ids, E of them, and E of its target."""
    return torch.stack([_at(name, s[n], int(targets[n]), *rows[n], alpha) for n in range(len(targets))])


def _at(name, s, t, ids, e, e_t, alpha):
    log_q, log_1q = logsigmoid(s), logsigmoid(-s)  # log q and log(1 - q)
    hit = ids == t
    if name == "ce":
        return -(s[t] - s.exp().sum().log())
    if name == "ce_vr":
        return -(s[t] - s.exp().sum().log()) + alpha * s.exp().sum().log() ** 2
    if name == "bce":
        return -(log_q[t] + sum(log_1q[c] for c in range(len(s)) if c != t))
    if name == "nce":
        q, q_k = s[t].exp(), s[ids].exp()
        return -(torch.log(q / (q + e_t)) + torch.log(1 - q_k / (q_k + e)).sum())
    if name == "is":
        return -(log_q[t] + (log_1q[ids] / e).sum())
    if name == "mode1":
        return -(log_q[t] + (log_1q[ids] / e).sum() - log_1q[t])
    if name == "mode2":
        assert not hit.any()
        return -(log_q[t] + (log_1q[ids] / e).sum())
    if name == "mode3":
        return -(log_q[t] + (log_1q[ids] / e)[~hit].sum())
    if name == "sampled_softmax":
        r, r_k = s[t] - e_t.log(), (s[ids] - e.log())[~hit]
        return -(r - torch.cat([r[None], r_k]).exp().sum().log())
    if name == "linear":
        z = torch.where(s[ids] > 0, 1 + s[ids], s[ids].clamp(max=0).exp()) / e
        return -(s[t] + 1 - z.sum())
    raise AssertionError(name)


def rows_of(sample, targets):
    """What each position sees of a sample, whatever its sharing."""
    rows = []
    for n, target in enumerate(targets):
        row = n if sample.bounds is None else next(g for g in range(len(sample.ids)) if n < sample.bounds[g + 1])
        ids, e = sample.ids[row], sample.expected[row]
        if sample.low is not None:
            half = len(ids) // 2
            turned = (sample.low[row] <= target) & (target <= ids[:half])
            ids, e = torch.where(turned, ids[half:], ids[:half]), torch.where(turned, e[half:], e[:half])
        rows.append((ids, e if sample.left is None else e / sample.left[n], sample.expected_target[n]))
    return rows
