"""Check a layer of a model of transformers: record it while the model runs, and recompute it step by step.

The model is small and random, so that nothing is downloaded; a model from ``from_pretrained`` is recorded the same way.

    pip install mha-trace torch transformers
    python examples/check_llama_layer.py
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import mha_trace

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
)
model = LlamaForCausalLM(config).eval()
prompt = torch.randint(0, 64, (1, 9))

# The prompt, and three decoding steps with the cache.
with mha_trace.record(model, layers=[3]) as run:
    model.generate(prompt, max_new_tokens=4, min_new_tokens=4, do_sample=False)

print(run.check(quiet=True))
print()

# Now something goes wrong: a port forgets to scale the scores.
model.model.layers[3].self_attn.scaling = 1.0
with mha_trace.record(model, layers=[3]) as wrong, torch.no_grad():
    model(prompt)

print(wrong.check(quiet=True))
