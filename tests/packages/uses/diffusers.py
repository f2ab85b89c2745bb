"""Two U-Nets, an autoencoder, schedulers, a pipeline and files of diffusers."""

import tempfile

import numpy as np
import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    UNet2DConditionModel,
    UNet2DModel,
)
from recorded import check, draw, fill

sizes = {"sample_size": 8, "block_out_channels": (32, 64), "layers_per_block": 1}
x = draw("x", 1, 3, 8, 8)
with torch.no_grad():
    unet = fill(
        UNet2DModel(
            **sizes, down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D")
        )
    )
    check("unet", unet(x, 10).sample)
    with tempfile.TemporaryDirectory() as folder:
        unet.save_pretrained(folder)
        again = UNet2DModel.from_pretrained(folder).eval()
        assert torch.allclose(again(x, 10).sample, unet(x, 10).sample, atol=1e-5)
    conditional = UNet2DConditionModel(
        **sizes,
        cross_attention_dim=16,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    check("conditional", fill(conditional)(draw("z", 1, 4, 8, 8), 10, draw("text", 1, 5, 16)).sample)
    down, up = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
    vae = fill(AutoencoderKL(3, 3, down, up, (32, 32), latent_channels=4, norm_num_groups=8))
    check("autoencoder", vae.decode(vae.encode(x).latent_dist.mode()).sample)
    for kind in (DDIMScheduler, EulerDiscreteScheduler, DPMSolverMultistepScheduler):
        scheduler, state = kind(num_train_timesteps=100), x
        scheduler.set_timesteps(5)
        for t in scheduler.timesteps:
            state = scheduler.step(scheduler.scale_model_input(state, t) * 0.1, t, state).prev_sample
        check(kind.__name__, state)
    pipeline = DDPMPipeline(unet, DDPMScheduler(num_train_timesteps=4))
    pipeline.set_progress_bar_config(disable=True)
    images = pipeline(num_inference_steps=2, output_type="np").images
    assert images.shape == (1, 8, 8, 3) and np.isfinite(images).all()
