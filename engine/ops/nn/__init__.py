"""The ops of networks that no heavier family owns: tables of vectors, images, paddings.

Files with a leading underscore hold the arithmetic over arrays that the ops of a family share.
"""

from engine.ops.nn import bags, embedding, fake_quantize, interpolation, padding, resample, vision, weight_norm  # noqa: F401
