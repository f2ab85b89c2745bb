"""As the use of pytorch_lightning, under its newer name, and a loop with Fabric."""

import csv
import tempfile
from pathlib import Path

import lightning
import lightning.pytorch as pl
import torch
from recorded import check, draw, fill
from torch.utils.data import DataLoader, TensorDataset


class Line(pl.LightningModule):
    def __init__(self, rate=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, 1)
        self.example_input_array = torch.zeros(2, 4)

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("validation", torch.nn.functional.mse_loss(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.rate)


x = draw("x", 16, 4)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
with tempfile.TemporaryDirectory() as folder:
    keep = pl.callbacks.ModelCheckpoint(folder, monitor="validation")
    trainer = pl.Trainer(
        max_epochs=4,
        accelerator="cpu",
        default_root_dir=folder,
        logger=pl.loggers.CSVLogger(folder),
        log_every_n_steps=1,
        enable_progress_bar=False,
        callbacks=[keep, pl.callbacks.EarlyStopping("validation")],
    )
    model = fill(Line()).train()
    trainer.fit(model, data, data)
    check("weights", [model.layer.weight, trainer.callback_metrics["validation"]])
    best = Line.load_from_checkpoint(keep.best_model_path)
    assert torch.equal(best.layer.weight, model.layer.weight) and best.hparams.rate == 0.1
    rows = list(csv.DictReader(next(Path(folder).rglob("metrics.csv")).open()))
    assert len([row for row in rows if row["loss"]]) == 16
    assert trainer.validate(model, data, verbose=False)[0]["validation"] < 0.2
summary = pl.utilities.model_summary.ModelSummary(model, max_depth=1)
assert summary.total_parameters == 5

fabric = lightning.Fabric(accelerator="cpu", devices=1)
fabric.launch()
network = fill(torch.nn.Linear(4, 1)).train()
network, optimizer = fabric.setup(network, torch.optim.Adam(network.parameters(), 0.01))
for _ in range(3):
    optimizer.zero_grad()
    fabric.backward(network(x).square().mean())
    optimizer.step()
check("fabric", network.weight)
