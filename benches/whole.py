"""How much longer does a model take while all of it is recorded? Of a GPT-2 of its own size, with random weights.

    python benches/whole.py --tokens 512 --runs 5

Needs torch, transformers and the package. Prints the median of a forward pass, of one that is recorded with everything=True, and
what the recording costs beside it.
"""

import argparse
import statistics
import time

import torch
import transformers

import mha_trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    ids = torch.randint(0, 50257, (1, asked.tokens))

    def plain() -> None:
        model(ids, use_cache=False)

    def whole() -> None:
        with mha_trace.record(model, layers="all", everything=True):
            plain()

    def seconds(run) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    with torch.no_grad():
        plain(), whole()
        # Side by side, so that what else the machine does falls on both.
        pairs = [(seconds(plain), seconds(whole)) for _ in range(asked.runs)]
    alone, recorded = (statistics.median(times) for times in zip(*pairs))
    print(f"{asked.tokens} tokens: {alone:.3f} s, recorded {recorded:.3f} s: {recorded / alone - 1:+.0%}")


main()
