"""Tokens per second of a language model, batch 1, greedy, with a cache of keys and values.

python -m benchmarks.generation [--model gpt2|llama] [--tokens 64] [--rounds 5] [--threads 2]
    [--peer-python PYTHON_WITH_TORCH] [--llama-python PYTHON_WITH_LLAMA_CPP_AND_GGUF] [--profile]

gpt2: 124 million parameters; llama: 1.1 billion, with the sizes of TinyLlama.  Weights are random, so what is said
means nothing; times do not depend on it.  Every side and type of weights has a process of its own, which makes the
model, reads a prompt of 32 tokens, and then makes `--tokens` tokens each time it is asked; rounds alternate.

- text: what `hub run --prompt` computes, of a GGUF file written here: float32, bfloat16, Q8_0, Q4_0
- engine, torch: the model written as users write it, in float32 and bfloat16
- llama-cpp (gpt2 alone): llama-cpp-python, on a GGUF file written by the package `gguf`

Printed: tokens per second by the clock, the median and the best round, and by processor time (which says more on a busy
machine); the ratio of text's time to each peer's in the same round; for text the seconds to the first token behind the
prompt, memory that is no file, and its time over the floor: bytes of weights a token over the bandwidth of a read of
memory, which `benchmarks.floor` measures before each round; the best of the rounds counts.
--profile: instead, where a token's time goes in the engine, by function.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows bfloat16 by its name then
import numpy as np

from benchmarks import floor

PROMPT = 32


@dataclass(frozen=True)
class Sizes:
    """Of a model: layers, heads, heads of keys, width, width of the feed-forward layer, tokens, positions."""

    layers: int
    heads: int
    shared: int
    width: int
    hidden: int
    words: int
    places: int


MODELS = {"gpt2": Sizes(12, 12, 12, 768, 3072, 50257, 1024), "llama": Sizes(22, 32, 4, 2048, 5632, 32000, 2048)}
TYPES = {"float32": "F32", "bfloat16": "BF16", "Q8_0": "Q8_0", "Q4_0": "Q4_0"}

CHILD = """
import json, sys, time
side, dtype, threads, tokens, profile = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "1"
name = sys.argv[6]
LAYERS, HEADS, SHARED, WIDTH, HIDDEN, WORDS, PLACES, PROMPT = map(int, sys.argv[7:15])
if side == "engine":
    import engine as torch
else:
    import torch
nn, F = torch.nn, torch.nn.functional
torch.set_num_threads(threads)
torch.manual_seed(0)

def drawn(layer):  # less time than the layers' own
    layer.weight.data.uniform_(-0.03, 0.03)
    if getattr(layer, "bias", None) is not None:
        layer.bias.data.zero_()

nn.Linear.reset_parameters = nn.Embedding.reset_parameters = drawn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, past):
        n, length, _ = x.shape
        q, k, v = (t.view(n, length, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for t in self.c_attn(self.ln_1(x)).split(WIDTH, dim=2))
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.c_proj(y.transpose(1, 2).reshape(n, length, WIDTH))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")), (k, v)

class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(PLACES, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids, past):
        begin = 0 if past is None else past[0][0].shape[2]
        x = self.wte(ids) + self.wpe(torch.arange(begin, begin + ids.shape[1]))
        kept = []
        for n, block in enumerate(self.h):
            x, now = block(x, None if past is None else past[n])
            kept.append(now)
        return self.head(self.ln_f(x[:, -1:])), kept

class LlamaBlock(nn.Module):
    def __init__(self):
        super().__init__()
        line = lambda a, b: nn.Linear(a, b, bias=False)
        size = WIDTH // HEADS
        self.n1, self.n2 = nn.RMSNorm(WIDTH, 1e-5), nn.RMSNorm(WIDTH, 1e-5)
        self.q, self.o = line(WIDTH, WIDTH), line(WIDTH, WIDTH)
        self.k, self.v = line(WIDTH, SHARED * size), line(WIDTH, SHARED * size)
        self.gate, self.up, self.down = line(WIDTH, HIDDEN), line(WIDTH, HIDDEN), line(HIDDEN, WIDTH)

    def forward(self, x, past, cosine, sine):
        n, length, _ = x.shape
        h = self.n1(x)
        q, k, v = (f(h).view(n, length, -1, WIDTH // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        half = cosine.shape[-1]
        turn = lambda t: torch.cat((t[..., :half] * cosine - t[..., half:] * sine,
                                    t[..., half:] * cosine + t[..., :half] * sine), dim=-1)
        q, k = turn(q), turn(k)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(n, length, WIDTH))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), (k, v)

class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.h, self.ln_f = nn.ModuleList([LlamaBlock() for _ in range(LAYERS)]), nn.RMSNorm(WIDTH, 1e-5)
        size = WIDTH // HEADS
        angles = torch.outer(torch.arange(PLACES).float(), 10000.0 ** (-torch.arange(0, size, 2).float() / size))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, ids, past):
        begin = 0 if past is None else past[0][0].shape[2]
        x, kept = self.wte(ids), []
        cosine, sine = self.cosine[begin:begin + ids.shape[1]], self.sine[begin:begin + ids.shape[1]]
        for n, block in enumerate(self.h):
            x, now = block(x, None if past is None else past[n], cosine, sine)
            kept.append(now)
        return self.head(self.ln_f(x[:, -1:])), kept

