#!/usr/bin/env python3
"""Makes tiny random models of the families below, and the logits that transformers computes for them.

  scripts/make_tiny_models.py OUT [--only NAME,NAME] [--second PROGRAM]

Writes OUT/NAME/model.gguf (float32, a few hundred thousand weights, a small valid tokenizer) and
OUT/NAME/expected.json in the form that tests/golden/tiny/SOURCE.md describes. Nothing of culet takes
part: the equations are those of transformers, in float32, eager attention, without a cache. Needs
torch, transformers and numpy, in the versions that tests/golden/tiny/SOURCE-decoders.md names.

PROGRAM, if given, is a second engine that computes all logits of a file; its largest distance from
transformers is printed. It is called as `PROGRAM --model FILE --out ROWS [--kv f16]`, reads the line
`feed 0 COUNT ID ...` and writes float32 rows to ROWS.

A new family is a function that returns a Tiny, and a row of FAMILIES.
"""
import argparse
import json
import struct
import subprocess
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers as tf

VOCABULARY = 512
CONTEXT = 2048
POSITIONS = [0, 7, 8, 15, 31, 47]
TOKENS, PROMPT, GREEDY, KEEP, CHUNKS = 48, 16, 24, 24, [5, 11, 1, 31]
MARGIN = 0.05  # a greedy step whose best two logits are nearer than this proves nothing


@dataclass
class Tiny:
    """One model: how to run it here and how to write it."""
    architecture: str
    feature: str      # what it is there to show
    model: torch.nn.Module
    metadata: dict    # without the architecture's prefix
    tensors: dict
    vocabulary: dict


# ---------------------------------------------------------------- weights

def random_values(seed, name, shape, deviation, mean=0.0):
    """The same numbers for the same seed and name, whatever the other parameters are."""
    source = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return torch.from_numpy((source.standard_normal(tuple(shape)) * deviation + mean).astype(np.float32))


def fill(model, seed, shift=0.0, tied=False, sharpen=1.4, post_norm=1.0):
    """Weights that keep rows near unit size, so that every part of the model moves the logits.

    shift is what the model itself adds to its norm weights. With a tied head the last norm has random
    signs: else the likeliest token would be the one that was read.
    """
    for name, p in model.named_parameters():
        fan_in = p.shape[-1] ** -0.5
        if p.dim() == 1 and name == "model.norm.weight" and tied:
            signs = np.where(random_values(seed, name + ".sign", p.shape, 1.0).numpy() < 0, -1.0, 1.0)
            value = torch.from_numpy(signs.astype(np.float32)) * random_values(seed, name, p.shape, 0.1, 0.95)
            value -= shift
        elif p.dim() == 1:
            behind = "post_feedforward" in name or (post_norm != 1.0 and "post_attention" in name)
            value = random_values(seed, name, p.shape, 0.2, (post_norm if behind else 1.0) - shift)
        elif "embed_tokens" in name:
            value = random_values(seed, name, p.shape, 2.0 * fan_in if tied else 1.0)
        else:
            gain = 2.0 if "lm_head" in name else sharpen if "q_proj" in name or "k_proj" in name else 1.0
            value = random_values(seed, name, p.shape, gain * fan_in)
        with torch.no_grad():
            p.copy_(value)


# ---------------------------------------------------------------- names of tensors

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp",
}
PRE_NORMS = {"post_attention_layernorm": "ffn_norm"}
POST_NORMS = {"post_attention_layernorm": "post_attention_norm",
              "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
GLOBAL = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def experts_of(name, t):
    """transformers joins the gate's rows and those of up; the file has three tensors."""
    layer, kind = name.split(".")[2], name.rpartition(".")[2]
    parts = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}[kind]
    return {f"blk.{layer}.ffn_{part}_exps.weight": rows.contiguous()
            for part, rows in zip(parts, t.chunk(len(parts), dim=1))}


