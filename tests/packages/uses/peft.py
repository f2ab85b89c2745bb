"""LoRA on a small GPT-2: a training step, files, merging."""

import copy
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from recorded import check, draw, fill
from transformers import GPT2Config, GPT2LMHeadModel

tokens = (draw("tokens", 2, 6) * 40).long()
base = fill(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16)))
original = copy.deepcopy(base)
plain = base(tokens).logits
model = get_peft_model(
    base, LoraConfig(r=2, lora_alpha=4, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
).eval()
assert torch.allclose(model(tokens).logits, plain, atol=1e-6)
trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
assert [name.rsplit(".", 3)[1] for name, _ in trained] == ["lora_A", "lora_B"]
with torch.no_grad():
    for name, p in trained:
        p.copy_(draw(name, *p.shape) - 0.5)
optimizer = torch.optim.SGD([p for _, p in trained], 0.1)
loss = model(tokens, labels=tokens).loss
loss.backward()
optimizer.step()
logits = model(tokens).logits
check("lora", [loss, logits])
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    again = PeftModel.from_pretrained(original, folder).eval()
    assert torch.allclose(again(tokens).logits, logits, atol=1e-6)
    merged = again.merge_and_unload()
    assert isinstance(merged, GPT2LMHeadModel) and torch.allclose(merged(tokens).logits, logits, atol=1e-5)
