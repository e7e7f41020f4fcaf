#!/usr/bin/env python3
"""Writes the ids that SentencePiece gives for the texts of an existing case, with the vocabulary of a GGUF file.

Usage: scripts/make_unigram_cases.py VOCABULARY.gguf TEXTS.jsonl >OUT.jsonl   (needs the package sentencepiece)

The vocabulary (tokens, scores, kinds, character map, flags) is taken out of the file and given to
SentencePiece as a model of its own, so that its ids are independent of this project's code.
"""
import json
import struct
import sys
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def metadata(path):
    data, at, out = Path(path).read_bytes(), 24, {}

    def string(at):
        end = at + 8 + struct.unpack_from("<Q", data, at)[0]
        return data[at + 8:end], end

    def value(kind, at):
        if kind == 8:
            return string(at)
        if kind != 9:
            return struct.unpack_from("<" + SCALARS[kind], data, at)[0], at + struct.calcsize(SCALARS[kind])
        element, count = struct.unpack_from("<IQ", data, at)
        at += 12
        if element != 8:
            form = f"<{count}{SCALARS[element]}"
            return struct.unpack_from(form, data, at), at + struct.calcsize(form)
        texts = []
        for _ in range(count):
            text, at = string(at)
            texts.append(text)
        return texts, at

    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key, at = string(at)
        out[key.decode()], at = value(struct.unpack_from("<I", data, at)[0], at + 4)
    return {key.removeprefix("tokenizer.ggml."): v for key, v in out.items()}


def processor(meta):
    model = proto.ModelProto()
    model.trainer_spec.model_type = proto.TrainerSpec.UNIGRAM
    model.trainer_spec.unk_id = meta["unknown_token_id"]
    model.trainer_spec.vocab_size = len(meta["tokens"])
    model.normalizer_spec.precompiled_charsmap = bytes(meta["precompiled_charsmap"])
    model.normalizer_spec.add_dummy_prefix = meta["add_space_prefix"]
    model.normalizer_spec.remove_extra_whitespaces = meta["remove_extra_whitespaces"]
    model.normalizer_spec.escape_whitespaces = True
    for text, score, kind in zip(meta["tokens"], meta["scores"], meta["token_type"]):
        model.pieces.add(piece=text.decode(), score=score, type=kind)
    made = sentencepiece.SentencePieceProcessor()
    made.LoadFromSerializedProto(model.SerializeToString())
    return made


def main():
    made = processor(metadata(sys.argv[1]))
    for line in Path(sys.argv[2]).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        key = "text" if "text" in row else "bytes_hex"
        text = row["text"].encode() if key == "text" else bytes.fromhex(row[key])
        print(json.dumps({"name": row["name"], key: row[key], "ids": made.encode(text)}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
