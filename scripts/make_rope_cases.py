#!/usr/bin/env python3
"""Writes tests/golden/rope/cases.json: small models whose positions, windows or routes are unusual.

A case is a configuration as transformers writes it, the shapes of the tensors, and the negative
log-likelihood (nats) of every token of one text, computed by transformers in float32. Weights are
not stored: every number follows from the tensor's name (see values()); tests/rope_golden_test.cpp
makes the same ones. Needs torch, transformers and numpy (made with 2.9, 5.24, 2.3).

    scripts/make_rope_cases.py tests/golden/rope [--keep FOLDER]

--keep also writes each case as a model folder, for other programs.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import transformers

TOKENS = 120  # longer than every window (24) and every original length (32)
IDS = [(i * i * 7 + i * 31 + 5) % 360 for i in range(TOKENS)]

BASE = dict(vocab_size=384, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            tie_word_embeddings=True, bos_token_id=361, eos_token_id=362, pad_token_id=362)
YARN = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=32, rope_theta=10000.0)
LONG = dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=32,
            short_factor=[1.0, 1.25, 1.5, 2.0], long_factor=[1.0, 2.0, 4.0, 8.0])
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64, rope_theta=10000.0)
LINEAR = dict(rope_type="linear", factor=4.0, rope_theta=10000.0)
DYNAMIC = dict(rope_type="dynamic", factor=4.0, rope_theta=10000.0)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, head_dim=8)
GRANITE = dict(embedding_multiplier=3.0, attention_multiplier=0.25, residual_multiplier=0.5,
               logits_scaling=2.0)
HYBRID = dict(GRANITE, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=48,
              layer_types=["attention"] * 2, mamba_n_heads=8)
OLMO3 = dict(num_hidden_layers=4, sliding_window=24)

CASES = {
    "llama-yarn": ("Llama", dict(head_dim=32, rope_parameters=YARN)),
    "llama-yarn-betas": ("Llama", dict(head_dim=32, rope_parameters=dict(
        YARN, beta_fast=2.0, beta_slow=0.5, attention_factor=1.3))),
    "llama-yarn-mscale": ("Llama", dict(rope_parameters=dict(
        YARN, mscale=0.7, mscale_all_dim=1.5))),
    "llama-yarn-untruncated": ("Llama", dict(head_dim=32, rope_parameters=dict(
        YARN, truncate=False))),
    "llama-longrope": ("Llama", dict(rope_parameters=LONG)),
    "llama-dynamic": ("Llama", dict(rope_parameters=DYNAMIC)),
    "llama-linear": ("Llama", dict(rope_parameters=LINEAR)),
    "llama-biases": ("Llama", dict(attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3)),
    "mistral-window": ("Mistral", dict(sliding_window=24)),
    "mistral-yarn": ("Mistral", dict(sliding_window=None, head_dim=16, rope_parameters=YARN)),
    "mixtral-window": ("Mixtral", dict(sliding_window=24, num_local_experts=4)),
    "qwen2-yarn": ("Qwen2", dict(rope_parameters=YARN)),
    "qwen2-llama3": ("Qwen2", dict(rope_parameters=LLAMA3)),
    "qwen2-window": ("Qwen2", dict(use_sliding_window=True, sliding_window=24,
                                   max_window_layers=1)),
    "qwen3-yarn": ("Qwen3", dict(head_dim=16, rope_parameters=YARN)),
    "qwen3-window": ("Qwen3", dict(head_dim=8, use_sliding_window=True, sliding_window=24,
                                   layer_types=["sliding_attention", "full_attention"])),
    "qwen3moe-free": ("Qwen3Moe", dict(EXPERTS, norm_topk_prob=False)),
    "qwen3moe-yarn-window": ("Qwen3Moe", dict(EXPERTS, norm_topk_prob=True, rope_parameters=YARN,
                                              use_sliding_window=True, sliding_window=24)),
    "phi3-longrope": ("Phi3", dict(original_max_position_embeddings=32, rope_parameters=LONG)),
    "phi3-attention-factor": ("Phi3", dict(
        original_max_position_embeddings=32, sliding_window=24,
        rope_parameters=dict(LONG, attention_factor=1.75))),
    "olmo2-yarn": ("Olmo2", dict(rope_parameters=YARN)),
    "olmo3-yarn": ("Olmo3", dict(OLMO3, rope_parameters={
        "full_attention": YARN,
        "sliding_attention": dict(rope_type="default", rope_theta=10000.0)})),
    "smollm3-yarn": ("SmolLM3", dict(num_hidden_layers=4, rope_parameters=YARN)),
    "smollm3-window": ("SmolLM3", dict(num_hidden_layers=4, use_sliding_window=True,
                                       sliding_window=24)),
    "granite-yarn": ("Granite", dict(GRANITE, rope_parameters=YARN)),
    "glm4-yarn": ("Glm4", dict(head_dim=16, rope_parameters=dict(YARN,
                                                                 partial_rotary_factor=0.5))),
    "granitehybrid": ("GraniteMoeHybrid", dict(HYBRID)),
    "granitehybrid-rope": ("GraniteMoeHybrid", dict(HYBRID, position_embedding_type="rope")),
}


def values(name, shape):
    """A tensor's numbers: a linear congruential sequence that begins at the name's FNV-1a hash."""
    state = 2166136261
    for byte in name.encode():
        state = (state ^ byte) * 16777619 % 2**32
    out = numpy.empty(int(numpy.prod(shape)))
    for k in range(out.size):
        state = (state * 1664525 + 1013904223) % 2**32
        out[k] = ((state >> 8) - 2**23) / 2**23  # [-1, 1)
    vector = len(shape) == 1
    norm = vector and name.endswith(".weight")
    out = 1 + out / 4 if norm else out / 8 if vector else out / 2
    return torch.tensor(out.astype(numpy.float32)).reshape(shape)


def case(kind, changes, folder):
    """Saves the model with its weights from values(); returns the tensors' shapes and the scores."""
    torch.manual_seed(0)
    config = getattr(transformers, kind + "Config")(**{**BASE, **changes})
    classes = getattr(transformers, kind + "ForCausalLM")
    classes(config).float().save_pretrained(folder)
    file = folder / "model.safetensors"
    shapes = {k: list(v.shape) for k, v in sorted(safetensors.torch.load_file(file).items())}
    safetensors.torch.save_file({k: values(k, v) for k, v in shapes.items()}, file,
                                metadata={"format": "pt"})
    model = classes.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0]
    nll = -torch.log_softmax(logits.double(), -1)[torch.arange(TOKENS - 1), IDS[1:]]
    return shapes, nll.tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    out = {"ids": IDS, "cases": {}}
    for name, (kind, changes) in CASES.items():
        if args.only not in name:
            continue
        print(name, file=sys.stderr)
        folder = (args.keep or pathlib.Path(tempfile.gettempdir())) / name
        shutil.rmtree(folder, ignore_errors=True)
        shapes, nll = case(kind, changes, folder)
        for file in args.out.glob("tokenizer*.json"):
            shutil.copyfile(file, folder / file.name)
        config = json.loads((folder / "config.json").read_text())
        out["cases"][name] = {"config": config, "tensors": shapes,
                              "nll": [round(v, 7) for v in nll]}
        if args.keep:
            (folder / "nll.json").write_text(json.dumps(nll))
        else:
            shutil.rmtree(folder)
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out["cases"].items()]
    if not args.only:
        (args.out / "cases.json").write_text(
            '{"ids": ' + json.dumps(IDS) + ',\n"cases": {\n' + ",\n".join(lines) + "}}\n")


if __name__ == "__main__":
    main()