torch.set_default_dtype(getattr(torch, dtype))
model = {"gpt2": GPT2, "llama": Llama}[name]().eval().to(getattr(torch, dtype))
prompt = (torch.arange(PROMPT) * 1531 % WORDS).view(1, -1)

def generate(count):
    with torch.no_grad():
        scores, past = model(prompt, None)
        begun = time.perf_counter(), time.process_time()
        said = []
        for _ in range(count):
            token = scores[:, -1].argmax(-1, keepdim=True)
            said.append(token.item())
            scores, past = model(token, past)
        return [(b - a) / count for a, b in zip(begun, (time.perf_counter(), time.process_time()))]

generate(8)
if profile:
    import cProfile, pstats
    with cProfile.Profile() as seen:
        generate(tokens)
    pstats.Stats(seen).sort_stats("tottime").print_stats(25)
else:
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(generate(tokens)), flush=True)
"""

TEXT = """
import json, sys, time
path, threads, tokens, prompt, words = sys.argv[1], *map(int, sys.argv[2:6])
import engine
from engine.serialization.gguf import open_gguf
from hubcli.text import config, generation, weights
engine.set_num_threads(threads)
file = open_gguf(path)
sizes = config.of_gguf(file.metadata, words, path)
model = weights.network(sizes, {name: weights.of_gguf(one) for name, one in file.tensors.items()}, path)
given = [i * 1531 % words for i in range(prompt)]

def generate(count):
    begun = time.perf_counter()
    made = generation.generate(model, given, count + 1)
    next(made)
    before = time.perf_counter(), time.process_time()
    for _ in made:
        pass
    after = time.perf_counter(), time.process_time()
    with open("/proc/self/status") as status:
        memory = next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))
    return [*[(b - a) / count for a, b in zip(before, after)], before[0] - begun, memory]

generate(8)
print("ready", flush=True)
for _ in sys.stdin:
    print(json.dumps(generate(tokens)), flush=True)
"""

LLAMA = """
import json, sys, time
from llama_cpp import Llama
path, threads, tokens, prompt, words = sys.argv[1], *map(int, sys.argv[2:6])
model = Llama(path, n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False)
given = [i * 1531 % words for i in range(prompt)]

def generate(count):
    model.reset()
    model.eval(given)
    begun = time.perf_counter(), time.process_time()
    for _ in range(count):
        model.eval([model.sample(temp=0.0)])
    return [(b - a) / count for a, b in zip(begun, (time.perf_counter(), time.process_time()))]

generate(8)
print("ready", flush=True)
for _ in sys.stdin:
    print(json.dumps(generate(tokens)), flush=True)
