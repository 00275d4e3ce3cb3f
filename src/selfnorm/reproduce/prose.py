"""What the page of all tables says in words."""

from selfnorm.reproduce.findings import CHANCE, CLEARLY, CLOSE

INTRO = """\
The tables and the figure of "Self-Normalized Importance Sampling for Neural Language Modeling" (Yang et al.,
Interspeech 2022), made again with this library on other text. PPL is perplexity, the lower the better, and what a
figure without a name is; WER is the word error rate in per cent; K is the number of samples, G the number of groups
with a draw each. [criteria.md](criteria.md) explains criteria, samplers and noises, [rescoring.md](rescoring.md) the
two sets of utterances, `ps-lattices` and `moonshine-nbest`. "Beyond" is what the paper did not try.

This page is made from finished rows, never by hand. A row is one training with one seed, or a count; a line of a table
is the mean over its seeds. Some trainings are rows of two tables; the hours here count them once.
"""
CHECKED = """\
**These rows check the machinery.** They are of built-in text, after a few steps, with fewer samples than their names
say (column K), and say nothing of the criteria. What else this page says of texts and utterances is of other scales."""
RULES = f"""\
- Expectations are the paper's results and our own hopes; limits and rules are ours, and those about seeds were made
  when most rows were there. One is left out while rows that could turn it are missing.
- Clearly worse is by {100 * (CLEARLY - 1):.0f} %, close is within {100 * (CLOSE - 1):.0f} % of the perplexity.
- Perplexities are compared seed by seed: yes and no are what all seeds say (two agree every other time by chance),
  undecided is where they disagree, or where one is alone and within {100 * (CHANCE - 1):.1f} % of what decides.
- log Z: yes only if every training keeps the limit.
- The same WER: yes if it lies within the interval of CE, in brackets. That says that no difference was found, not that
  there is none: the interval of the difference, last, says how large it may be.
- A lower WER: undecided where the interval of the difference holds 0.
- An interval of a difference is paired where both rows hold the errors of each utterance, and else as wide as if the
  utterances were different ones.
"""
BEST = "Best for their time: whatever has a lower perplexity takes longer. PPL against CE, and minutes of training:"
WHY = """\
Why: all positions of a batch share one draw, and with it the draw's error, which only steps average out. Batches of 32
sentences make many steps: 1,000 samples are enough. Large batches make few, and need more samples, or groups with a
draw each, which cost little while K is small. A systematic draw is as good as a distinct one, without a pass over the
vocabulary. So the library draws systematically, 8,000 samples in one group unless told otherwise: that serves both.
"""
READING = """\
- **PPL** is the perplexity of test text, normalized over the whole vocabulary; **PPL as is** takes scores as they are.
  Where log Z is above 0 they add up to more than 1, and PPL as is comes out too low: compare it with PPL of the same
  row only. CE and sampled softmax are always normalized, so that both are equal; their log Z is that of raw logits.
- **PPL against CE** compares trainings of the same task, size of batch and seed, which saw the same words in the same
  order.
- **±** stands after the mean over seeds, and is half their range: with two seeds, the standard error of that mean. A
  figure without it is of seed 1 alone, or the same for both. So do not compare means of one and of two seeds; compare
  them against CE.
- **An interval of a WER** is 95 %, by bootstrap over utterances, its ends averaged over seeds. It is that of one
  system, on these speakers, with the scales that were chosen: `fraser` and `ljspeech` are one speaker each, `libri` is
  5 utterances, and 134 utterances of `fraser` are in both sets. `so762-test` has 55 speakers; had these been drawn
  instead of utterances, its interval would be wider.
- **s/batch and words/s** are the median of {timed} runs over the training's first batches, with the paper's 32 or 64
  sentences, on an otherwise idle machine; words/s in large batches are of the same training step on one full batch of
  {large:,} positions, again and again. A row that differs from a timed one in seed or length only takes its timing.
- **Time that trainings took** is added up: those that ran several at a time (`--at-once`) took longer each, and less
  than that in all.
"""
DIFFERENCES = """\
- **Text.** Switchboard (24M words), LibriSpeech (812M) and the in-house set EN (694M for the networks, 7,473M for the
  count LM) are replaced by podcasts (26M), books (83M) and both together: lower case, a to z and apostrophes, numbers
  written out, a sentence on each line, split by whole episodes and books.
- **Length of training.** The paper does not say how long it trained. Here all rows of a task see the same words, with
  the same seed and size of batch in the same order:
{passes}
- **Optimizer.** Adam with a cosine schedule and gradient clipping at 1. Sampled criteria update the rows of words that
  they touch (row-sparse Adam). Mode2 with a draw per position, CE and BCE update all rows; in table 4, of the inputs'
  rows, CE and BCE only those that they touch. On PTB the two ways end within 0.3 % ([speed.md](speed.md)).
- **Learning rates** are one for all criteria of a task, chosen on development text in short trainings: for the LSTM
  with CE, which had 1 % less at twice the rate; for the Transformer with Mode3, on podcasts. Large batches have the
  rate of small ones. So a criterion might do better with its own. Such choices move the order of criteria: with Adam's
  beta2 at 0.99 instead of 0.999 CE was 7 % behind NCE ([log.md](log.md)).
- **Utterances.** The paper rescores lattices of its own recognisers. Ours are public: lattices of pocketsphinx (166
  utterances) and lists of Moonshine tiny (261), of read English. Scales, weights and penalties are cross-validated over
  utterances; how they are tuned was settled with these utterances in sight ([rescoring.md](rescoring.md)). So word
  error rates compare criteria with each other, not with the paper's.
- **Test text.** Perplexities are of the test text of each corpus, in table 5 of both corpora together.
- **4-gram.** Modified Kneser-Ney on the training text; n-grams with words outside the network's vocabulary are left
  out, as `lmplz` does, so that it thinks little of `<unk>`, which the networks learn; for books and for both texts
  together trigrams and 4-grams seen once are left out, too. It is interpolated in table 3 as in the paper, with a
  weight fitted to development text, and in every second pass here.
- **Speed.** The paper timed a GTX 1080 Ti.
- **K = C in figure 1** is trained without groups only: each group would draw every word.
"""
TEXTS = """\
DATA is not part of the repository. It holds `podcasts/{train,valid,test}.txt.bz2`,
`books/{train-0,train-1,train-2,valid,test}.txt.bz2`, `librispeech/test-{clean,other}.ref.tsv` (an id, a tab, a
sentence) and `asr/{ps-lattices,moonshine-nbest}`, made from public repositories on GitHub:

- podcasts: `thechangelog/transcripts` (CC BY-SA 4.0), `talkpython/talk-python-transcripts` (GPL-3.0);
- books: `mlschmitt/classic-books-markdown`, `computationalstylistics/100_english_novels`, `COST-ELTeC/ELTeC-eng`,
  `Flux-Frontiers/gutenberg_kg`, `mahlberg-lab/corpora` (old books; without those that the utterances come from);
- test references of LibriSpeech: `facebookresearch/fbai-speech`;
- speech: `somtts/voicebuilding_seminar_16` (`fraser`), `coqui-ai/TTS` (`ljspeech`), `KennethWang1221/Speech2Text` and
  `cmusphinx/pocketsphinx` (`libri`), `jimbozhang/speechocean762` (`so762-test`), recognised by pocketsphinx 5.1.1 and
  by Moonshine tiny.

Finished rows are in `DIR/rows.jsonl`, a line for each; those of several machines are joined by `cat`. Trainings that
share a GPU run side by side only under NVIDIA's MPS (`nvidia-cuda-mps-control -d`); without it they take turns.
"""
