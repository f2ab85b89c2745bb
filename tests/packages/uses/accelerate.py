"""A training loop prepared by Accelerator, and a model without memory that is filled from a file."""

import tempfile

import torch
from accelerate import Accelerator, init_empty_weights, load_checkpoint_and_dispatch
from recorded import check, draw, fill
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = fill(torch.nn.Linear(4, 1)).train()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model, optimizer, data = accelerator.prepare(
    model, optimizer, DataLoader(TensorDataset(draw("x", 16, 4)), batch_size=4)
)
for (batch,) in data:
    with accelerator.accumulate(model):
        accelerator.backward(model(batch).square().mean())
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
plain = accelerator.unwrap_model(model)
check("weights", plain.weight)
with init_empty_weights():
    empty = torch.nn.Sequential(torch.nn.Linear(4, 1))
    huge = torch.nn.Linear(10**5, 10**4)
assert huge.weight.is_meta and huge.weight.shape == (10**4, 10**5)
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_model(torch.nn.Sequential(plain), folder)
    filled = load_checkpoint_and_dispatch(empty, folder, device_map={"": "cpu"})
    assert torch.equal(filled[0].weight, plain.weight)