"""

GGUF = """
import sys
import gguf, numpy as np
path, kind = sys.argv[1:3]
LAYERS, HEADS, _, WIDTH, _, WORDS, PLACES = map(int, sys.argv[3:10])
rng = np.random.default_rng(0)
w = gguf.GGUFWriter(path, "gpt2")
w.add_block_count(LAYERS); w.add_context_length(PLACES); w.add_embedding_length(WIDTH)
w.add_feed_forward_length(4 * WIDTH); w.add_head_count(HEADS); w.add_layer_norm_eps(1e-5)
w.add_tokenizer_model("gpt2"); w.add_tokenizer_pre("gpt-2")
w.add_token_list([f"t{i}" for i in range(WORDS)]); w.add_token_merges(["t 0"])
w.add_token_types([1] * WORDS); w.add_bos_token_id(0); w.add_eos_token_id(0)

def put(name, *shape):
    data = (rng.standard_normal(shape) * 0.02).astype(np.float32)
    if len(shape) > 1 and kind == "bfloat16":
        raw = gguf.quants.quantize(data, gguf.GGMLQuantizationType.BF16)
        w.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        w.add_tensor(name, data)

put("token_embd.weight", WORDS, WIDTH); put("position_embd.weight", PLACES, WIDTH)
put("output.weight", WORDS, WIDTH)
for name in ("output_norm.weight", "output_norm.bias"):
    put(name, WIDTH)
for n in range(LAYERS):
    for part, out, inside in (("attn_qkv", 3 * WIDTH, WIDTH), ("attn_output", WIDTH, WIDTH),
                              ("ffn_up", 4 * WIDTH, WIDTH), ("ffn_down", WIDTH, 4 * WIDTH)):
        put(f"blk.{n}.{part}.weight", out, inside); put(f"blk.{n}.{part}.bias", out)
    for part in ("attn_norm", "ffn_norm"):
        put(f"blk.{n}.{part}.weight", WIDTH); put(f"blk.{n}.{part}.bias", WIDTH)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
