"""BERT, GPT-2 and Llama of random weights: numbers, a training step, generation, files, the auto classes, Trainer."""

import os
import tempfile

import torch
import transformers
from recorded import check, draw, fill
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

transformers.logging.set_verbosity_error()
small = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
tokens = 3 + (draw("tokens", 2, 9) * 90).long()
mask = torch.ones(2, 9, dtype=torch.long)
mask[0, 6:] = 0

out = fill(BertModel(BertConfig(**small)))(tokens, attention_mask=mask)
check("bert", [out.last_hidden_state, out.pooler_output])
classifier = fill(BertForSequenceClassification(BertConfig(**small)))
out = classifier(tokens, attention_mask=mask, labels=torch.tensor([0, 1]))
out.loss.backward()
check("classifier", [out.loss, classifier.bert.encoder.layer[0].attention.self.query.weight.grad], 1e-3)

ends = {"bos_token_id": 1, "eos_token_id": 2}
gpt2 = fill(GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=64, **ends)))
check("gpt2", gpt2(tokens, labels=tokens).loss)
written = gpt2.generate(tokens, max_new_tokens=6, do_sample=False, pad_token_id=0)
logits = gpt2(written).logits
assert torch.equal(written[:, 9:], logits[:, 8:-1].argmax(-1)) or (written == 2).any()
torch.manual_seed(0)
drawn = gpt2.generate(tokens, max_new_tokens=5, do_sample=True, top_k=10, top_p=0.9, temperature=0.8, pad_token_id=0)
assert drawn.shape[0] == 2 and torch.equal(drawn[:, :9], tokens)

llama = LlamaForCausalLM(LlamaConfig(**small, num_key_value_heads=2))
frequencies = llama.model.rotary_emb.inv_freq.clone()  # a buffer that is computed, not saved
fill(llama).model.rotary_emb.inv_freq.copy_(frequencies)
out = llama(tokens, attention_mask=mask.flip(1))
check("llama", out.logits[:, 3:])
beams = llama.generate(tokens, max_new_tokens=4, num_beams=3, do_sample=False, pad_token_id=0)
assert torch.equal(beams[:, :9], tokens)
with tempfile.TemporaryDirectory() as folder:
    llama.save_pretrained(folder)
    assert "model.safetensors" in os.listdir(folder)
    assert AutoConfig.from_pretrained(folder).model_type == "llama"
    again = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert torch.allclose(again(tokens).logits, llama(tokens).logits, atol=1e-5)
    name = "dtype" if transformers.__version__ >= "4.56" else "torch_dtype"
    half = AutoModel.from_pretrained(folder, **{name: torch.bfloat16})
    assert next(half.parameters()).dtype == torch.bfloat16


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return {"input_ids": tokens[i % 2], "labels": torch.tensor(i % 2)}


model = BertForSequenceClassification(BertConfig(**small))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=6,
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        learning_rate=5e-3,
        logging_strategy="epoch",
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Tokens())
    assert trainer.train().global_step == 12
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert float(losses[-1]) < float(losses[0])