def tensors_of(model, norms, tied, shift=0.0, adjacent=None):
    """The checkpoint under the file's names. adjacent: heads of q and of k whose rows are reordered
    from halves to adjacent pairs."""
    out = {}
    for full, t in model.state_dict().items():
        name, _, kind = full.rpartition(".")
        if name == "lm_head" and tied:
            continue
        if ".experts." in full:
            out |= experts_of(full, t)
            continue
        if name in GLOBAL:
            new = GLOBAL[name]
        else:
            _, _, layer, rest = name.split(".", 3)
            new = f"blk.{layer}." + {**LAYER, **norms}[rest]
        if adjacent and rest_of(new) in ("attn_q", "attn_k"):
            heads = adjacent[rest_of(new) == "attn_k"]
            t = t.reshape(heads, 2, -1, *t.shape[1:]).transpose(1, 2).reshape(t.shape)
        out[f"{new}.{kind}"] = t + shift if new.endswith("norm") else t
    return out


def rest_of(name):
    return name.rpartition(".")[2]


# ---------------------------------------------------------------- tokenizers

def byte_level_vocabulary(pre, bos, eos, more=()):
    """256 bytes, a few merges, control tokens. pre is the pre-tokenizer's name."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = iter(range(256, 512))
    tokens = [chr(b) if b in plain else chr(next(other)) for b in range(256)]
    merges = ["t h", "h e", "i n", "e r", "a n", "th e", "in g", "o n", tokens[32] + " t", tokens[32] + " a"]
    tokens += [m.replace(" ", "") for m in merges]
    kinds = [1] * len(tokens) + [3] * (VOCABULARY - len(tokens))
    special = [bos] + [t for t in (eos, *more) if t != bos]
    first = len(tokens)
    tokens += special
    tokens += [f"<|reserved_{k}|>" for k in range(VOCABULARY - len(tokens))]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.bos_token_id": first, "tokenizer.ggml.eos_token_id": first + special.index(eos),
            "tokenizer.ggml.add_bos_token": False}


def scored_vocabulary(control, prefix):
    """SentencePiece: control tokens, 256 bytes, characters and a few pieces with scores."""
    pieces = ["\u2581", *map(chr, range(0x21, 0x7F)), "th", "he", "in", "er", "the", "\u2581t", "\u2581a", "\u2581the"]
    tokens = [*control, *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    kinds = [2 if c == "<unk>" else 3 for c in control] + [6] * 256 + [1] * len(pieces)
    scores = [0.0] * (len(control) + 256) + [-float(k) for k in range(len(pieces))]
    left = VOCABULARY - len(tokens)
    tokens += [f"<unused{k}>" for k in range(left)]
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": scores + [-1000.0] * left,
            "tokenizer.ggml.token_type": kinds + [5] * left,
            "tokenizer.ggml.bos_token_id": control.index("<bos>" if "<bos>" in control else "<s>"),
            "tokenizer.ggml.eos_token_id": control.index("<eos>" if "<eos>" in control else "</s>"),
            "tokenizer.ggml.unknown_token_id": control.index("<unk>"),
            "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_space_prefix": prefix}


GEMMA_CONTROL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]


# ---------------------------------------------------------------- families

def rope(theta, kind="default", **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


def made(kind, **config):
    """A model of a transformers class. Its sizes are the config's own names."""
    config = getattr(tf, kind + "Config")(vocab_size=VOCABULARY, max_position_embeddings=CONTEXT,
                                               pad_token_id=0, bos_token_id=None, eos_token_id=None, **config)
    config._attn_implementation = "eager"
    return getattr(tf, kind + "ForCausalLM")._from_config(config, attn_implementation="eager").float().eval()


