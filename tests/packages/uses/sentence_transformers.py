"""Sentences embedded by a small BERT with mean pooling; similarity; files."""

import tempfile
from pathlib import Path

import torch
from recorded import check, fill
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, BertModel, BertTokenizerFast

with tempfile.TemporaryDirectory() as folder:
    words = Path(folder) / "vocab.txt"
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "a", "b"]))
    BertTokenizerFast(str(words)).save_pretrained(folder)
    config = BertConfig(vocab_size=9, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    fill(BertModel(config)).save_pretrained(folder)
    model = SentenceTransformer(modules=[Transformer(folder), Pooling(16), Normalize()], device="cpu")
    found = model.encode(["hello world", "a b a", "hello"], convert_to_tensor=True)
    check("embeddings", found)
    similar = util.cos_sim(found, found)
    assert torch.allclose(similar.diagonal(), torch.ones(3)) and torch.equal(similar, similar.T)
    model.save(f"{folder}/saved")
    again = SentenceTransformer(f"{folder}/saved", device="cpu")
    assert torch.allclose(again.encode(["hello world"], convert_to_tensor=True), found[:1], atol=1e-6)
