"""The embedding network of facenet-pytorch, and its face detector with the weights that come with it."""

import torch
from facenet_pytorch import MTCNN, InceptionResnetV1
from recorded import check, draw, fill

with torch.no_grad():
    check("embedding", fill(InceptionResnetV1(pretrained=None))(draw("face", 1, 3, 160, 160) * 2 - 1))
detector = MTCNN(thresholds=[0.1, 0.1, 0.05], min_face_size=20)
noise = (draw("scene", 90, 110, 3) * 255).numpy().astype("uint8")
boxes, chances = detector.detect(noise)
assert boxes is None or (boxes.shape[1] == 4 and len(chances) == len(boxes))
check("first stage", detector.pnet(draw("scene", 3, 40, 50)[None] * 2 - 1), 1e-3)
check("last stage", detector.onet(draw("crop", 2, 3, 48, 48) * 2 - 1), 1e-3)