def metadata(config, rope_base, head_dim=None, **more):
    out = {"block_count": config.num_hidden_layers, "context_length": CONTEXT,
           "embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size,
           "attention.head_count": config.num_attention_heads,
           "attention.head_count_kv": config.num_key_value_heads,
           "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps), "rope.freq_base": float(rope_base)}
    if head_dim:
        out |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    return out | more


def gemma():
    m = made("Gemma", hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=1, head_dim=24, rms_norm_eps=1e-6, rope_parameters=rope(10000.0),
             hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True)
    fill(m, 101, shift=1.0, tied=True)
    facts = metadata(m.config, 10000, 24)
    del facts["rope.freq_base"]  # the family's converter writes none
    return Tiny("gemma", "scaled embeddings, tanh GELU gate, head_dim 24 is not hidden/heads, one kv head", m, facts,
                tensors_of(m, PRE_NORMS, True, 1.0), scored_vocabulary(GEMMA_CONTROL, False))


def gemma2():
    m = made("Gemma2", hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, head_dim=24, query_pre_attn_scalar=24, rms_norm_eps=1e-6, sliding_window=8,
             rope_parameters=rope(10000.0), attn_logit_softcapping=3.0, final_logit_softcapping=8.0,
             layer_types=["full_attention" if i % 2 else "sliding_attention" for i in range(4)],
             hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True)
    fill(m, 102, shift=1.0, tied=True, sharpen=1.8, post_norm=1.6)
    facts = metadata(m.config, 10000, 24, **{"attention.sliding_window": 8, "attn_logit_softcapping": 3.0,
                                             "final_logit_softcapping": 8.0})
    del facts["rope.freq_base"]
    return Tiny("gemma2", "window 8 and global layers in turn; four norms; scores capped at 3, logits at 8", m, facts,
                tensors_of(m, POST_NORMS, True, 1.0), scored_vocabulary(GEMMA_CONTROL, False))


OLMO = {"pre": "dbrx", "bos": "<|endoftext|>", "eos": "<|endoftext|>"}


def olmo2():
    m = made("Olmo2", hidden_size=64, intermediate_size=160, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters=rope(500000.0), tie_word_embeddings=False)
    fill(m, 103, post_norm=1.2)
    return Tiny("olmo2", "norms behind the branches only; q and k normed as whole rows", m,
                metadata(m.config, 500000), tensors_of(m, POST_NORMS, False), byte_level_vocabulary(**OLMO))


def olmo3():
    kinds = ["full_attention" if i % 3 == 1 else "sliding_attention" for i in range(4)]
    m = made("Olmo3", hidden_size=64, intermediate_size=160, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, rms_norm_eps=1e-6, sliding_window=8, layer_types=kinds,
             rope_parameters={"full_attention": rope(500000.0, "linear", factor=4.0),
                              "sliding_attention": rope(500000.0)}, tie_word_embeddings=False)
    fill(m, 104, post_norm=1.2)
    facts = metadata(m.config, 500000, **{
        "attention.sliding_window": 8,
        "attention.sliding_window_pattern": [k == "sliding_attention" for k in kinds],
        "rope.scaling.type": "linear", "rope.scaling.factor": 4.0})
    return Tiny("olmo2", "window 8 by a list of layers; linear factor 4 on global layers only", m, facts,
                tensors_of(m, POST_NORMS, False), byte_level_vocabulary(**OLMO))


def granite():
    m = made("Granite", hidden_size=64, intermediate_size=160, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, rms_norm_eps=1e-5, rope_parameters=rope(10000.0), tie_word_embeddings=True,
             embedding_multiplier=6.0, residual_multiplier=0.6, attention_multiplier=0.15, logits_scaling=0.9,
             attention_bias=False, mlp_bias=False)
    fill(m, 105, tied=True)
    facts = metadata(m.config, 10000, **{"rope.dimension_count": 16, "vocab_size": VOCABULARY, "attention.scale": 0.15,
                                         "embedding_scale": 6.0, "residual_scale": 0.6, "logit_scale": 0.9})
    return Tiny("granite", "embedding times 6, branches times 0.6, scores times 0.15, logits divided by 0.9", m, facts,
                tensors_of(m, PRE_NORMS, True, adjacent=(4, 2)),
                byte_level_vocabulary("refact", "<|end_of_text|>", "<|end_of_text|>",
                                      ("<|start_of_role|>", "<|end_of_role|>")))


def smollm3():
    m = made("SmolLM3", hidden_size=64, intermediate_size=128, num_hidden_layers=5, num_attention_heads=4,
             num_key_value_heads=2, rms_norm_eps=1e-6, rope_parameters=rope(5000000.0), no_rope_layer_interval=4,
             use_sliding_window=False, attention_bias=False, mlp_bias=False, tie_word_embeddings=True)
    fill(m, 106, tied=True, sharpen=1.6)
    facts = metadata(m.config, 5000000, **{"rope.dimension_count": 16, "vocab_size": VOCABULARY})
    return Tiny("smollm3", "the fourth of five layers does not rotate", m, facts,
                tensors_of(m, PRE_NORMS, True, adjacent=(4, 2)),
                byte_level_vocabulary("smaug-bpe", "<|begin_of_text|>", "<|im_end|>", ("<|im_start|>",)))


def phi3_window():
    m = made("Phi3", hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, rms_norm_eps=1e-5, rope_parameters=rope(10000.0), sliding_window=8,
             tie_word_embeddings=False)
    fill(m, 107)
    facts = metadata(m.config, 10000, **{"rope.dimension_count": 16, "rope.scaling.original_context_length": CONTEXT,
                                         "attention.sliding_window": 8})
    return Tiny("phi3", "every layer sees a window of 8", m, facts, tensors_of(m, PRE_NORMS, False),
                scored_vocabulary(["<unk>", "<s>", "</s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"], True))


def mixtral():
    m = made("Mixtral", hidden_size=64, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, rms_norm_eps=1e-5, rope_parameters=rope(10000.0), sliding_window=None,
             num_local_experts=6, num_experts_per_tok=2, tie_word_embeddings=False, experts_implementation="eager")
    fill(m, 108)
    facts = metadata(m.config, 10000, **{"rope.dimension_count": 16, "vocab_size": VOCABULARY,
                                         "expert_count": 6, "expert_used_count": 2})
    return Tiny("llama", "2 of 6 experts in every layer, weights renormalised", m, facts,
                tensors_of(m, PRE_NORMS, False, adjacent=(4, 2)),
                scored_vocabulary(["<unk>", "<s>", "</s>"], True))


FAMILIES = {"gemma": gemma, "gemma2": gemma2, "olmo2": olmo2, "olmo3": olmo3, "granite": granite,
            "smollm3": smollm3, "phi3-window": phi3_window, "mixtral": mixtral}


# ---------------------------------------------------------------- GGUF

def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def kind_of(value):
    """(number of the type, its encoder)"""
    if isinstance(value, bool):
        return 7, lambda v: struct.pack("<B", v)
    if isinstance(value, int):
        return 4, lambda v: struct.pack("<I", v)
    if isinstance(value, float):
        return 6, lambda v: struct.pack("<f", v)
    return 8, text


def entry(key, value):
    if not isinstance(value, list):
        number, encode = kind_of(value)
        return text(key) + struct.pack("<I", number) + encode(value)
    number, encode = kind_of(value[0])
    if number == 4:
        number, encode = 5, lambda v: struct.pack("<i", v)
    return text(key) + struct.pack("<IIQ", 9, number, len(value)) + b"".join(map(encode, value))


def write_gguf(path, tiny, name):
    entries = {"general.architecture": tiny.architecture, "general.type": "model", "general.name": name,
               "general.file_type": 0}
    entries |= {f"{tiny.architecture}.{key}": value for key, value in tiny.metadata.items()} | tiny.vocabulary
    head, body = [], bytearray()
    for key, t in tiny.tensors.items():
        dims = t.shape[::-1]
        head.append(text(key) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
                    + struct.pack("<IQ", 0, len(body)))
        body += t.detach().numpy().astype("<f4").tobytes()
        body += bytes(-len(body) % 32)
    out = b"GGUF" + struct.pack("<IQQ", 3, len(head), len(entries))
    out += b"".join(entry(k, v) for k, v in entries.items()) + b"".join(head)
    path.write_bytes(out + bytes(-len(out) % 32) + body)


# ---------------------------------------------------------------- expected values

def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].numpy()


