"""Metrics of classification, regression, images and sound."""

import torch
import torchmetrics
from recorded import check, draw
from torchmetrics.audio import ScaleInvariantSignalDistortionRatio, SignalDistortionRatio
from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure

chances, truth = (draw("chances", 40, 5) * 3).softmax(-1), (draw("truth", 40) * 5).long()
five = {"task": "multiclass", "num_classes": 5}
check("accuracy", torchmetrics.Accuracy(**five)(chances, truth))
check("f1", torchmetrics.F1Score(**five, average="macro")(chances, truth))
check("auroc", torchmetrics.AUROC(**five)(chances, truth))
check("average precision", torchmetrics.AveragePrecision(**five)(chances, truth))
matrix = torchmetrics.ConfusionMatrix(**five)
for part in (slice(0, 15), slice(15, 40)):
    matrix.update(chances[part], truth[part])
assert int(matrix.compute().sum()) == 40 and torch.equal(matrix.compute().sum(1), torch.bincount(truth, minlength=5))
a, b = draw("a", 9), draw("b", 9)
check("regression", [torchmetrics.PearsonCorrCoef()(a, b), torchmetrics.SpearmanCorrCoef()(a, b)])
one, two = draw("one", 1, 3, 32, 32), draw("two", 1, 3, 32, 32)
check(
    "images",
    [StructuralSimilarityIndexMeasure(data_range=1.0)(one, two), PeakSignalNoiseRatio(data_range=1.0)(one, two)],
)
clean = draw("clean", 1, 2000) - 0.5
noisy = clean + 0.1 * (draw("noise", 1, 2000) - 0.5)
check("sound", [ScaleInvariantSignalDistortionRatio()(noisy, clean), SignalDistortionRatio()(noisy, clean)], 1e-3)
