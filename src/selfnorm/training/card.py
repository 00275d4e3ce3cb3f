"""The model card: what a run is, how it was made, how to use it."""

from selfnorm.evaluation import Evaluation
from selfnorm.recipe import to_toml
from selfnorm.training.parts import Parts


def card(parts: Parts, step: int, words: int, evaluation: Evaluation | None) -> str:
    config = parts.config
    use = "need log Z: `log_prob`" if parts.criterion.needs_log_z else "are log probabilities as they are"
    number = sum(parameter.numel() for parameter in parts.model.parameters())
    return "\n".join(
        [
            f"# {config['model']} language model, trained with `{config['criterion']}`",
            "",
            f"{len(parts.data.vocabulary):,} words, {number:,} parameters, {words:,} words seen in {step:,} steps.",
            f"Histories: {config['histories']}. Scores {use}.",
            "",
            *_measured(evaluation),
            "```python",
            "import selfnorm",
            "",
            'model = selfnorm.load("THIS FOLDER")',
            'model.score("a sentence of words")     # log q of each word and of </s>, used as they are',
            'model.log_prob("a sentence of words")  # normalized over the whole vocabulary',
            "```",
            "",
            "The recipe:",
            "",
            "```toml",
            to_toml(parts.recipe).rstrip(),
            "```",
            "",
        ]
    )


def _measured(evaluation: Evaluation | None) -> list[str]:
    if evaluation is None:
        return ["There was no development text.", ""]
    return [
        "| development text | |",
        "| --- | ---: |",
        f"| words, with `</s>` | {evaluation.words:,} |",
        f"| unknown words | {evaluation.oov:,} ({100 * evaluation.oov_rate:.2f} %) |",
        f"| perplexity, normalized | {evaluation.perplexity:.2f} |",
        f"| perplexity of the scores as they are | {evaluation.perplexity_as_is:.2f} |",
        f"| log Z, mean and standard deviation | {evaluation.log_z_mean:+.3f}, {evaluation.log_z_std:.3f} |",
        "",
    ]
