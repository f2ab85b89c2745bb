"""Calls of ops at shapes drawn at random from the kinds that published models use, for `cliffs`.

A case is a text of torch's names and what it reads: tensors (type and shape) and modules.  It needs no library, so that
each side makes its own tensors of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

MOST = 4_000_000  # elements of one tensor at most, so that a row takes milliseconds

IMAGES = (  # channels and side: classifiers, detectors, generators, small images
    *((3, 224), (64, 112), (64, 56), (128, 28), (256, 14), (512, 7), (256, 56), (512, 28), (1024, 14), (2048, 7)),
    *((32, 112), (96, 56), (144, 56), (192, 28), (384, 14), (576, 14), (960, 7), (1280, 7), (40, 28), (112, 14)),
    *((64, 35), (192, 35), (288, 35), (768, 17), (728, 19), (96, 54), (24, 56), (116, 28), (232, 14), (464, 7)),
    *((1, 28), (3, 32), (16, 32), (32, 32), (64, 32), (32, 16), (64, 16), (64, 8), (128, 8), (512, 4), (32, 13)),
    *((256, 13), (512, 13), (64, 64), (128, 64), (320, 32), (256, 32), (32, 128), (64, 128), (3, 256), (16, 256)),
)
SIGNALS = (  # channels and length: speech, music, text as channels
    *((1, 16000), (1, 8000), (32, 4000), (64, 1000), (64, 500), (128, 250), (256, 125), (512, 100), (512, 1600)),
    *((80, 400), (80, 200), (80, 3000), (128, 200), (256, 200), (40, 100), (384, 300), (1536, 200), (64, 64)),
    *((192, 100), (30, 20), (16, 1024), (48, 2000), (8, 4096), (64, 11000)),
)
TOKENS = (  # length and width
    *((128, 768), (512, 768), (50, 384), (197, 192), (197, 768), (50, 768), (77, 512), (128, 312), (128, 128)),
    *(
        (256, 64),
        (64, 256),
        (49, 384),
        (196, 96),
        (784, 96),
        (3136, 96),
        (1500, 384),
        (32, 1024),
        (100, 256),
        (35, 200),
    ),
)
VIDEOS = ((3, 8, 56), (24, 8, 28), (48, 8, 28), (64, 8, 28), (96, 4, 14), (192, 4, 14), (32, 16, 16), (1, 16, 32))
ROWS = ((128, 10), (64, 1000), (8, 256), (256, 64), (1, 512), (32, 128), (1000, 4), (4096, 3), (2048, 16), (16, 4096))


@dataclass(frozen=True)
class Case:
    """A call: its text, the tensors ("f:2,3", "i10:4") and modules that the text reads, whether it has gradients."""

    op: str
    text: str
    tensors: dict[str, str]
    modules: dict[str, str]
    gradients: bool

    @property
    def name(self) -> str:
        """The call and its shapes, in one line."""
        shapes = ", ".join(f"{name} {value.partition(':')[2]}" for name, value in self.tensors.items())
        return f"{self.text}; {', '.join(self.modules.values())}{'; ' if self.modules else ''}{shapes}"


Draw = Callable[[Random], Case]
CASES: dict[str, Draw] = {}


def image(r: Random, most: int = MOST) -> tuple[int, int, int, int]:
    """Draw (N, C, H, W)."""
    channels, side = r.choice(IMAGES)
    count = r.choice([n for n in (1, 1, 1, 2, 4, 8, 16) if n * channels * side * side <= most] or [1])
    return count, channels, side, side


def signal(r: Random) -> tuple[int, int, int]:
    """Draw (N, C, L)."""
    channels, length = r.choice(SIGNALS)
    return r.choice([n for n in (1, 1, 2, 4, 16) if n * channels * length <= MOST]), channels, length


def tokens(r: Random) -> tuple[int, int, int]:
    """Draw (N, L, C)."""
    length, width = r.choice(TOKENS)
    return r.choice([n for n in (1, 1, 2, 8, 16) if n * length * width <= MOST]), length, width


def video(r: Random) -> tuple[int, int, int, int, int]:
    """Draw (N, C, T, H, W)."""
    channels, frames, side = r.choice(VIDEOS)
    return r.choice((1, 1, 2)), channels, frames, side, side


def rows(r: Random) -> tuple[int, ...]:
    """Draw (N, C)."""
    return r.choice(ROWS)


def anything(r: Random) -> tuple[int, ...]:
    """Draw a shape of any of the kinds."""
    return r.choice((image, image, signal, tokens, tokens, video, rows))(r)


def floats(*shape: int) -> str:
    """A tensor of normal numbers."""
    return "f:" + ",".join(map(str, shape))


def integers(below: int, *shape: int) -> str:
    """A tensor of integers from 0."""
    return f"i{below}:" + ",".join(map(str, shape))


def case(op: str, text: str, gradients: bool = True, modules: dict[str, str] | None = None, **tensors: str) -> Case:
    """Return the case."""
    return Case(op, text, tensors, modules or {}, gradients)


def drawn(function: Callable[[Random], Case]) -> Callable[[Random], Case]:
    """Register a function that draws a case, under its own name."""
    CASES[function.__name__] = function
    return function


def of_one(name: str, text: str, shape: Callable[[Random], tuple[int, ...]] = anything, **more: bool | str) -> None:
    """Register a call of one tensor x; `more`: kind of its numbers, gradients."""
    kind, gradients = str(more.get("kind", "f")), bool(more.get("gradients", True))
    CASES[name] = lambda r: case(name, text, gradients, x=f"{kind}:" + ",".join(map(str, shape(r))))


def even(shape: tuple[int, ...], by: int = 2) -> tuple[int, ...]:
    """Return the shape with channels and sides made divisible by `by` (sides by 2)."""
    count, channels, *sides = shape
    return count, -(-channels // by) * by, *(-(-side // 2) * 2 for side in sides)


def wide_image(r: Random) -> tuple[int, ...]:
    """Draw (N, C, H, W) of four pixels a side or more."""
    return next(shape for shape in iter(lambda: image(r), None) if shape[-1] >= 4)


def small_image(r: Random) -> tuple[int, ...]:
    """Draw (N, C, H, W) of a million elements at most, for what returns more than it takes."""
    return image(r, 1_000_000)


def smaller_image(r: Random) -> tuple[int, ...]:
    """Draw (N, C, H, W) of half a million elements at most, for what returns or computes much more than it takes."""
    return image(r, 500_000)


def even_image(r: Random) -> tuple[int, ...]:
    """Draw (N, C, H, W) with an even number of channels and sides."""
    return even(image(r))


def image_of_fours(r: Random) -> tuple[int, ...]:
    """Draw (N, C, H, W) with channels in fours and even sides."""
    return even(image(r), 4)


def of_three_dims(r: Random) -> tuple[int, ...]:
    """Draw a shape of three dims or more."""
    return r.choice((image, tokens, signal))(r)


def scores(r: Random) -> tuple[int, ...]:
    """Draw (N, classes)."""
    return r.choice(((64, 1000), (1, 8400), (1, 50257), (16, 128)))


def points(r: Random) -> tuple[int, ...]:
    """Draw (N, D) of which all pairs are made."""
    return r.choice(((256, 64), (2048, 16), (4096, 3), (64, 300), (900, 4)))


# --- ops of one tensor

UNARY = "abs exp log1p sin cos tanh sigmoid erf sqrt rsqrt log square floor round sign reciprocal expm1 atan sinh asinh"
for _name in UNARY.split():
    of_one(_name, f"t.{_name}(x)", kind="p" if _name in ("sqrt", "rsqrt", "log", "log1p", "reciprocal") else "f")
for (
    _name
) in "relu relu6 gelu silu mish hardswish hardsigmoid elu selu celu softplus softsign logsigmoid tanhshrink".split():
    of_one(_name, f"F.{_name}(x)")
for _name in "erfinv lgamma digamma i0 acos asin logit erfc atanh ndtri".split():
    of_one(_name, f"t.special.{_name}(x)" if _name == "ndtri" else f"t.{_name}(x)", kind="p")
for _name, _text, _shape in (
    ("amax over pixels", "t.amax(x, (2, 3))", image),
    ("mean over pixels", "x.mean((2, 3))", image),
    ("mean over channels", "x.mean(1, keepdim=True)", image),
    ("max over channels", "t.max(x, 1)[0]", image),
    ("std over pixels", "x.std((2, 3))", image),
    ("var_mean over channels", "t.var_mean(x, 1)[0]", image),
    ("sum of one dim", "x.sum(1)", anything),
    ("mean of the last dim", "x.mean(-1)", anything),
    ("var of the last dim", "x.var(-1)", anything),
    ("amax of the last dim", "x.amax(-1)", anything),
    ("max of the last dim", "x.max(-1)[0]", anything),
    ("prod of the last dim", "x.prod(-1)", anything),
    ("norm of the last dim", "x.norm(dim=-1)", anything),
    ("norm of all", "x.norm()", anything),
    ("normalize", "F.normalize(x, dim=1)", anything),
    ("logsumexp", "t.logsumexp(x, -1)", anything),
    ("softmax of the last dim", "t.softmax(x, -1)", anything),
    ("softmax over channels", "t.softmax(x, 1)", image),
    ("log_softmax", "F.log_softmax(x, -1)", anything),
    ("cumsum", "t.cumsum(x, 1)", anything),
    ("cumprod", "t.cumprod(x, -1)", anything),
    ("cummax", "t.cummax(x, -1)[0]", tokens),
    ("flip", "t.flip(x, (-1,))", anything),
    ("flip of images", "t.flip(x, (2, 3))", image),
    ("roll", "t.roll(x, (1, 2), (1, 2))", of_three_dims),
    ("rot90", "t.rot90(x, 1, (2, 3))", image),
    ("transpose", "x.transpose(1, -1).contiguous()", of_three_dims),
    ("permute of images", "x.permute(0, 2, 3, 1).contiguous()", image),
    ("channel shuffle", "x.view(x.shape[0], 2, -1, *x.shape[2:]).transpose(1, 2).reshape(x.shape)", image_of_fours),
    ("pixel_shuffle", "F.pixel_shuffle(x, 2)", image_of_fours),
    ("pixel_unshuffle", "F.pixel_unshuffle(x, 2)", image_of_fours),
    ("unfold", "F.unfold(x, 3, padding=1)", smaller_image),
    ("frames", "x.unfold(-1, 16, 8).contiguous()", signal),
    ("reflect pad", "F.pad(x, (1, 1, 1, 1), 'reflect')", image),
    ("replicate pad", "F.pad(x, (1, 1, 1, 1), 'replicate')", image),
    ("circular pad", "F.pad(x, (1, 1, 1, 1), 'circular')", image),
    ("constant pad", "F.pad(x, (1, 1, 1, 1))", image),
    ("reflect pad of signals", "F.pad(x, (8, 8), 'reflect')", signal),
    ("replicate pad of signals", "F.pad(x, (3, 0), 'replicate')", signal),
    ("cat of channels", "t.cat((x, x), 1)", anything),
    ("stack", "t.stack((x, x), -1)", anything),
    ("chunk and gate", "(lambda a, b: a * t.sigmoid(b))(*x.chunk(2, 1))", even_image),
    ("glu", "F.glu(x, 1)", even_image),
    ("repeat", "x.repeat(1, 2, 1)", tokens),
    ("repeat_interleave", "x.repeat_interleave(2, 1)", anything),
    ("tile of slices", "x[..., ::2].contiguous()", anything),
    ("tril", "t.tril(x)", tokens),
    ("masked_fill", "x.masked_fill(x > 0, -1e9)", anything),
    ("where", "t.where(x > 0, x, x * 0.1)", anything),
    ("clamp", "x.clamp(-1, 1)", anything),
    ("power", "x ** 3", anything),
    ("layer scale", "x * x[:1, :1]", tokens),
    ("product of middle dims", "x * x.mean((2, 3), keepdim=True)", image),
    ("difference of rows", "x[:, 1:] - x[:, :-1]", tokens),
    ("differences of all pairs", "x[:, :, None] - x[:, None]", points),
    ("extremes of all pairs", "t.minimum(x[:, :, None], x[:, None])", points),
    ("where of all pairs", "t.where(x[:, :, None] > x[:, None], x[:, :, None], x[:, None])", points),
    ("cosines of all pairs", "F.cosine_similarity(x[:, None], x[None, :64], dim=-1)", points),
    ("distances of all pairs", "t.cdist(x, x[:64] + 1)", points),
    ("remainder", "x % 0.7", anything),
    ("fmod", "t.fmod(x, 0.7)", anything),
    ("frac", "x.frac()", anything),
    ("hypot", "t.hypot(x, x + 1)", anything),
    ("copysign", "t.copysign(x, x + 1)", anything),
    ("nan_to_num", "t.nan_to_num(x)", anything),
    ("radians", "t.deg2rad(x)", anything),
    ("smooth_l1_loss of each", "F.smooth_l1_loss(x, x + 1, reduction='none')", anything),
    ("huber_loss of each", "F.huber_loss(x, x + 1, reduction='none')", anything),
    ("mse_loss of each", "F.mse_loss(x, x + 1, reduction='none')", anything),
    ("roll of the last dim", "t.roll(x, 3, -1)", anything),
    ("roll of all", "t.roll(x, 3)", anything),
    ("cat of other sizes", "t.cat((x[:, :1], x), 1)", anything),
    ("clone of a slice", "x[:, 1:].clone()", anything),
    ("copy of narrower rows", "x[..., 1:].contiguous()", anything),
    ("outer product", "x[:, :, None] * x[:, None]", rows),
    ("topk", "t.topk(x, 5, -1)[0]", scores),
    ("sort", "t.sort(x, -1)[0]", scores),
    ("median", "t.median(x, -1)[0]", scores),
    ("max_pool2d, 2", "F.max_pool2d(x, 2)", wide_image),
    ("max_pool2d, 3 in steps of 2", "F.max_pool2d(x, 3, 2, 1)", wide_image),
    ("max_pool2d, 3 in steps of 1", "F.max_pool2d(x, 3, 1, 1)", wide_image),
    ("max_pool2d, 5", "F.max_pool2d(x, 5, 1, 2)", wide_image),
    ("avg_pool2d, 2", "F.avg_pool2d(x, 2)", wide_image),
    ("avg_pool2d, 3 in steps of 1", "F.avg_pool2d(x, 3, 1, 1)", wide_image),
    ("adaptive_avg_pool2d", "F.adaptive_avg_pool2d(x, 1)", image),
    ("adaptive_avg_pool2d, 7", "F.adaptive_avg_pool2d(x, 7)", image),
    ("adaptive_max_pool2d", "F.adaptive_max_pool2d(x, 1)", image),
    ("max_pool1d, 2", "F.max_pool1d(x, 2)", signal),
    ("max_pool1d, 3 in steps of 1", "F.max_pool1d(x, 3, 1, 1)", signal),
    ("avg_pool1d", "F.avg_pool1d(x, 4)", signal),
    ("adaptive_avg_pool1d", "F.adaptive_avg_pool1d(x, 10)", signal),
    ("adaptive_max_pool1d", "F.adaptive_max_pool1d(x, 1)", signal),
    ("lp_pool1d", "F.lp_pool1d(x, 2, 4)", signal),
    ("max_pool3d", "F.max_pool3d(x, 2)", video),
    ("avg_pool3d", "F.avg_pool3d(x, 2)", video),
    ("adaptive_avg_pool3d", "F.adaptive_avg_pool3d(x, 1)", video),
    ("nearest, twice", "F.interpolate(x, scale_factor=2)", small_image),
    ("bilinear, twice", "F.interpolate(x, scale_factor=2, mode='bilinear')", small_image),
    ("bilinear, aligned", "F.interpolate(x, (40, 40), mode='bilinear', align_corners=True)", small_image),
    ("bicubic, twice", "F.interpolate(x, scale_factor=2, mode='bicubic')", small_image),
    ("bilinear, half", "F.interpolate(x, scale_factor=0.5, mode='bilinear')", wide_image),
    ("antialiased, half", "F.interpolate(x, scale_factor=0.5, mode='bilinear', antialias=True)", wide_image),
    ("nearest of signals", "F.interpolate(x, scale_factor=2)", signal),
    ("linear of signals", "F.interpolate(x, scale_factor=2, mode='linear')", signal),
    ("trilinear", "F.interpolate(x, scale_factor=2, mode='trilinear')", video),
    ("rfft", "t.fft.rfft(x).abs()", signal),
    ("fft2", "t.fft.fft2(x).real", small_image),
    ("rfft2", "t.fft.rfft2(x).abs()", small_image),
    ("irfft of rfft", "t.fft.irfft(t.fft.rfft(x))", signal),
    ("fft of tokens", "t.fft.fft(t.fft.fft(x, dim=-1), dim=-2).real", tokens),
    ("local_response_norm", "F.local_response_norm(x, 5)", smaller_image),
    ("dropout", "F.dropout(x, 0.1)", anything),
    ("dropout of channels", "F.dropout2d(x, 0.1)", image),
    ("bfloat16 and back", "x.bfloat16().float()", anything),
    ("float16 and back", "x.half().float()", anything),
):
    of_one(_name, _text, _shape)
for _name, _text in (
    ("argmax", "x.argmax(-1)"),
    ("argsort", "x.argsort(-1)"),
    ("comparison", "(x > 0).float()"),
    ("any of rows", "(x > 3).any(-1)"),
    ("nonzero", "(x > 1).nonzero()"),
    ("masked_select", "x[x > 1]"),
    ("isnan", "x.isnan().any()"),
    ("bincount of floats", "t.histc(x, 20)"),
    ("bytes to floats", "x.byte().float().div(255)"),
    ("normal numbers", "t.randn_like(x)"),
    ("bernoulli", "t.bernoulli(x.sigmoid())"),
    ("to int and back", "x.long().float()"),
    ("floor_divide", "x // 0.3"),
    ("write to a slice", "t.empty_like(x)[..., 1:].copy_(x[..., :-1])"),
    ("bucketize", "t.bucketize(x, t.linspace(-2, 2, 30))"),
    ("cat of the last dim", "t.cat((x, x[..., :3]), -1)"),
    ("linspace", "t.linspace(-1, 1, x.shape[-1])"),
    ("comparison of all pairs", "x.reshape(-1)[:900, None] > x.reshape(-1)[:900]"),
    ("tile of few elements", "x.reshape(-1)[:8].repeat(x.numel() // 8)"),
    ("places of a triangle", "t.tril_indices(x.shape[-1], x.shape[-1])"),
):
    of_one(_name, _text, anything, gradients=False)
of_one("bits of integers", "(x & 7) ^ (x | 3)", kind="i100", gradients=False)
