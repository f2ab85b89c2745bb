"""A CLIP of open_clip: text and image features, tokens, the loss."""

import open_clip
from open_clip.loss import ClipLoss
from recorded import check, draw, fill

assert "ViT-B-32" in open_clip.list_models()
vision = {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8}
text = {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2}
model = fill(open_clip.CLIP(embed_dim=32, vision_cfg=vision, text_cfg=text))
tokens = open_clip.get_tokenizer("ViT-B-32")(["a diagram", "a dog"])
assert tokens.shape == (2, 77) and tokens[0, :4].tolist() == [49406, 320, 22697, 49407]
images, words = model.encode_image(draw("image", 2, 3, 32, 32), True), model.encode_text(tokens, True)
check("features", [images, words])
loss = ClipLoss()(images, words, model.logit_scale.exp())
loss.backward()
check("loss", [loss, model.visual.conv1.weight.grad, model.token_embedding.weight.grad[320]], 1e-3)
