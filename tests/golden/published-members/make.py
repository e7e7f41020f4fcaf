#!/usr/bin/env python3
"""Writes members.json: the members of config.json that transformers' configuration classes have, with their defaults.

Usage: make.py > members.json     (needs transformers 5; SOURCE.md says which)
"""
import dataclasses
import json
import sys

import transformers

CLASSES = {"BertModel": "BertConfig", "GemmaForCausalLM": "GemmaConfig", "Gemma2ForCausalLM": "Gemma2Config",
           "Gemma3ForCausalLM": "Gemma3TextConfig", "Gemma4ForCausalLM": "Gemma4TextConfig", "Glm4ForCausalLM": "Glm4Config",
           "GraniteForCausalLM": "GraniteConfig", "Lfm2ForCausalLM": "Lfm2Config", "LlamaForCausalLM": "LlamaConfig",
           "MistralForCausalLM": "MistralConfig", "MixtralForCausalLM": "MixtralConfig", "ModernBertModel": "ModernBertConfig",
           "Olmo2ForCausalLM": "Olmo2Config", "Olmo3ForCausalLM": "Olmo3Config", "Phi3ForCausalLM": "Phi3Config",
           "Qwen2ForCausalLM": "Qwen2Config", "Qwen3ForCausalLM": "Qwen3Config", "Qwen3MoeForCausalLM": "Qwen3MoeConfig",
           "SmolLM3ForCausalLM": "SmolLM3Config"}
# What follows from other members, or is said in several ways that have tests of their own.
DERIVED = {"rope_parameters", "layer_types", "full_attn_idxs", "no_rope_layers", "per_layer_config", "head_dim", "architectures",
           "num_experts", "num_local_experts", "mlp_only_layers"}


def members(name):
    """Every field of the class, and what it writes besides."""
    config = getattr(transformers, name)()
    values = {f.name: f.default for f in dataclasses.fields(config)} | config.to_dict()
    plain = {k: v for k, v in values.items() if k not in DERIVED and isinstance(v, (bool, int, float, str, list, type(None)))}
    return dict(sorted(plain.items()))


def main():
    out = {model: members(config) for model, config in CLASSES.items()}
    sys.stdout.write("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in out.items()) + "\n}\n")


if __name__ == "__main__":
    main()