def greedy_of(model, ids):
    """(ids, margins): what follows, token by token, without a near tie; None if there is one."""
    out, margins = [], []
    for _ in range(GREEDY):
        row = logits_of(model, ids + out)[-1]
        second, first = np.sort(row)[-2:]
        if first - second < MARGIN:
            return None
        out.append(int(row.argmax()))
        margins.append(float(first - second))
    return (out, margins) if len(set(out)) >= 10 else None


def prompt_of(tiny):
    bos = tiny.vocabulary["tokenizer.ggml.bos_token_id"]
    for seed in range(200):
        ids = [bos, *np.random.default_rng([9001, seed]).integers(0, VOCABULARY, TOKENS - 1).tolist()]
        found = greedy_of(tiny.model, ids[:PROMPT])
        if found:
            return ids, *found
    raise ValueError("every prompt has a near tie; change the seed of the weights")


def six(numbers):
    return [float(f"{float(n):.6g}") for n in numbers]


def second_engine(program, file, ids, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows")
        subprocess.run([program, "--model", file, "--out", rows, *arguments], check=True, text=True,
                       input=f"feed 0 {len(ids)} {' '.join(map(str, ids))}\n", capture_output=True)
        return np.fromfile(rows, np.float32).reshape(len(ids), -1)


def write_expected(path, tiny, second):
    ids, greedy, margins = prompt_of(tiny)
    rows = logits_of(tiny.model, ids)
    then = np.random.default_rng([9002, len(tiny.feature)]).integers(0, VOCABULARY, 12).tolist()
    again = logits_of(tiny.model, ids[:KEEP] + then)
    wide = rows.astype(np.float64)
    top = wide.max(axis=1)
    log_sum = top + np.log(np.exp(wide - top[:, None]).sum(axis=1))
    exact = logits_of(tiny.model.double(), ids)
    half = 0.0
    print(f"{path.parent.name}: deviation {rows.std():.2f}, margin {min(margins):.3f}, from float64 "
          f"{np.abs(rows - exact).max():.1e}", end="")
    if second:
        other = second_engine(second, path.with_name("model.gguf"), ids)
        half = np.abs(second_engine(second, path.with_name("model.gguf"), ids, "--kv", "f16") - other).max()
        print(f", second engine {np.abs(rows - other).max():.1e}, its f16 cache {half:.1e}", end="")
    print(f", {path.with_name('model.gguf').stat().st_size} bytes")
    value = {
        "arch": tiny.architecture, "feature": tiny.feature, "n_vocab": VOCABULARY, "tokens": ids,
        "positions_checked": POSITIONS, "logits": [six(rows[p]) for p in POSITIONS],
        "nll": six(log_sum[i] - wide[i, ids[i + 1]] for i in range(TOKENS - 1)),
        "greedy": {"prompt_length": PROMPT, "ids": greedy, "margins": six(margins)},
        "split_prefill": {"chunks": CHUNKS, "expect": "same logits as one prefill"},
        "rewind": {"keep": KEEP, "then": then, "positions": [KEEP, KEEP + len(then) - 1],
                   "logits": [six(again[KEEP]), six(again[-1])], "how": "truncate the cache"},
        "tolerance": {"logits_abs": 1e-3, "nll_abs": 5e-4,
                      "f16_cache_logits_abs": max(0.02, float(f"{4 * half:.3g}")), "greedy": "exact"},
    }
    lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(FAMILIES))
    parser.add_argument("--second")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name in arguments.only.split(","):
        tiny = FAMILIES[name]()
        folder = arguments.out / name
        folder.mkdir(parents=True, exist_ok=True)
        write_gguf(folder / "model.gguf", tiny, f"tiny random {name}")
        write_expected(folder / "expected.json", tiny, arguments.second)


if __name__ == "__main__":
    main()
