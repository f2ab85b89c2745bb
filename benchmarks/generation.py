"""Tokens per second of a GPT-2 of 124 million parameters, batch 1, greedy, with a cache of keys and values.

python benchmarks/generation.py [--tokens 64] [--rounds 5] [--threads 2] [--peer-python PYTHON_WITH_TORCH]
    [--llama-python PYTHON_WITH_LLAMA_CPP_AND_GGUF] [--profile]

Weights are random, so what is said means nothing; times do not depend on it.  Every side and dtype (float32, bfloat16)
has a process of its own, which makes the model, reads a prompt of 32 tokens, and then makes `--tokens` tokens each time
it is asked; rounds alternate.  Printed: medians of tokens per second by the clock and by processor time (which says
more on a busy machine), and the ratio of the engine's time to each peer's in the same round.
--llama-python: llama-cpp-python, on a gguf file written here by the package `gguf` (F32 and BF16).
--profile: instead, where a token's time goes, by function.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROMPT, LAYERS, HEADS, WIDTH, WORDS, PLACES = 32, 12, 12, 768, 50257, 1024

CHILD = """
import json, sys, time
side, dtype, threads, tokens, profile = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "1"
LAYERS, HEADS, WIDTH, WORDS, PLACES, PROMPT = map(int, sys.argv[6:12])
if side == "engine":
    import engine as torch
else:
    import torch
nn, F = torch.nn, torch.nn.functional
torch.set_num_threads(threads)
torch.manual_seed(0)

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

model = GPT2().eval().to(getattr(torch, dtype))
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
LAYERS, HEADS, WIDTH, WORDS, PLACES = map(int, sys.argv[3:8])
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


def sides(options: argparse.Namespace, folder: Path) -> dict[tuple[str, str], Side]:
    """The contenders that start, by name and dtype."""
    sizes = list(map(str, (LAYERS, HEADS, WIDTH, WORDS, PLACES)))
    found = {}
    for dtype in ("float32", "bfloat16"):
        for name, python in (("engine", sys.executable), ("torch", options.peer_python)):
            more = [name, dtype, str(options.threads), str(options.tokens), "0", *sizes, str(PROMPT)]
            found[name, dtype] = Side([python, "-c", CHILD, *more])
        if options.llama_python:
            path = folder / f"{dtype}.gguf"
            subprocess.run([options.llama_python, "-c", GGUF, str(path), dtype, *sizes], check=True)
            more = [str(path), str(options.threads), str(options.tokens), str(PROMPT), str(WORDS)]
            found["llama-cpp", dtype] = Side([options.llama_python, "-c", LLAMA, *more])
    for (name, dtype), side in found.items():
        if not side.lives:
            print(f"{name} {dtype}: did not start", file=sys.stderr)
    return {key: side for key, side in found.items() if side.lives}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--llama-python", help="interpreter with llama-cpp-python and gguf")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.profile:
        sizes = list(map(str, (LAYERS, HEADS, WIDTH, WORDS, PLACES, PROMPT)))
        for dtype in ("float32", "bfloat16"):
            more = ["engine", dtype, str(options.threads), str(options.tokens), "1", *sizes]
            subprocess.run([sys.executable, "-c", CHILD, *more], cwd=Path(__file__).parents[1], check=True)
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        running = sides(options, Path(folder))
        for side in running.values():
            stack.callback(side.process.kill)
        for _ in range(options.rounds):
            for side in running.values():
                side.round()
        print(json.dumps(report(running), indent=1))


def report(running: dict[tuple[str, str], Side]) -> dict[str, Any]:
    """Tokens per second, and the engine's time over that of the others: medians."""
    found: dict[str, Any] = {}
    for (name, dtype), side in running.items():
        clock, cpu = (statistics.median(t[n] for t in side.times) for n in (0, 1))
        row = {"tokens_per_second": round(1 / clock, 1), "per_processor_second": round(1 / cpu, 1)}
        ours = running.get(("engine", dtype))
        if name != "engine" and ours is not None:
            for n, word in enumerate(("clock", "processor")):
                ratios = [a[n] / b[n] for a, b in zip(ours.times, side.times)]
                row[f"engine_over_it_{word}"] = round(statistics.median(ratios), 2)
        found[f"{name} {dtype}"] = row
    return found


if __name__ == "__main__":
    main()