"""


class Side:
    """A contender in a process of its own."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
        )
        assert self.process.stdout is not None
        self.lives = self.process.stdout.readline().strip() == "ready"
        self.times: list[list[float]] = []

    def round(self) -> None:
        """Seconds a token, by the clock and of the processor."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.times.append(json.loads(self.process.stdout.readline()))


def write_model(path: Path, name: str, kind: str) -> int:
    """Write a GGUF file of a model with random weights of a type; return the bytes that a token reads of it."""
    from engine.serialization.gguf import GgufTensor, write_gguf
    from engine.serialization.gguf_blocks import TYPES as ELEMENTS
    from engine.serialization.gguf_blocks import quantized

    sizes, rng = MODELS[name], np.random.default_rng(0)
    some = rng.standard_normal(1 << 20, np.float32) * np.float32(0.02)
    element = ELEMENTS[kind]
    raw = quantized(element, some) if element.dense is None else some.astype(element.dense).view(np.uint8)
    tensors = {}

    def put(tensor: str, *shape: int) -> None:
        if len(shape) == 1:
            tensors[f"{tensor}.weight"] = np.ones(shape, np.float32)
        else:
            nbytes = shape[0] * shape[1] // element.values * element.bytes
            tensors[f"{tensor}.weight"] = GgufTensor(tensor, shape, kind, np.resize(raw, nbytes))

    width, shared = sizes.width, sizes.width // sizes.heads * sizes.shared
    put("token_embd", sizes.words, width)
    put("output_norm", width)
    if name == "gpt2":
        put("position_embd", sizes.places, width)
        layer = (("attn_qkv", 3 * width, width), ("attn_output", width, width))
    else:
        put("output", sizes.words, width)
        layer = (("attn_q", width, width), ("attn_k", shared, width), ("attn_v", shared, width))
        layer += (("attn_output", width, width), ("ffn_gate", sizes.hidden, width))
    for n in range(sizes.layers):
        for part, out, inside in (*layer, ("ffn_up", sizes.hidden, width), ("ffn_down", width, sizes.hidden)):
            put(f"blk.{n}.{part}", out, inside)
        put(f"blk.{n}.attn_norm", width)
        put(f"blk.{n}.ffn_norm", width)
    if name == "gpt2":
        for tensor in [one for one in tensors if "embd" not in one]:
            tensors[tensor.replace(".weight", ".bias")] = np.zeros(tensors[tensor].shape[0], np.float32)
    metadata = {
        "block_count": sizes.layers,
        "context_length": sizes.places,
        "embedding_length": width,
        "feed_forward_length": sizes.hidden,
        "attention.head_count": sizes.heads,
        "attention.head_count_kv": sizes.shared,
        f"attention.layer_norm_{'' if name == 'gpt2' else 'rms_'}epsilon": 1e-5,
    }
    write_gguf(path, {"general.architecture": name, **{f"{name}.{k}": v for k, v in metadata.items()}}, tensors)
    unread = "position_embd" if name == "gpt2" else "token_embd"  # but for the rows of a token
    return sum(getattr(one, "data", one).nbytes for key, one in tensors.items() if not key.startswith(unread))


def sides(options: argparse.Namespace, folder: Path) -> tuple[dict[tuple[str, str], Side], dict[str, int]]:
    """The contenders that start, by name and type; and the bytes that a token of text reads."""
    numbers = list(map(str, astuple(MODELS[options.model])))
    found, nbytes = {}, {}
    rest = [str(options.threads), str(options.tokens), str(PROMPT), str(MODELS[options.model].words)]
    for dtype, kind in TYPES.items():
        path = folder / f"{kind}.gguf"
        nbytes[dtype] = write_model(path, options.model, kind)
        found["text", dtype] = Side([sys.executable, "-c", TEXT, str(path), *rest])
    for dtype in ("float32", "bfloat16"):
        for name, python in (("engine", sys.executable), ("torch", options.peer_python)):
            more = [name, dtype, str(options.threads), str(options.tokens), "0", options.model, *numbers, str(PROMPT)]
            found[name, dtype] = Side([python, "-c", CHILD, *more])
        if options.llama_python and options.model == "gpt2":
            path = folder / f"{dtype}.llama.gguf"
            subprocess.run([options.llama_python, "-c", GGUF, str(path), dtype, *numbers], check=True)
            found["llama-cpp", dtype] = Side([options.llama_python, "-c", LLAMA, str(path), *rest])
    for (name, dtype), side in found.items():
        if not side.lives:
            print(f"{name} {dtype}: did not start", file=sys.stderr)
    return {key: side for key, side in found.items() if side.lives}, nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--llama-python", help="interpreter with llama-cpp-python and gguf")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.profile:
        numbers = list(map(str, (*astuple(MODELS[options.model]), PROMPT)))
        for dtype in ("float32", "bfloat16"):
            more = ["engine", dtype, str(options.threads), str(options.tokens), "1", options.model, *numbers]
            subprocess.run([sys.executable, "-c", CHILD, *more], cwd=Path(__file__).parents[1], check=True)
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        running, nbytes = sides(options, Path(folder))
        for side in running.values():
            stack.callback(side.process.kill)
        rates = []
        for _ in range(options.rounds):
            rates.append(floor.bandwidth(options.threads, 3)["read"])
            for side in running.values():
                side.round()
        print(json.dumps(report(running, nbytes, max(rates)), indent=1))


def report(running: dict[tuple[str, str], Side], nbytes: dict[str, int], rate: float) -> dict[str, Any]:
    """Tokens per second, and text's time over that of the others; rate: 10^9 bytes per second of a read of memory."""
    found: dict[str, Any] = {"read_GB_per_second": round(rate, 1)}
    for (name, dtype), side in running.items():
        clock, cpu, *more = (statistics.median(column) for column in zip(*side.times))
        best = min(times[0] for times in side.times)
        row = {
            "tokens_per_second": round(1 / clock, 1),
            "best": round(1 / best, 1),
            "per_processor_second": round(1 / cpu, 1),
        }
        ours = running.get(("text", dtype))
        if name == "text":
            least = nbytes[dtype] / rate / 1e9
            row |= {"floor": round(1 / least, 1), "best_over_floor": round(best / least, 2)}
            row |= {"first_token_seconds": round(more[0], 3), "memory_MB": round(more[1] / 1e6)}
        elif ours is not None:
            for n, word in enumerate(("clock", "processor")):
                ratios = [a[n] / b[n] for a, b in zip(ours.times, side.times)]
                row[f"text_over_it_{word}"] = round(statistics.median(ratios), 2)
        found[f"{name} {dtype}"] = row
    return found


if __name__ == "__main__":
    main()
